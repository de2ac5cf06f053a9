#include "export/shell.h"

#include <cstring>

namespace draftsmith {

std::string shell_word(const std::string& text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && std::strchr("_-./:@%+=,", c) != nullptr);
  };
  bool quoted = text.empty();
  std::string inside;
  for (const char c : text) {
    quoted = quoted || !plain(c);
    inside += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return quoted ? "'" + inside + "'" : text;
}

}  // namespace draftsmith
