#include "train/acceptance.h"

#include <map>

#include "launch/check.h"

namespace draftsmith {

std::vector<int64_t> accepted_lengths(const ScoredSlots& slots, int64_t blocks) {
  std::vector<int64_t> accepted(static_cast<size_t>(blocks), 0);
  for (size_t i = 0; i < slots.block.size(); ++i) {
    int64_t& length = accepted[static_cast<size_t>(slots.block[i])];
    if (slots.correct[i] && slots.slot[i] == length + 1) ++length;
  }
  return accepted;
}

Rounds simulate_rounds(const at::Tensor& loss_mask, const std::vector<int64_t>& positions,
                       const std::vector<int64_t>& accepted) {
  std::map<int64_t, int64_t> at;
  for (size_t i = 0; i < positions.size(); ++i) at[positions[i]] = accepted[i];
  const at::Tensor mask = loss_mask.to(at::kCPU).contiguous();
  const uint8_t* supervised = mask.const_data_ptr<uint8_t>();
  const int64_t length = mask.numel();
  Rounds result;
  for (int64_t begin = 0; begin < length; ++begin) {
    if (!supervised[begin]) continue;
    int64_t last = begin;
    while (last + 1 < length && supervised[last + 1]) ++last;
    for (int64_t anchor = begin; anchor < last;) {
      const auto found = at.find(anchor);
      DS_CHECK(found != at.end(), "simulated decoding: no block was drafted at position {}", anchor);
      const int64_t committed = std::min(found->second + 1, last - anchor);
      result.tokens += committed;
      result.rounds += 1;
      anchor += committed;
    }
    begin = last;
  }
  return result;
}

}  // namespace draftsmith
