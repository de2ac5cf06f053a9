#include "data/hf_files.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace draftsmith {

namespace {

constexpr std::array<std::string_view, 6> kNames = {"config.json",         "generation_config.json",
                                                    "tokenizer.json",      "tokenizer_config.json",
                                                    "chat_template.jinja", "model.safetensors.index.json"};

}  // namespace

std::vector<std::filesystem::path> hf_files(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code unreadable;  // such a folder is named by the command that reads it
  for (const auto& entry : std::filesystem::directory_iterator(folder, unreadable)) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() == ".safetensors" ||
        std::find(kNames.begin(), kNames.end(), path.filename().string()) != kNames.end()) {
      files.push_back(path);
    }
  }
  return files;
}

}  // namespace draftsmith
