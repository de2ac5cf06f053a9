// y = x W^T + b: the one dense product of targets, drafters and heads.
//
// On a CPU in fp32 three back-ends serve it: a thin kernel for few rows (streams each weight row once), OpenBLAS, and
// ATen; the choice between the last two is measured once at start-up and told by linear_backend(). Everything else
// (other dtypes, CUDA) goes to ATen. Differentiable in x, weight and bias with the same back-ends in backward; a weight
// that needs no gradient costs none.
//
// Up to 32 rows (kThinRows) row i of the result is, bit for bit, what that row alone would give (thin_kernel.h).
// Write draftsmith::linear and draftsmith::matmul: an unqualified call with tensors finds at::linear and at::matmul
// too, and is ambiguous.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace draftsmith {

// x: [..., in], weight: [out, in], bias: [out] or undefined; same dtype and device. Returns [..., out].
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

// One product for each group: x [G, N, in] by weights of [out, in] -> G times [N, out]. On CUDA one batched product.
std::vector<at::Tensor> batched_linear(const at::Tensor& x, const std::vector<at::Tensor>& weights);

// a: [m, k], b: [k, n] (either may be a transposed view) -> [m, n] by the same back-ends; not differentiable. For the
// loss, which runs its own backward.
at::Tensor matmul(const at::Tensor& a, const at::Tensor& b);
// c += a b, c contiguous [m, n].
void matmul_add(const at::Tensor& a, const at::Tensor& b, at::Tensor& c);

// The library of the large products in use with the two measured rates; measures at the first call (library_product.h).
std::string linear_backend();

}  // namespace draftsmith
