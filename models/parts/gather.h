// Picking some rows of a matrix, each at most once.
#pragma once

#include <ATen/core/Tensor.h>

namespace draftsmith {

// x: [N, ...], rows: int64 [M] without repetition, on x's device. Returns x[rows], [M, ...]. Differentiable; because no
// row repeats, backward is a copy, not a sum.
at::Tensor gather_rows(const at::Tensor& x, const at::Tensor& rows);

}  // namespace draftsmith
