// `draftsmith train`: feature store -> run folder.
#pragma once

#include <CLI/CLI.hpp>

namespace draftsmith {

void add_train_command(CLI::App& app);

}  // namespace draftsmith
