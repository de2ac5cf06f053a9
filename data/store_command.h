// `draftsmith store info|verify`: what a feature store holds, and whether it still is what was written.
#pragma once

namespace CLI {
class App;
}

namespace draftsmith {

void add_store_command(CLI::App& app);

}  // namespace draftsmith
