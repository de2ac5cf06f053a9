// `draftsmith capture`: corpus + target -> feature store.
#pragma once

#include <CLI/CLI.hpp>

namespace draftsmith {

void add_capture_command(CLI::App& app);

}  // namespace draftsmith
