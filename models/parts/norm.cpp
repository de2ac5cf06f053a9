#include "models/parts/norm.h"

#include "launch/check.h"
#include "models/parts/fp32_kernels.h"

namespace draftsmith {
namespace {

// Rows that one task takes, so that a task is worth handing to a thread.
int64_t rows_per_task(int64_t width) {
  return std::max<int64_t>(1, 32768 / std::max<int64_t>(width, 1));
}

bool has_kernel(const at::Tensor& x, const at::Tensor& weight) {
  return x.device().is_cpu() && x.scalar_type() == at::kFloat && weight.scalar_type() == at::kFloat;
}

at::ScalarType wide(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

struct Normed {
  at::Tensor y, rstd;  // rstd [..., 1], undefined when not asked for
};

// x and weight contiguous.
Normed forward(const at::Tensor& x, const at::Tensor& weight, double eps, bool keep_rstd) {
  if (!has_kernel(x, weight)) {
    const at::Tensor input = x.to(wide(x));
    const at::Tensor rstd = input.square().mean(-1, /*keepdim=*/true).add_(eps).rsqrt_();
    return {(input * rstd).to(x.scalar_type()).mul(weight), rstd};
  }
  const int64_t width = x.size(-1), rows = width ? x.numel() / width : 0;
  Normed result{at::empty_like(x), {}};
  if (keep_rstd) {
    auto shape = x.sizes().vec();
    shape.back() = 1;
    result.rstd = at::empty(shape, x.options());
  }
  const float* input = x.const_data_ptr<float>();
  const float* scale = weight.const_data_ptr<float>();
  float* y = result.y.mutable_data_ptr<float>();
  float* rstd = keep_rstd ? result.rstd.mutable_data_ptr<float>() : nullptr;
  at::parallel_for(0, rows, rows_per_task(width), [&](int64_t begin, int64_t end) {
    fp32_kernels().rms_norm(input + begin * width, scale, y + begin * width, rstd ? rstd + begin : nullptr, end - begin,
                            width, static_cast<float>(eps));
  });
  return result;
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            double eps) {
    const at::Tensor dense = x.contiguous(), scale = weight.contiguous();
    Normed normed = draftsmith::forward(dense, scale, eps, true);
    context->save_for_backward({dense, scale, normed.rstd});
    return normed.y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &rstd = saved[2];
    const bool need_x = context->needs_input_grad(0), need_weight = context->needs_input_grad(1);
    const at::Tensor g = grads[0].contiguous();
    at::Tensor dx, dw;
    if (has_kernel(x, weight)) {
      const int64_t width = x.size(-1), rows = width ? x.numel() / width : 0;
      // A fixed number of partial sums of dw: the same bits with any number of threads.
      const int64_t parts = std::min<int64_t>(16, std::max<int64_t>(1, rows / 8));
      if (need_x) dx = at::empty_like(x);
      if (need_weight) dw = at::zeros({parts, width}, x.options());
      const float* upstream = g.const_data_ptr<float>();
      const float* input = x.const_data_ptr<float>();
      const float* scale = weight.const_data_ptr<float>();
      const float* inverse = rstd.const_data_ptr<float>();
      float* to_x = need_x ? dx.mutable_data_ptr<float>() : nullptr;
      float* to_w = need_weight ? dw.mutable_data_ptr<float>() : nullptr;
      at::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
        for (int64_t part = begin; part < end; ++part) {
          const int64_t first = rows * part / parts, count = rows * (part + 1) / parts - first;
          fp32_kernels().rms_norm_backward(upstream + first * width, input + first * width, scale, inverse + first,
                                           to_x ? to_x + first * width : nullptr, to_w ? to_w + part * width : nullptr,
                                           count, width);
        }
      });
      if (need_weight) dw = dw.sum(0);
    } else {
      const at::Tensor input = x.to(wide(x)), upstream = g.to(wide(x));
      const at::Tensor unit = input * rstd;
      if (need_weight) dw = (upstream * unit).flatten(0, -2).sum(0).to(weight.scalar_type());
      if (need_x) {
        const at::Tensor scaled = upstream * weight;
        dx = ((scaled - unit * (scaled * unit).mean(-1, true)) * rstd).to(x.scalar_type());
      }
    }
    return {dx, dw, at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  DS_CHECK(weight.dim() == 1 && x.dim() >= 1 && x.size(-1) == weight.size(0),
           "rms_norm: the last dimension of x is {}, the weight has {} elements", x.dim() ? x.size(-1) : 0,
           weight.numel());
  if (at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad()))
    return RmsNorm::apply(x, weight, eps);
  return forward(x.contiguous(), weight.contiguous(), eps, false).y;
}

}  // namespace draftsmith
