// The trainable tensors of a drafter, as its parts register them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "data/safetensors.h"

namespace draftsmith {

class ParameterSet {
 public:
  // Tensors are made with `options` (dtype, device; on the meta device they have shapes and no values). Each matrix is
  // drawn on the CPU from a stream of its own, derived from `seed` and its name, so that its start depends on neither
  // device nor order.
  ParameterSet(const at::TensorOptions& options, uint64_t seed) : options_(options), seed_(seed) {}

  // [rows, columns], normal with this standard deviation.
  at::Tensor matrix(const std::string& name, int64_t rows, int64_t columns, double deviation);
  // [size], all `value`.
  at::Tensor vector(const std::string& name, int64_t size, double value);
  // Given values of any shape.
  at::Tensor values(const std::string& name, const at::Tensor& start);

  const NamedTensors& named() const { return named_; }

 private:
  at::TensorOptions options_;
  uint64_t seed_;
  NamedTensors named_;
};

}  // namespace draftsmith
