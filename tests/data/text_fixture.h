// Folders and files for the tests of text, conversations and corpora.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "data/chat.h"
#include "tests/support.h"

namespace draftsmith::testing {

inline std::string golden(const std::string& name) {
  return std::string(DRAFTSMITH_GOLDENS) + "/" + name;
}

inline nlohmann::ordered_json read_golden(const std::string& name) {
  return nlohmann::ordered_json::parse(read_file(golden(name)));
}

// The small tokenizer of tests/goldens/text_tiny with another template.
class TinyTarget : public TemporaryFolder {
 public:
  explicit TinyTarget(const std::string& chat_template) {
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
      write(name, read_file(golden(std::string("text_tiny/") + name)));
    if (!chat_template.empty()) write("chat_template.jinja", chat_template);
  }
  std::string folder() const { return path().string(); }
};

// One of the templates written for the tests (tests/goldens/text_cases.py), by name.
inline std::string named_template(const std::string& name) {
  static const nlohmann::ordered_json file = read_golden("text_tiny.json");
  for (const auto& chat : file["chats"]) {
    if (chat["name"] == name) return chat["template"];
  }
  throw std::runtime_error("no template " + name);
}

}  // namespace draftsmith::testing
