// The end of a command: what it read, kept, dropped and wrote, for a person and as JSON.
//
// Every command fills one Summary. finish() checks the account (rows in = rows kept + rows dropped by reason), prints it, and writes
// the same as JSON when the caller gave --json FILE.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace draftsmith {

struct Summary {
  std::string command;
  int64_t rows_in = 0, rows_kept = 0;
  std::map<std::string, int64_t> dropped;                        // reason -> rows
  nlohmann::ordered_json facts = nlohmann::ordered_json::object();  // further figures, keys in snake_case
  std::string json_file;                                          // empty: none

  void drop(const std::string& reason, int64_t rows = 1) { dropped[reason] += rows; }
  int64_t rows_dropped() const;
  // Of these, rows that could not be used: not those left out on purpose ("beyond --limit") or said again ("duplicate").
  int64_t rows_unusable() const;
  // "5,213 of 5,240 rows (20 too short, 7 no answer)"
  std::string rows_line() const;
  nlohmann::ordered_json json() const;
  // Throws Error when the account does not close. Prints one line `rows ...` when rows_in > 0, and writes json_file.
  void finish() const;
};

// Peak resident memory of this process so far, bytes.
int64_t peak_memory();

}  // namespace draftsmith
