// Rotary position embedding.
//
// One table per model, built once in fp32 and shared by all layers; rotate() works in the activation's dtype. Layout is
// half-split ("NeoX"): dimension j pairs with j + head_dim / 2. The base has no default: a model that states none is
// refused when its config is read (configs/hf_config.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "configs/hf_config.h"

namespace draftsmith {

class Rope {
 public:
  // Table of `max_positions` rows. Scaling: default, linear, llama3, yarn (formulas as in Transformers'
  // modeling_rope_utils.py). Throws Error for another type, an odd head_dim, or a scaling whose numbers are missing.
  Rope(const RopeConfig& config, int64_t head_dim, int64_t max_positions, at::Device device);

  // x: [B, heads, S, head_dim] (any strides), positions: int64 [B, S] or [S]. Returns x rotated, same dtype,
  // contiguous. Differentiable in x. Throws Error when a position is outside the table: a wrong answer here shows only
  // as a lower acceptance.
  at::Tensor rotate(const at::Tensor& x, const at::Tensor& positions) const;

  // Packed tokens: x [N, heads, head_dim], contiguous, rotated in place; positions int64 [N] on the CPU for a CPU
  // table. No gradients, positions as in rotate().
  void rotate_packed_(at::Tensor& x, const at::Tensor& positions) const;

  int64_t max_positions() const { return cos_.size(0); }
  // Frequencies after scaling, fp32 [head_dim / 2] on the CPU, and the factor on cos and sin (1 but for yarn).
  const std::vector<float>& frequencies() const { return frequencies_; }
  double amplitude() const { return amplitude_; }

 private:
  std::vector<float> frequencies_;
  double amplitude_ = 1;
  at::Tensor cos_, sin_;  // [max_positions, head_dim / 2], fp32
};

}  // namespace draftsmith
