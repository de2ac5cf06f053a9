// `draftsmith generate`: prompts -> conversations answered by the target itself.
#pragma once

#include <CLI/CLI.hpp>

namespace draftsmith {

void add_generate_command(CLI::App& app);

}  // namespace draftsmith
