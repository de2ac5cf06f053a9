#include "models/parts/linear.h"

#include "launch/check.h"

namespace draftsmith {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  DS_CHECK(weight.dim() == 2, "linear: the weight has {} dimensions, 2 are expected ([out, in])", weight.dim());
  DS_CHECK(x.dim() >= 1 && x.size(-1) == weight.size(1), "linear: the input's last dimension is {}, the weight [{}, {}] takes {}",
           x.dim() ? x.size(-1) : 0, weight.size(0), weight.size(1), weight.size(1));
  return at::linear(x, weight, bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt);
}

at::Tensor matmul(const at::Tensor& a, const at::Tensor& b) {
  DS_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0), "matmul: {} dimensions by {}, inner sizes differ", a.dim(), b.dim());
  at::NoGradGuard no_grad;
  return at::mm(a, b);
}

void matmul_add(const at::Tensor& a, const at::Tensor& b, at::Tensor& c) {
  DS_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0), "matmul_add: {} dimensions by {}, inner sizes differ", a.dim(), b.dim());
  at::NoGradGuard no_grad;
  c.addmm_(a, b);
}

std::string linear_backend() { return "ATen"; }

}  // namespace draftsmith
