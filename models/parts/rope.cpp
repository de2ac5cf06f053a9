#include "models/parts/rope.h"

#include <cmath>

#include "launch/check.h"
#include "models/parts/fp32_kernels.h"

namespace draftsmith {
namespace {

constexpr double kPi = 3.14159265358979323846;

// base^(-2j / head_dim), in fp32 steps as the references compute it.
std::vector<float> plain_frequencies(double theta, int64_t head_dim) {
  std::vector<float> result;
  for (int64_t j = 0; j < head_dim / 2; ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(head_dim);
    result.push_back(1.0f / static_cast<float>(std::pow(theta, static_cast<double>(exponent))));
  }
  return result;
}

// Llama 3: wavelengths beyond the original context are stretched by `factor`, short ones stay, a ramp between.
void scale_llama3(const RopeConfig& c, std::vector<float>& frequencies) {
  const double original = static_cast<double>(c.original_max_position_embeddings);
  for (float& frequency : frequencies) {
    const double wavelength = 2 * kPi / frequency;
    if (wavelength < original / c.high_freq_factor) continue;
    if (wavelength > original / c.low_freq_factor) {
      frequency = static_cast<float>(frequency / c.factor);
    } else {
      const double smooth = (original / wavelength - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor);
      frequency = static_cast<float>((1 - smooth) * frequency / c.factor + smooth * frequency);
    }
  }
}

// YaRN (arXiv 2309.00071): dimensions that turn more than beta_fast times over the original context stay, those below
// beta_slow are interpolated.
void scale_yarn(const RopeConfig& c, int64_t head_dim, std::vector<float>& frequencies) {
  const double original = static_cast<double>(c.original_max_position_embeddings);
  const auto dimension_of = [&](double turns) {
    return static_cast<double>(head_dim) * std::log(original / (turns * 2 * kPi)) / (2 * std::log(c.theta));
  };
  const double low = std::max(std::floor(dimension_of(c.beta_fast)), 0.0);
  double high = std::min(std::ceil(dimension_of(c.beta_slow)), static_cast<double>(head_dim - 1));
  if (low == high) high += 0.001;
  for (size_t j = 0; j < frequencies.size(); ++j) {
    const double ramp = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
    frequencies[j] = static_cast<float>(frequencies[j] / c.factor * ramp + frequencies[j] * (1 - ramp));
  }
}

void check_positions(const at::Tensor& positions, int64_t limit) {
  if (positions.numel() == 0) return;
  const auto [least, most] = positions.aminmax();
  const int64_t low = least.item<int64_t>(), high = most.item<int64_t>();
  DS_CHECK(low >= 0 && high < limit, "position {} is outside the model's {} positions; shorten the sequence",
           low < 0 ? low : high, limit);
}

// x [B, heads, S, D] with any strides; cos, sin [B or 1, S, D / 2] fp32 contiguous.
at::Tensor rotated(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, float sign) {
  const int64_t batch = x.size(0), heads = x.size(1), length = x.size(2), dim = x.size(3), half = dim / 2;
  if (!x.device().is_cpu() || x.scalar_type() != at::kFloat || x.stride(3) != 1) {
    const at::Tensor c = cos.unsqueeze(1).to(x.scalar_type()), s = (sin * sign).unsqueeze(1).to(x.scalar_type());
    const at::Tensor a = x.narrow(3, 0, half), b = x.narrow(3, half, half);
    return at::cat({a * c - b * s, b * c + a * s}, 3);
  }
  at::Tensor y = at::empty({batch, heads, length, dim}, x.options());
  const float* from = x.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  const float* c = cos.const_data_ptr<float>();
  const float* s = sin.const_data_ptr<float>();
  const bool shared = cos.size(0) == 1;
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(dim, 1));
  at::parallel_for(0, batch * heads * length, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t t = i % length, h = i / length % heads, b = i / length / heads;
      const int64_t angle = ((shared ? 0 : b) * length + t) * half;
      fp32_kernels().rotate(from + b * x.stride(0) + h * x.stride(1) + t * x.stride(2), to + i * dim, c + angle,
                            s + angle, dim, sign);
    }
  });
  return y;
}

