#include "models/parts/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "launch/check.h"
#include "models/parts/library_product.h"
#include "models/parts/thin_kernel.h"

namespace draftsmith {
namespace {

bool ours(const at::Tensor& t) {
  return t.device().is_cpu() && t.scalar_type() == at::kFloat;
}

std::string shape(const at::Tensor& t) {
  std::string text = "[";
  for (const int64_t size : t.sizes()) text += fmt::format("{}{}", text.size() > 1 ? ", " : "", size);
  return text + "]";
}

// Rows of `t` contiguous, at any distance from one another.
bool row_major(const at::Tensor& t) {
  return (t.stride(1) == 1 || t.size(1) == 1) && (t.size(0) <= 1 || t.stride(0) >= t.size(1));
}

// y = x w^T + bias for matrices; y: contiguous [m, n].
void forward_product(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, at::Tensor& y) {
  const int64_t m = x.size(0), n = w.size(0), k = w.size(1);
  if (m <= kThinRows && row_major(w)) {
    const at::Tensor rows = row_major(x) ? x : x.contiguous();
    const at::Tensor b = bias.defined() ? bias.contiguous() : bias;
    thin_product({.x = rows.data_ptr<float>(),
                  .ldx = rows.stride(0),
                  .w = w.data_ptr<float>(),
                  .ldw = w.stride(0),
                  .bias = b.defined() ? b.data_ptr<float>() : nullptr,
                  .y = y.data_ptr<float>(),
                  .ldy = n,
                  .m = m,
                  .n = n,
                  .k = k});
    return;
  }
  if (bias.defined()) y.copy_(bias.expand({m, n}));
  library_product(x, w.t(), y, bias.defined());
}

at::Tensor forward(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  auto sizes = x.sizes().vec();
  sizes.back() = w.size(0);
  at::Tensor y = at::empty(sizes, x.options());
  if (x.dim() == 2) {
    forward_product(x, w, bias, y);
  } else {
    at::Tensor rows = y.view({-1, w.size(0)});
    forward_product(x.reshape({-1, w.size(1)}), w, bias, rows);
  }
  return y;
}

// The products run on plain memory, so a gradient of the gradient would be silently missing: it is refused.
struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w,
                            const std::optional<at::Tensor>& bias) {
    // Only what backward reads: x for the weight's gradient, the weight for x's.
    ctx->save_for_backward({w.requires_grad() ? x : at::Tensor(), x.requires_grad() ? w : at::Tensor()});
    ctx->saved_data["sizes"] = x.sizes().vec();
    ctx->saved_data["bias"] = bias && bias->requires_grad();
    at::AutoDispatchBelowADInplaceOrView below;
    return draftsmith::forward(x, w, bias.value_or(at::Tensor()));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    DS_CHECK(!at::GradMode::is_enabled(),
             "linear: no gradient of a gradient in fp32 on the CPU; use fp64 for such a check");
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& w = saved[1];
    const at::Tensor& grad = grads[0];
    if (!grad.defined()) return {at::Tensor(), at::Tensor(), at::Tensor()};
    const at::Tensor dy = grad.reshape({-1, grad.size(-1)});
    at::Tensor dx, dw, dbias;
    if (w.defined()) {
      dx = at::empty(ctx->saved_data["sizes"].toIntVector(), dy.options());
      at::Tensor rows = dx.view({-1, w.size(1)});
      library_product(dy, w, rows, false);
    }
    if (x.defined()) {
      const at::Tensor rows = x.reshape({-1, x.size(-1)});
      dw = at::empty({dy.size(1), rows.size(1)}, dy.options());
      library_product(dy.t(), rows, dw, false);
    }
    if (ctx->saved_data["bias"].toBool()) dbias = dy.sum(0);
    return {dx, dw, dbias};
  }
};

void check_product(const char* name, const at::Tensor& a, const at::Tensor& b) {
  DS_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0), "{}: {} by {}: the inner sizes differ", name,
           shape(a), shape(b));
  DS_CHECK(a.scalar_type() == b.scalar_type() && a.device() == b.device(), "{}: operands of different dtype or device",
           name);
}

void product_into(const at::Tensor& a, const at::Tensor& b, at::Tensor& c, bool add) {
  // A transposed weight and few rows is what the thin product is for.
  if (!add && a.size(0) <= kThinRows && row_major(b.t())) {
    forward_product(a, b.t(), {}, c);
  } else {
    library_product(a, b, c, add);
  }
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  DS_CHECK(weight.dim() == 2, "linear: the weight is {}, expected [out, in]", shape(weight));
  DS_CHECK(x.dim() >= 1 && x.size(-1) == weight.size(1),
           "linear: the input is {}, the weight {} takes {} in its last dimension", shape(x), shape(weight),
           weight.size(1));
  DS_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.size(0)),
           "linear: the bias is {}, the weight {}", shape(bias), shape(weight));
  const std::optional<at::Tensor> given = bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt;
  if (!ours(x) || !ours(weight)) return at::linear(x, weight, given);
  DS_CHECK(!given || ours(bias), "linear: input and weight are fp32 on the CPU, the bias is not");
  const bool differentiate =
      at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad() || (given && bias.requires_grad()));
  return differentiate ? LinearFunction::apply(x, weight, given) : forward(x, weight, bias);
}

std::vector<at::Tensor> batched_linear(const at::Tensor& x, const std::vector<at::Tensor>& weights) {
  DS_CHECK(x.dim() == 3 && x.size(0) == static_cast<int64_t>(weights.size()),
           "batched_linear: the input is {}, there are {} weights", shape(x), weights.size());
  if (x.is_cuda()) return at::bmm(x, at::stack(weights).transpose(1, 2)).unbind(0);
  std::vector<at::Tensor> results;
  for (size_t group = 0; group < weights.size(); ++group)
    results.push_back(draftsmith::linear(x[static_cast<int64_t>(group)], weights[group]));
  return results;
}

at::Tensor matmul(const at::Tensor& a, const at::Tensor& b) {
  check_product("matmul", a, b);
  at::NoGradGuard no_grad;
  if (!ours(a)) return at::mm(a, b);
  at::Tensor c = at::empty({a.size(0), b.size(1)}, a.options());
  product_into(a, b, c, false);
  return c;
}

void matmul_add(const at::Tensor& a, const at::Tensor& b, at::Tensor& c) {
  check_product("matmul_add", a, b);
  DS_CHECK(c.dim() == 2 && c.size(0) == a.size(0) && c.size(1) == b.size(1), "matmul_add: {} by {} does not add to {}",
           shape(a), shape(b), shape(c));
  at::NoGradGuard no_grad;
  if (!ours(a) || !ours(c)) {
    c.addmm_(a, b);
    return;
  }
  DS_CHECK(c.is_contiguous(), "matmul_add: the sum must be contiguous");
  product_into(a, b, c, true);
}

std::string linear_backend() {
  return product_library_note();
}

}  // namespace draftsmith
