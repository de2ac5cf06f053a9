#include "data/json_rows.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "launch/check.h"

namespace draftsmith {
namespace {

// Deeper nesting than this is refused: the parser's consumers recurse, and no conversation comes near.
constexpr int64_t kMaxDepth = 100;

bool is_space(int c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

struct Shape {
  int64_t deepest = 0;  // greatest depth of brackets outside strings
  bool open = false;    // ends inside a string or a bracket
};

Shape shape_of(std::string_view text) {
  Shape shape;
  int64_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      shape.deepest = std::max(shape.deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  shape.open = in_string || depth > 0;
  return shape;
}

}  // namespace

std::string json_words(const nlohmann::json::exception& error) {
  const std::string text = error.what();
  const size_t end = text.find("] ");
  return text.starts_with("[json.exception.") && end != std::string::npos ? text.substr(end + 2) : text;
}

JsonRows::JsonRows(const std::string& path) : path_(path), buffer_(1 << 20) {
  namespace fs = std::filesystem;
  DS_CHECK(fs::exists(path), "{}: no such file", path);
  DS_CHECK(!fs::is_directory(path), "{}: is a folder, a JSON or JSON Lines file is needed", path);
  file_.open(path, std::ios::binary);
  DS_CHECK(file_.good(), "{}: cannot be opened for reading", path);
  peek();
  const std::string_view head(buffer_.data(), std::min<size_t>(filled_, 8));
  DS_CHECK(!head.starts_with("PAR1"), "{}: is a Parquet file; convert it to JSON Lines first", path);
  DS_CHECK(!head.starts_with("\x1f\x8b"), "{}: is compressed; decompress it first (gunzip)", path);
  DS_CHECK(!head.starts_with("\x89HDF"), "{}: is an HDF5 file, conversations as JSON or JSON Lines are needed", path);
  if (head.starts_with("\xef\xbb\xbf")) at_ += 3;  // a byte order mark
  int64_t blank_lines = 0;
  while (is_space(peek())) blank_lines += get() == '\n';
  DS_CHECK(peek() >= 0, "{}: the file is empty", path);
  if (peek() == '[') {
    get();
    state_ = State::elements;
  } else {
    number_ = blank_lines;
  }
}

int JsonRows::peek() {
  if (at_ == filled_) {
    file_.read(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    DS_CHECK(!file_.bad(), "{}: cannot be read", path_);
    filled_ = static_cast<size_t>(file_.gcount());
    at_ = 0;
    if (filled_ == 0) return -1;
  }
  return static_cast<unsigned char>(buffer_[at_]);
}

int JsonRows::get() {
  const int c = peek();
  if (c >= 0) ++at_;
  return c;
}

void JsonRows::skip_space() {
  while (is_space(peek())) get();
}

std::string JsonRows::where(int64_t number) const {
  return state_ != State::lines ? fmt::format("{}: row {}", path_, number) : fmt::format("{}:{}", path_, number);
}

bool JsonRows::next_line(std::string& text) {
  while (peek() >= 0) {
    text.clear();
    ++number_;
    for (int c = get(); c >= 0 && c != '\n'; c = get()) text += static_cast<char>(c);
    if (!std::all_of(text.begin(), text.end(), [](char c) { return is_space(static_cast<unsigned char>(c)); }))
      return true;
  }
  return false;
}

bool JsonRows::element(std::string& text) {
  int64_t depth = 0;
  bool in_string = false;
  for (int c = peek(); c >= 0; c = peek()) {
    if (!in_string && depth == 0 && (c == ',' || c == ']')) return true;
    text += static_cast<char>(get());
    if (in_string) {
      if (c == '\\' && peek() >= 0) text += static_cast<char>(get());
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

void JsonRows::parse(const std::string& text, JsonRow& row) const {
  row.number = number_;
  row.problem.clear();
  row.detail.clear();
  if (shape_of(text).deepest > kMaxDepth) {
    row.problem = "not JSON";
    row.detail = fmt::format("nested deeper than {} levels", kMaxDepth);
    return;
  }
  try {
    row.value = nlohmann::ordered_json::parse(text);
  } catch (const nlohmann::ordered_json::exception& error) {
    row.problem = "not JSON";
    row.detail = json_words(error);
  }
}

void JsonRows::finish_array() {
  skip_space();
  state_ = peek() < 0 ? State::ended : State::trailing;
}

bool JsonRows::next(JsonRow& row) {
  std::string text;
  switch (state_) {
    case State::lines:
      if (!next_line(text)) return false;
      parse(text, row);
      if (!row.problem.empty() && peek() < 0 && shape_of(text).open) row.problem = "truncated JSON";
      return true;
    case State::elements:
      skip_space();
      if (number_ == 0 && peek() == ']') {
        get();
        finish_array();
        return next(row);
      }
      ++number_;
      if (!element(text)) {
        row = {{}, "truncated JSON", "the file ends before the array's closing bracket", number_};
        state_ = State::ended;
        return true;
      }
      parse(text, row);
      if (get() == ']') finish_array();
      return true;
    case State::trailing:
      row = {{}, "not JSON", "more text after the array's end", ++number_};
      state_ = State::ended;
      return true;
    case State::ended:
      return false;
  }
  return false;
}

}  // namespace draftsmith
