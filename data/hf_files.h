// What a Hugging Face folder holds for this program: files that no output may replace.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace draftsmith {

// Files of `folder` that some command reads, as far as they are there: configuration, tokenizer, template, weights.
std::vector<std::filesystem::path> hf_files(const std::string& folder);

}  // namespace draftsmith
