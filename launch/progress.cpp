#include "launch/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "launch/log.h"
#include "launch/ranks.h"

namespace draftsmith {

using Clock = std::chrono::steady_clock;

Progress::Progress(std::string label, int64_t total, std::string unit, int64_t done)
    : label_(std::move(label)),
      unit_(std::move(unit)),
      total_(total),
      done_(done),
      start_done_(done),
      start_(Clock::now()),
      printed_(start_),
      terminal_(::isatty(STDOUT_FILENO) != 0) {}

Progress::~Progress() {
  if (terminal_ && !finished_ && ranks().rank == 0) std::fputc('\n', stdout);
}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void Progress::advance(int64_t n, const std::string& detail) {
  done_ += n;
  detail_ = detail;
  const double since = std::chrono::duration<double>(Clock::now() - printed_).count();
  if (since >= (terminal_ ? 0.25 : 10.0)) print(false);
}

void Progress::finish() {
  if (!finished_) print(true);
  finished_ = true;
}

void Progress::print(bool last) {
  printed_ = Clock::now();
  if (ranks().rank != 0) return;
  const double elapsed = seconds();
  const double rate = elapsed > 0 ? static_cast<double>(done_ - start_done_) / elapsed : 0;
  std::string line = fmt::format("{:<9}{}", label_, with_commas(done_));
  if (total_ > 0) line += "/" + with_commas(total_);
  line += fmt::format(" {}  {} {}/s", unit_, rate < 100 ? fmt::format("{:.1f}", rate) : short_count(rate), unit_);
  if (!detail_.empty()) line += "  " + detail_;
  if (last) {
    line += "  " + short_time(elapsed);
  } else if (total_ > 0 && rate > 0) {
    line += "  " + short_time(static_cast<double>(total_ - done_) / rate) + " left";
  }
  if (terminal_) {
    fmt::print("\r\033[K{}{}", line, last ? "\n" : "");
  } else {
    fmt::print("{}\n", line);
  }
  std::fflush(stdout);
}

}  // namespace draftsmith
