// Evaluation: plain and speculative decoding of the same prompts in the same engine and run, and the figures that
// follow.
//
// Both sides are warmed up, run one after the other for each prompt with the order alternating, and timed with their
// prefill. Nothing is estimated from training: a figure here is counted or measured. Greedy output (and output under
// the target-match rule, whose random numbers belong to positions) must be the same tokens on both sides; where it is
// not, the place and the gap of the target's two best logits are kept.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/decoding/decode.h"
#include "models/drafters/drafter.h"
#include "models/targets/target.h"

namespace draftsmith {

struct EvaluationPrompt {
  std::string id, category;
  std::string text;             // as rendered for the target
  std::vector<int64_t> tokens;  // of `text`
};

struct EvaluationRow {
  EvaluationPrompt prompt;
  DecodeResult plain, speculative;
  DecodeResult ngram;       // rounds of the baseline, walked along the plain output; empty without one
  bool comparable = true;   // false: speculative sampling, where only the law is the same
  int64_t divergence = -1;  // first generated token that differs; -1: none
  double gap = 0;           // top-1 minus top-2 logit of plain decoding there
};

// What a set of rows adds up to.
struct EvaluationFigures {
  int64_t rows = 0, comparable = 0, identical = 0;
  int64_t plain_tokens = 0, speculative_tokens = 0;
  int64_t plain_forwards = 0;  // one-token target forwards after the prefill
  int64_t rounds = 0,
          committed = 0;     // verification rounds; tokens they committed (the prefill's first token is not theirs)
  int64_t accepted = 0;      // drafted tokens accepted
  double response_taus = 0;  // sum over responses with a round of committed / rounds
  int64_t responses = 0;
  int64_t ngram_rounds = 0, ngram_committed = 0;
  double plain_seconds = 0, speculative_seconds = 0;  // prefill included
  double plain_forward_seconds = 0, draft_seconds = 0, verify_seconds = 0;
  // By slot 1..B-1: rounds that proposed that far (a slot behind an accepted stop token was never judged and does not
  // count); rounds that accepted that far.
  std::vector<int64_t> offered, taken;
  std::vector<int64_t> lengths;  // rounds by number of accepted drafted tokens, 0..B-1

  explicit EvaluationFigures(int64_t block = 0);
  void add(const EvaluationRow& row);

  double tau() const;                // committed / rounds; 0 without rounds
  double tau_without_bonus() const;  // accepted / rounds
  double tau_mean_over_responses() const;
  double tau_ngram() const;
  double plain_rate() const;  // tokens per second
  double speculative_rate() const;
  double speedup() const;         // ratio of the two rates
  double break_even_tau() const;  // (draft + verification) / plain forward, seconds each
};

// `with_ngram`: write tau_ngram as a number (null otherwise).
nlohmann::ordered_json to_json(const EvaluationFigures& figures, bool with_ngram);

struct EvaluationOptions {
  DecodeOptions decode;                            // its seed is that of the run: each prompt gets its own stream
  int64_t block = 0;                               // serve shorter blocks than the drafter's; 0: the drafter's
  std::string name = "the drafter";                // what errors of proposing call it: its folder
  std::function<void(const EvaluationRow&)> done;  // after each prompt
};

// `ngram` null: no baseline; else it is walked along the plain output, which is exact where the output does not depend
// on proposals (greedy and the target-match rule). Throws Error for no prompts, or a block outside 2..the drafter's.
std::vector<EvaluationRow> evaluate(const Target& target, const Drafter& drafter, Proposer* ngram,
                                    const std::vector<EvaluationPrompt>& prompts, const EvaluationOptions& options);

// True when a differing output is a defect: fp32 and greedy.
bool must_be_identical(const Target& target, const DecodeOptions& options);

}  // namespace draftsmith
