// Folders and files for the tests of text, conversations and corpora.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "data/chat.h"
#include "launch/check.h"
#include "launch/file.h"

namespace draftsmith::testing {

// A folder that goes with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "draftsmith-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return file(name);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

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

// The message of the Error that `work` throws; fails the test when it throws none.
template <class Work>
std::string message_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE(std::string(text).find(part), std::string::npos) << "in: " << (text) << "\nmissing: " << (part)

}  // namespace draftsmith::testing
