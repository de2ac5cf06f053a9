// Large fp32 products on a CPU, by the faster of two libraries.
//
// OpenBLAS serves one core; the split over cores is ours, on the threads that LibTorch uses anyway (at::parallel_for).
// OpenBLAS's own threads would be a second pool, and two pools of waiting threads take the cores from each other; its
// threads also wait for one another inside a product, which on a machine with other work costs most of the speed. ATen
// means LibTorch's MKL or oneDNN.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace draftsmith {

enum class ProductLibrary { kOpenBlas, kAten };

// c = a b, or c += a b where `add`. a: [m, k], b: [k, n], c: [m, n], fp32 on the CPU; a and b may be transposed views
// (anything else is copied), c's rows must be contiguous. The result's bits depend on the library, the sizes and
// at::get_num_threads(), on nothing else.
void library_product(const at::Tensor& a, const at::Tensor& b, at::Tensor& c, bool add);
void library_product(const at::Tensor& a, const at::Tensor& b, at::Tensor& c, bool add, ProductLibrary library);

// The library in use. Measured at the first question, about 20 ms; ATen must be clearly faster to be taken, so that
// noise on the machine does not change the choice, and with it the last bits of a training run, between two runs.
ProductLibrary product_library();
// From now on this one: a resumed run takes what it began with.
void use_product_library(ProductLibrary library);
// "OpenBLAS (194 GFLOP/s, ATen 178, 2 threads)"
std::string product_library_note();

}  // namespace draftsmith
