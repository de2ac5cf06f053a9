// `draftsmith evaluate`: a target, a drafter and prompts -> evaluation.json and a table.
#pragma once

namespace CLI {
class App;
}

namespace draftsmith {

void add_evaluate_command(CLI::App& app);

}  // namespace draftsmith