struct Rotate : torch::autograd::Function<Rotate> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    context->save_for_backward({cos, sin});
    return rotated(x, cos, sin, 1.f);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    return {rotated(grads[0], saved[0], saved[1], -1.f), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

Rope::Rope(const RopeConfig& config, int64_t head_dim, int64_t max_positions, at::Device device) {
  DS_CHECK(head_dim > 0 && head_dim % 2 == 0, "rope: head_dim {} is not a positive even number", head_dim);
  DS_CHECK(config.theta > 0, "rope: the base is {}; config.json must state rope_theta", config.theta);
  DS_CHECK(max_positions > 0, "rope: a table of {} positions; config.json must state max_position_embeddings",
           max_positions);
  frequencies_ = plain_frequencies(config.theta, head_dim);
  if (config.type == "linear") {
    DS_CHECK(config.factor > 0, "rope: linear scaling with factor {}", config.factor);
    for (float& frequency : frequencies_) frequency = static_cast<float>(frequency / config.factor);
  } else if (config.type == "llama3" || config.type == "yarn") {
    DS_CHECK(config.factor > 0 && config.original_max_position_embeddings > 0,
             "rope: {} scaling needs factor and original_max_position_embeddings in config.json, found {} and {}",
             config.type, config.factor, config.original_max_position_embeddings);
    if (config.type == "llama3") {
      DS_CHECK(config.high_freq_factor > config.low_freq_factor,
               "rope: llama3 scaling with high_freq_factor {} not above low_freq_factor {}", config.high_freq_factor,
               config.low_freq_factor);
      scale_llama3(config, frequencies_);
    } else {
      scale_yarn(config, head_dim, frequencies_);
      const double standard = config.factor > 1 ? 0.1 * std::log(config.factor) + 1 : 1.0;
      amplitude_ = config.attention_factor > 0 ? config.attention_factor : standard;
    }
  } else {
    DS_CHECK(config.type == "default", "rope: scaling type \"{}\" is unknown; known: default, linear, llama3, yarn",
             config.type);
  }
  // fp32 products of position and frequency, as the references round them.
  const at::Tensor angles = at::outer(at::arange(max_positions, at::kFloat), at::tensor(frequencies_, at::kFloat));
  cos_ = angles.cos();
  sin_ = angles.sin();
  if (amplitude_ != 1) {
    cos_.mul_(amplitude_);
    sin_.mul_(amplitude_);
  }
  cos_ = cos_.to(device);
  sin_ = sin_.to(device);
}

at::Tensor Rope::rotate(const at::Tensor& x, const at::Tensor& positions) const {
  DS_CHECK(x.dim() == 4 && x.size(3) == 2 * cos_.size(1), "rope: x must be [B, heads, S, {}]", 2 * cos_.size(1));
  DS_CHECK((positions.dim() == 1 || (positions.dim() == 2 && positions.size(0) == x.size(0))) &&
               positions.size(-1) == x.size(2),
           "rope: positions must be [S] or [B, S] with S = {}", x.size(2));
  check_positions(positions, max_positions());
  const at::Tensor flat = positions.reshape({-1}).to(cos_.device());
  const std::vector<int64_t> shape{positions.dim() == 1 ? 1 : x.size(0), x.size(2), cos_.size(1)};
  const at::Tensor cos = cos_.index_select(0, flat).view(shape), sin = sin_.index_select(0, flat).view(shape);
  if (at::GradMode::is_enabled() && x.requires_grad()) return Rotate::apply(x, cos, sin);
  return rotated(x, cos, sin, 1.f);
}

void Rope::rotate_packed_(at::Tensor& x, const at::Tensor& positions) const {
  DS_CHECK(x.dim() == 3 && x.size(2) == 2 * cos_.size(1) && positions.numel() == x.size(0),
           "rope: packed x must be [N, heads, {}]", 2 * cos_.size(1));
  if (!x.device().is_cpu() || x.scalar_type() != at::kFloat) {
    // [N, heads, D] is [B = N, heads, S = 1, D].
    x.copy_(rotate(x.unsqueeze(2), positions.unsqueeze(1)).squeeze(2));
    return;
  }
  DS_CHECK(x.is_contiguous() && positions.is_contiguous(), "rope: packed tokens and positions must be contiguous");
  const int64_t tokens = x.size(0), heads = x.size(1), dim = x.size(2), half = dim / 2, limit = max_positions();
  const int64_t* at = positions.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < tokens; ++i) {
    DS_CHECK(at[i] >= 0 && at[i] < limit, "position {} is outside the model's {} positions; shorten the sequence",
             at[i], limit);
  }
  float* data = x.mutable_data_ptr<float>();
  const float* c = cos_.const_data_ptr<float>();
  const float* s = sin_.const_data_ptr<float>();
  at::parallel_for(0, tokens, std::max<int64_t>(1, 16384 / (heads * dim)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t h = 0; h < heads; ++h) {
        float* head = data + (i * heads + h) * dim;
        fp32_kernels().rotate(head, head, c + at[i] * half, s + at[i] * half, dim, 1.f);
      }
    }
  });
}

}  // namespace draftsmith
