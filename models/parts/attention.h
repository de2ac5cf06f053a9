// Causal attention of new tokens over a cache, for ragged batches and grouped heads.
//
// Made once per forward pass, used by every layer. Query i of row r sees the row's first past[r] + i + 1 tokens, so the
// new keys and values must be written before (KvCache::write_packed). On a CPU in fp32 the own kernel serves every
// length: with AVX-512 it does 45 to 65 GFLOP/s a core where ATen's fused attention does 16 to 60 (they meet at 2,000
// queries); it needs no mask and no padding, and its result for a query does not depend on what runs beside it. Other
// dtypes and devices are padded and masked for ATen. No gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/parts/kv_cache.h"

namespace draftsmith {

class CausalAttention {
 public:
  // Borrows cache and where. Scores are scaled by head_dim^-0.5.
  CausalAttention(const KvCache& cache, const Placement& where, int64_t heads);

  // q: [N, heads, head_dim], contiguous, rotated. Returns [N, heads * head_dim].
  at::Tensor run(int64_t layer, const at::Tensor& q) const;

 private:
  void by_kernel(int64_t layer, const at::Tensor& q, at::Tensor& out) const;
  at::Tensor padded(int64_t layer, const at::Tensor& q) const;

  const KvCache& cache_;
  const Placement& where_;
  int64_t heads_, longest_new_ = 0, visible_ = 0;
  double scale_;
  at::Tensor slot_;  // padded form: int64 [N], r * longest_new + i; undefined when every row has longest_new tokens
  at::Tensor mask_;  // padded form: bool [B, 1, longest_new, visible], true = sees; undefined when everything is seen
                     // or plain causal
  bool plain_causal_ = false;
};

}  // namespace draftsmith
