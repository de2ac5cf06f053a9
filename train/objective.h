// The training objective of block drafters: weighted cross entropy at the scored slots.
//
//   loss = sum w m CE / sum w m over all slots of an optimizer step, m = 1 where the label is known to the draft
//   vocabulary
//
// with w = exp(-(k-1)/gamma) at slot k (arXiv 2602.06036, eq. 4) or D-PACE's weights (arXiv 2605.18810): q_k =
// exp(-CE_k), q~_k = (1 - alpha) q_k + alpha, w_k = sum over m >= k of prod over i <= m of q~_i, without gradient.
// Numerator and denominator are given apart, so that the quotient can be formed over the whole step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "configs/train_config.h"
#include "models/drafters/drafter.h"
#include "train/acceptance.h"

namespace draftsmith {

struct ObjectiveTerms {
  at::Tensor numerator;  // scalar, differentiable
  double denominator = 0;
  double value = 0;                       // numerator as a number
  int64_t slots = 0, unknown_labels = 0;  // scored slots; those whose label the draft vocabulary lacks (weight 0)
  std::vector<int64_t> slot_count, slot_correct;  // by slot, index k-1; an unknown label counts as wrong
  ScoredSlots scored;
};

// The objective after `epochs` (real) and at `part` (0..1) of the run: gamma grows as its keys say, by gamma_per_epoch
// at each whole epoch (AngelSlim) or evenly to gamma_end (arXiv 2606.02091).
ObjectiveSection objective_at(const ObjectiveSection& objective, double epochs, double part);

// Weight of slot k (1..B-1) under `decay`.
double decay_weight(int64_t slot, double gamma);
// D-PACE weights of slots ordered by block and slot, from their losses; known[i] 0: the label cannot be drafted (its q
// is 0 and its own weight 0).
std::vector<double> dpace_weights(const std::vector<int64_t>& block, const std::vector<double>& loss,
                                  const std::vector<uint8_t>& known, double alpha);

// The label of every position of a row, int64 [S] (target ids): the row's own tokens, or the teacher's arg max from its
// state at the position before. `last`: [S, H] after the final norm, needed by labels: teacher only; `head`: the
// target's, [V, H]. Throws Error when it is missing.
at::Tensor position_labels(const ObjectiveSection& objective, const at::Tensor& tokens, const at::Tensor& loss_mask,
                           const at::Tensor& last, const at::Tensor& head);

// Loss terms of the slots a drafter returned; labels: int64 [S] target ids per position; samples: how many rows they
// come from (normalize: samples).
ObjectiveTerms objective_terms(const ObjectiveSection& objective, const Drafter& drafter, const DraftSlots& slots,
                               const at::Tensor& labels, int64_t samples);

}  // namespace draftsmith
