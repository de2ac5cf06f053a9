// How far drafted blocks agree with the row they were drawn from, and what that is worth: tau by teacher forcing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace draftsmith {

// Scored slots of some blocks, ordered by block, then slot.
struct ScoredSlots {
  std::vector<int64_t> block, slot;  // slot 1..B-1
  std::vector<uint8_t> correct;      // the drafter's token is the label
};

// Leading correct slots of each of `blocks` blocks: slot 1, 2, ... up to the first that is wrong or not scored.
std::vector<int64_t> accepted_lengths(const ScoredSlots& slots, int64_t blocks);

struct Rounds {
  int64_t rounds = 0, tokens = 0;  // tau = tokens / rounds
};

// Walks a row as decoding would: from the first token of each supervised stretch, a round commits the accepted tokens
// and one more, up to the stretch's end. `accepted` belongs to the anchors `positions` (every position whose own and
// next token are supervised). loss_mask: uint8 [S].
Rounds simulate_rounds(const at::Tensor& loss_mask, const std::vector<int64_t>& positions,
                       const std::vector<int64_t>& accepted);

}  // namespace draftsmith
