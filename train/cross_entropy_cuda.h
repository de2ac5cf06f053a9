// The CUDA kernel of the cross entropy, from the module libdraftsmith_cuda.so beside the program.
#pragma once

#include <ATen/core/Tensor.h>

namespace draftsmith {

// True when the module is beside the program and loads: it is built unless DRAFTSMITH_CUDA=OFF. Without it CUDA tensors
// go through ATen's operations, with the same results.
bool has_cross_entropy_cuda();

// One piece: logits fp32 [m, V] on a GPU become softmax - one-hot(label) (zero rows where the label is -1); loss fp32
// [m] and predicted int64 [m] are filled. Runs on the current stream.
void cross_entropy_cuda(at::Tensor& logits, const at::Tensor& labels, at::Tensor& loss, at::Tensor& predicted);

}  // namespace draftsmith
