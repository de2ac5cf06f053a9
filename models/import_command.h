// `draftsmith import`: a GGUF target -> a Hugging Face folder.
#pragma once

namespace CLI {
class App;
}

namespace draftsmith {

void add_import_command(CLI::App& app);

}  // namespace draftsmith
