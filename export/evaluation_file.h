// evaluation.json and the table a person sees: the figures of an evaluation written down.
//
// Top level: the figures over all prompts (export/evaluation.h), `by_category` with the same figures each,
// `divergences`, identities, machine (`settings`), and `rows`: per prompt what went in, what came out and which tokens
// each round committed (`pieces`), for the report and for other engines.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/text.h"
#include "export/evaluation.h"

namespace draftsmith {

struct EvaluationReport {
  std::vector<EvaluationRow> rows;
  EvaluationFigures overall;
  std::map<std::string, EvaluationFigures> by_category;
  bool with_ngram = false;
};

EvaluationReport sum_up(std::vector<EvaluationRow> rows, int64_t block, bool with_ngram);

// The definition printed and written beside every tau.
extern const char* const kTauDefinition;

nlohmann::ordered_json evaluation_json(const EvaluationReport& report, const Tokenizer& tokenizer);

// An evaluation.json read back. Throws Error when the file is absent or lacks what one holds (the key is named).
nlohmann::ordered_json read_evaluation(const std::string& path);
// True when it was measured with the drafter of this hash (open_drafter.h), or with an export of that drafter.
bool measured_with(const nlohmann::ordered_json& evaluation, const std::string& drafter_hash);
// Throws Error when `path` exists and is no evaluation.json: an output replaces nothing else.
void check_replaces_evaluation(const std::string& path);

// Lines to print: one row a category, then all; acceptance by position; break-even; what it means.
std::vector<std::string> evaluation_table(const EvaluationReport& report);

}  // namespace draftsmith
