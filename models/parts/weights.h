// The weights of a model, taken one by one by name: every tensor of the folder is used or named in an error.
//
// A tensor whose dtype on disk is the compute dtype stays mapped; another is converted once. Each is checked for shape
// and for values that are not finite.
#pragma once

#include <ATen/core/Tensor.h>

#include <set>
#include <string>
#include <vector>

#include "data/safetensors.h"

namespace draftsmith {

class Weights {
 public:
  // Opens an HF folder. Throws Error as WeightFolder::open does.
  Weights(const std::string& folder, at::ScalarType dtype, at::Device device);

  bool has(const std::string& name) const { return files_.has(name); }
  // The tensor in the compute dtype on the device. Throws Error when it is missing (the nearest name is told), has
  // another shape (both are told), is not a floating-point tensor, or holds a value that is not finite (its index is
  // told).
  at::Tensor take(const std::string& name, const std::vector<int64_t>& shape);
  // The same for a tensor that exists only when `wanted`; undefined otherwise.
  at::Tensor take_if(bool wanted, const std::string& name, const std::vector<int64_t>& shape);
  // Throws Error naming the tensors of the folder that nobody took: the model would not be the one on disk. Rotary
  // tables (`*.rotary_emb.inv_freq`) of old checkpoints are excepted: they follow from config.json.
  void finish() const;
  const std::string& folder() const { return files_.folder(); }

 private:
  WeightFolder files_;
  at::ScalarType dtype_;
  at::Device device_;
  std::set<std::string> taken_;
};

// Index of the first value that is not finite in a dense CPU tensor of fp16, bf16, fp32 or fp64; -1 when all are. One
// pass over the bytes.
int64_t first_not_finite(const at::Tensor& tensor);

}  // namespace draftsmith
