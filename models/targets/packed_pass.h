// One forward pass over the valid tokens of a ragged batch: what every architecture does before, between and after its
// layers.
//
// The input is checked and packed to [N, H], so that padding costs nothing; taps are kept as the layers go by; results
// are unpacked to [B, S, ...].
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "models/targets/target.h"

namespace draftsmith {

class PackedPass {
 public:
  // Checks ids, counts, taps and room, and reserves the cache. Borrows all three. Throws Error as Target::forward does.
  PackedPass(const Target& target, const TargetInput& input, KvCache& cache);

  const Placement& where() const { return where_; }
  // Embeddings of the valid tokens, [N, H], own storage.
  at::Tensor embeddings() const;
  // Layers to run: all, or up to the last tap when the last hidden state is not wanted.
  int64_t layers() const { return layers_; }
  // Keeps the residual stream x [N, H] after `layer` if it is a wanted tap.
  void keep(int64_t layer, const at::Tensor& x);
  // Moves the cache on and returns the results; `hidden` is [N, H] after the final norm, or undefined.
  TargetOutput finish(const at::Tensor& hidden);

 private:
  const Target& target_;
  const TargetInput& input_;
  KvCache& cache_;
  std::vector<int64_t> counts_;
  Placement where_;
  at::Tensor slot_;    // int64 [N]: place of each token in the flat [B * S]; undefined when every place is valid
  at::Tensor tokens_;  // int64 [N]
  at::Tensor taps_;    // [B * S, T, H]
  int64_t layers_ = 0;
};

}  // namespace draftsmith
