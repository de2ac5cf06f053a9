// One self-contained HTML page of a run: what was learned, what it is worth when decoding, what a runtime made of it.
//
// Everything stands in the page itself (inline style and SVG, no script, nothing fetched), so that it can be mailed or
// attached. It shows what it was given: curves from metrics.jsonl of one or more runs, figures from evaluation.json and
// served.json; what is absent is said to be absent.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace draftsmith {

struct RunMetrics {
  std::string name;
  std::vector<nlohmann::ordered_json> steps, validations;  // lines of metrics.jsonl
};

// Reads `run`/metrics.jsonl. Throws Error when it is missing, holds no line, or a line that is not JSON (its number is
// told); a torn last line, as a killed run leaves it, is passed over.
RunMetrics read_metrics(const std::string& run);

struct ReportInput {
  std::vector<RunMetrics> runs;
  nlohmann::ordered_json evaluation, served;  // null: not given
};

std::string report_page(const ReportInput& input);

}  // namespace draftsmith
