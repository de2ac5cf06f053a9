// RMSNorm as Transformers computes it: y = weight * cast(x * rsqrt(mean(x^2) + eps)), the bracket in fp32 (fp64 for
// fp64 inputs) and cast to the input's dtype before the weight.
#pragma once

#include <ATen/core/Tensor.h>

namespace draftsmith {

// x: [..., H], weight: [H], same dtype and device. Returns [..., H]. Differentiable in x and weight; one pass each way
// for fp32 on a CPU, where a row's result does not depend on the other rows.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

}  // namespace draftsmith
