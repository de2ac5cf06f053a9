#include "launch/summary.h"

#include <sys/resource.h>

#include "launch/check.h"
#include "launch/file.h"
#include "launch/log.h"

namespace draftsmith {

int64_t Summary::rows_dropped() const {
  int64_t n = 0;
  for (const auto& [reason, rows] : dropped) n += rows;
  return n;
}

int64_t Summary::rows_unusable() const {
  int64_t n = rows_dropped();
  for (const char* reason : {"beyond --limit", "duplicate"})
    if (const auto found = dropped.find(reason); found != dropped.end()) n -= found->second;
  return n;
}

std::string Summary::rows_line() const {
  std::string line = fmt::format("{} of {} rows", with_commas(rows_kept), with_commas(rows_in));
  std::string reasons;
  for (const auto& [reason, rows] : dropped) {
    if (rows == 0) continue;
    reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", with_commas(rows), reason);
  }
  return reasons.empty() ? line : line + " (" + reasons + ")";
}

nlohmann::ordered_json Summary::json() const {
  nlohmann::ordered_json out;
  out["command"] = command;
  out["rows_in"] = rows_in;
  out["rows_kept"] = rows_kept;
  out["rows_dropped"] = nlohmann::ordered_json::object();
  for (const auto& [reason, rows] : dropped) out["rows_dropped"][reason] = rows;
  out["peak_memory_bytes"] = peak_memory();
  for (const auto& [key, value] : facts.items()) out[key] = value;
  return out;
}

void Summary::finish() const {
  DS_CHECK(rows_in == rows_kept + rows_dropped(), "{}: rows in ({}) are not rows kept ({}) + rows dropped ({}); this is a defect of draftsmith",
           command, rows_in, rows_kept, rows_dropped());
  if (rows_in > 0) say("rows", "{}", rows_line());
  if (!json_file.empty()) write_file(json_file, json().dump(2) + "\n");
}

int64_t peak_memory() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace draftsmith
