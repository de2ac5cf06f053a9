// Drawing tokens: greedy, temperature, top-k, top-p; and the verification rules that keep the target's law.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/drafters/drafter.h"

namespace draftsmith {

struct SamplingOptions {
  double temperature = 0;  // 0: greedy
  int64_t top_k = 0;       // 0: off
  double top_p = 1;        // 1: off
};

// Throws Error naming the option that no draw can follow: out of its range, or not a number.
void check_sampling(const SamplingOptions& options);

// Probabilities [..., V] (fp32) of logits [..., V] under the options: temperature, then top-k, then top-p (smallest set
// whose mass reaches p; ties keep the lower id). Temperature 0: one-hot of the arg max.
at::Tensor probabilities(const at::Tensor& logits, const SamplingOptions& options);

// A uniform number in [0, 1) that is a function of seed and index: token i of a sequence draws the same number however
// it was batched or drafted.
double uniform(uint64_t seed, uint64_t index);

// Inverse-CDF draw from probabilities [V] with the uniform number u.
int64_t draw(const at::Tensor& probabilities, double u);

struct Verified {
  int64_t accepted = 0;  // drafted tokens accepted
  int64_t next = 0;      // the token committed after them (bonus or correction)
};

// Target-matching rule: logits [n + 1, V] of the anchor and n drafted tokens; uniform numbers first_index.. of `seed`.
Verified verify_match(const at::Tensor& logits, const Proposal& proposal, const SamplingOptions& options, uint64_t seed,
                      uint64_t first_index);

// Speculative sampling (Leviathan et al. 2023): accept d with min(1, p(d)/q(d)), else draw from norm(max(p - q, 0)); q
// [n, Vd] over `vocabulary` (full when undefined). A greedy proposal (q undefined) is q = one-hot.
Verified verify_speculative(const at::Tensor& logits, const Proposal& proposal, const DraftVocabulary& vocabulary,
                            const SamplingOptions& options, uint64_t seed, uint64_t first_index);

}  // namespace draftsmith
