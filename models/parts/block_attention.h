// Attention of blocks: every query row sees the context before its block's anchor and the keys of its own block,
// nothing else.
//
// The mask is never built. Anchors ascend, so queries are processed in tiles of whole blocks; a tile multiplies with
// the context up to its last block's end only, and a row's softmax runs over its own prefix of the context and its own
// block. So work follows what the mask shows, and no more than one tile of scores exists per thread. Mask rule:
// shared/research/dflash.md 2.5 (full layers: both directions inside a block).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace draftsmith {

// Who sees what, for A blocks. Context rows of several packed samples lie behind each other; a block sees
// [context_begin, context_end) of them.
struct BlockView {
  int64_t slots = 0;                   // keys of a block, B
  std::vector<int64_t> context_begin;  // [A], ascending: first context row of the block's sample
  std::vector<int64_t> context_end;    // [A], ascending within a sample: the anchor's row, which the block does not see
  std::vector<int64_t> row_begin;      // [A + 1]: query rows of block a are row_begin[a] .. row_begin[a+1]-1

  int64_t blocks() const { return static_cast<int64_t>(context_end.size()); }
};

// q: [R, heads, d]; block keys and values: [A*B, kv_heads, d]; context keys and values: [C, kv_heads, d] (C may be 0);
// scale d^-0.5; heads is a multiple of kv_heads (query head h reads kv head h / (heads/kv_heads)). Returns [R, heads,
// d]. Differentiable in all five tensors. CPU fp32 and fp64: own tiles, scores recomputed in backward; other dtypes and
// CUDA: scaled_dot_product_attention per tile. Bit-identical from run to run with the same number of threads.
at::Tensor block_attention(const at::Tensor& q, const at::Tensor& block_keys, const at::Tensor& block_values,
                           const at::Tensor& context_keys, const at::Tensor& context_values, const BlockView& view);

// The same by ATen operations on any device (what CUDA uses).
at::Tensor block_attention_by_operations(const at::Tensor& q, const at::Tensor& block_keys,
                                         const at::Tensor& block_values, const at::Tensor& context_keys,
                                         const at::Tensor& context_values, const BlockView& view);

}  // namespace draftsmith
