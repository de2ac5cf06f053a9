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

// Throws Error unless the evaluation (read_evaluation() of `path`) was measured with a checkpoint of one of the runs,
// or with an export of one.
void check_evaluation_of(const nlohmann::ordered_json& evaluation, const std::string& path,
                         const std::vector<std::string>& runs);

// served.json of tests/clients/serve_llama_cpp.py. Throws Error when the file is absent or lacks what one holds (the
// key is named).
nlohmann::ordered_json read_served(const std::string& path);

struct ReportInput {
  std::vector<RunMetrics> runs;
  nlohmann::ordered_json evaluation, served;  // null: not given
};

std::string report_page(const ReportInput& input);
// Throws Error when `path` exists and is no page of report_page(): an output replaces nothing else.
void check_replaces_page(const std::string& path);

}  // namespace draftsmith
