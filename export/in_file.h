// Errors of checks that do not know which file their values came from.
#pragma once

#include <string>

#include "launch/check.h"

namespace draftsmith {

// What `work` returns; its Error gets the file in front where it does not name it, and `remedy` on a line of its own
// where it says nothing of what to do.
template <class Work>
auto in_file(const std::string& path, const std::string& remedy, Work work) {
  try {
    return work();
  } catch (const Error& error) {
    const std::string text = error.what();
    const bool helpful = text.find("\n       ") != std::string::npos;
    DS_FAIL("{}{}{}", text.starts_with(path) ? "" : path + ": ", text, helpful ? "" : "\n       " + remedy);
  }
}

}  // namespace draftsmith
