// `draftsmith export`: a trained drafter -> a folder that a named runtime loads, read back and proven.
#pragma once

namespace CLI {
class App;
}

namespace draftsmith {

void add_export_command(CLI::App& app);

}  // namespace draftsmith
