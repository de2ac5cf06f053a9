// The one decode loop: prefill, draft, verify, crop. Plain decoding is the same loop without a proposer.
//
// Lossless: with greedy sampling the tokens are those of plain greedy decoding; with sampling their law is the target's
// (sampling.h has the rules).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "models/decoding/sampling.h"
#include "models/targets/target.h"

namespace draftsmith {

// Who proposes: a drafter, an n-gram table, nobody. One sequence at a time.
class Proposer {
 public:
  virtual ~Proposer() = default;
  // Taps that observe() wants; empty: none.
  virtual std::vector<int64_t> taps() const = 0;
  // Most tokens it proposes at once.
  virtual int64_t depth() const = 0;
  virtual void start() = 0;
  // Tokens that were committed and run through the target, in order, with their taps [n, T, H] (undefined when taps()
  // is empty).
  virtual void observe(const std::vector<int64_t>& tokens, const at::Tensor& taps) = 0;
  // Chain after `anchor` (committed, not yet run): at most `tokens`.
  virtual Proposal propose(int64_t anchor, int64_t tokens, const SamplingOptions& sampling, uint64_t seed) = 0;
  // What the rows of Proposal::q run over; the full vocabulary unless the proposer says otherwise.
  virtual const DraftVocabulary& vocabulary() const;
};

// Proposer over a Drafter (borrowed).
std::unique_ptr<Proposer> make_proposer(const Drafter& drafter);

enum class VerifyRule {
  kTargetMatch,  // the target draws its own token at each slot; the draft is accepted while equal (greedy is the case T
                 // = 0)
  kSpeculative,  // accept with min(1, p/q), else draw from the positive part of p - q (Leviathan et al. 2023, algorithm
                 // 1)
};

struct DecodeOptions {
  int64_t max_new_tokens = 256;
  std::vector<int64_t> stop;  // ends a sequence; the stop token is part of the output
  SamplingOptions sampling;   // temperature 0: greedy
  VerifyRule rule = VerifyRule::kTargetMatch;
  uint64_t seed = 0;  // of this sequence
};

struct DecodeResult {
  std::vector<int64_t> tokens;  // generated, prompt not included
  bool stopped = false;         // by a stop token (else by the limit)
  std::vector<int64_t> proposed,
      accepted;  // per round (none without a proposer): drafted tokens, accepted ones; a round commits accepted + 1, or
                 // `accepted` when it ends in a drafted stop token
  double seconds_prefill = 0, seconds_draft = 0, seconds_verify = 0, seconds = 0;
  std::vector<float> gaps;  // per generated token: top-1 minus top-2 logit (filled when want_gaps)
};

// Tokens that may follow a prompt: `max_new_tokens`, or what the model's positions leave. Throws Error when nothing
// may.
int64_t new_token_limit(const HfConfig& config, int64_t prompt_tokens, int64_t max_new_tokens);

// Decodes one prompt. `proposer` null: plain decoding.
DecodeResult decode(const Target& target, Proposer* proposer, const std::vector<int64_t>& prompt,
                    const DecodeOptions& options, bool want_gaps = false);

}  // namespace draftsmith
