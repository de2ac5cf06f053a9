// Rows of a JSON file one after another, whatever its size: JSON Lines, or one JSON array of objects.
//
// Only the row at hand is in memory. A row that cannot be parsed is handed out with the reason, never skipped in
// silence.
#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace draftsmith {

// The parser's words without its own code in front ("[json.exception.parse_error.101] ").
std::string json_words(const nlohmann::json::exception& error);

struct JsonRow {
  nlohmann::ordered_json value;
  std::string problem;  // empty, or "not JSON" / "truncated JSON"
  std::string detail;   // the parser's words
  int64_t number = 0;   // line of a JSON Lines file, 1-based; else position in the array, 1-based
};

class JsonRows {
 public:
  // Throws Error when the file is missing, empty or plainly of another kind (Parquet, gzip, HDF5).
  explicit JsonRows(const std::string& path);

  // False at the end. A file that stops inside a row or before the array's closing bracket ends with a row "truncated
  // JSON".
  bool next(JsonRow& row);

  // "file.jsonl:12" or "file.json: row 12"
  std::string where(int64_t number) const;

 private:
  int peek();
  int get();
  void skip_space();
  bool next_line(std::string& text);
  // Collects one element of the array. False: the file ended inside.
  bool element(std::string& text);
  void parse(const std::string& text, JsonRow& row) const;
  void finish_array();

  std::string path_;
  std::ifstream file_;
  std::vector<char> buffer_;
  size_t at_ = 0, filled_ = 0;
  enum class State { lines, elements, trailing, ended } state_ = State::lines;
  int64_t number_ = 0;
};

}  // namespace draftsmith
