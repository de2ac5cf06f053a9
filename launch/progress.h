// One line of progress: what is done, the rate, the time left.
//
// On a terminal the line updates in place (four times a second); elsewhere a line is printed every ten seconds and at the end, so that
// logs stay short. Only rank 0 prints.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace draftsmith {

class Progress {
 public:
  // `total` <= 0 means unknown. `unit` is what is counted ("tokens", "rows"). `done` is what an earlier run left finished: it counts
  // toward the total but not toward the rate.
  Progress(std::string label, int64_t total, std::string unit, int64_t done = 0);
  ~Progress();

  // Adds `n` to what is done; `detail` is shown between the count and the time left.
  void advance(int64_t n, const std::string& detail = "");
  // Prints the last state once and ends the line.
  void finish();

  double seconds() const;

 private:
  void print(bool last);

  std::string label_, unit_, detail_;
  int64_t total_, done_, start_done_;
  std::chrono::steady_clock::time_point start_, printed_;
  bool terminal_, finished_ = false;
};

}  // namespace draftsmith
