#include "models/parts/mlp.h"

#include "launch/check.h"
#include "models/parts/fp32_kernels.h"
#include "models/parts/linear.h"

namespace draftsmith {
namespace {

constexpr int64_t kElementsPerTask = 16384;

bool has_kernel(const at::Tensor& gate, const at::Tensor& up) {
  return gate.device().is_cpu() && gate.scalar_type() == at::kFloat && up.scalar_type() == at::kFloat;
}

void kernel_forward(const at::Tensor& gate, const at::Tensor& up, at::Tensor& y) {
  const float* g = gate.const_data_ptr<float>();
  const float* u = up.const_data_ptr<float>();
  float* out = y.mutable_data_ptr<float>();
  at::parallel_for(0, gate.numel(), kElementsPerTask, [&](int64_t begin, int64_t end) {
    fp32_kernels().swiglu(g + begin, u + begin, out + begin, end - begin);
  });
}

struct SwiGlu : torch::autograd::Function<SwiGlu> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    const at::Tensor g = gate.contiguous(), u = up.contiguous();
    context->save_for_backward({g, u});
    if (!has_kernel(g, u)) return at::silu(g).mul_(u);
    at::Tensor y = at::empty_like(g);
    kernel_forward(g, u, y);
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &gate = saved[0], &up = saved[1];
    const at::Tensor g = grads[0].contiguous();
    if (!has_kernel(gate, up)) return {at::silu_backward(g * up, gate), at::silu(gate).mul_(g)};
    at::Tensor d_gate = at::empty_like(gate), d_up = at::empty_like(up);
    const float* upstream = g.const_data_ptr<float>();
    const float* x = gate.const_data_ptr<float>();
    const float* u = up.const_data_ptr<float>();
    float* to_gate = d_gate.mutable_data_ptr<float>();
    float* to_up = d_up.mutable_data_ptr<float>();
    at::parallel_for(0, gate.numel(), kElementsPerTask, [&](int64_t begin, int64_t end) {
      fp32_kernels().swiglu_backward(upstream + begin, x + begin, u + begin, to_gate + begin, to_up + begin,
                                     end - begin);
    });
    return {d_gate, d_up};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  DS_CHECK(gate.sizes() == up.sizes(), "swiglu: gate and up differ in shape ({} and {} elements)", gate.numel(),
           up.numel());
  if (at::GradMode::is_enabled() && (gate.requires_grad() || up.requires_grad())) return SwiGlu::apply(gate, up);
  if (!has_kernel(gate, up)) return at::silu(gate).mul_(up);
  at::Tensor y = gate.contiguous();
  kernel_forward(y, up.contiguous(), y);
  return y;
}

at::Tensor mlp(const at::Tensor& x, const MlpWeights& weights) {
  const at::Tensor gate = linear(x, weights.gate, weights.gate_bias);
  const at::Tensor up = linear(x, weights.up, weights.up_bias);
  return linear(swiglu(gate, up), weights.down, weights.down_bias);
}

}  // namespace draftsmith
