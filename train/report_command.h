// `draftsmith report`: runs, an evaluation and what a runtime served -> one HTML page.
#pragma once

namespace CLI {
class App;
}

namespace draftsmith {

void add_report_command(CLI::App& app);

}  // namespace draftsmith
