// Command lines for a person to copy.
#pragma once

#include <string>

namespace draftsmith {

// `text` as one word of a POSIX shell: itself where no character is special, else in single quotes.
std::string shell_word(const std::string& text);

}  // namespace draftsmith
