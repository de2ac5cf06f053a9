// evaluation.json and the table a person sees: the figures of an evaluation written down.
//
// Top level: the figures over all prompts (export/evaluation.h), `by_category` with the same figures each,
// `divergences`, identities, machine, and `rows`: per prompt what went in, what came out and which tokens each round
// committed (`pieces`), for the report and for other engines.
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

// Lines to print: one row a category, then all; acceptance by position; break-even; what it means.
std::vector<std::string> evaluation_table(const EvaluationReport& report);

}  // namespace draftsmith
