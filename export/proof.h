// The proof that an exported folder is the drafter that was trained: both are run on the same features.
#pragma once

#include "export/zlab.h"
#include "models/drafters/drafter.h"

namespace draftsmith {

// What a format does to the numbers.
struct Rounding {
  FloatType type = FloatType::kFloat32;
  bool keeps_vectors = false;  // one-dimensional tensors stay fp32
};

struct ExportProof {
  int64_t slots = 0;      // logits compared, all bit-equal
  int64_t proposals = 0;  // proposed tokens compared, all equal
  // Share of proposed tokens that the drafter before rounding would have proposed too; 1 when nothing was rounded.
  double unrounded_agreement = 1;
};

// Throws Error naming the first tensor of `drafter` that is not finite, or that rounding makes so.
void check_finite(const Drafter& drafter, const Rounding& rounding);

// Runs `trained`, rounded as the format rounds, and `read` on features drawn from a fixed seed: the logits of every
// slot of a training pass and the chains that decoding proposes must be equal. Throws Error with the first difference,
// and for a drafter whose weights or logits are not finite (the tensor is named; for logits the largest one).
ExportProof prove_export(const Drafter& trained, const Drafter& read, const Rounding& rounding, const HfConfig& target,
                         const TargetEnds& ends);

}  // namespace draftsmith
