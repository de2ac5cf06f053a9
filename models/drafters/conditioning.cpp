#include "models/drafters/conditioning.h"

#include <ATen/ATen.h>

#include <cmath>

#include "launch/check.h"
#include "models/parts/linear.h"
#include "models/parts/norm.h"

namespace draftsmith {

namespace {

// Rows of [C, 2 kv d]: keys, then values.
ContextProjections split(const at::Tensor& rows) {
  const auto halves = rows.chunk(2, 1);
  return {halves[0], halves[1]};
}

class FusedConditioning : public Conditioning {
 public:
  FusedConditioning(const DrafterConfig& config, ParameterSet& parameters, const std::vector<LayerProjections>& own)
      : eps_(config.rms_norm_eps), layers_(own) {
    const int64_t hidden = config.hidden_size, taps = static_cast<int64_t>(config.taps.size());
    fc_ = parameters.matrix("fc.weight", hidden, taps * hidden, config.initializer_range);
    norm_ = parameters.vector("hidden_norm.weight", hidden, 1.0);
  }

  // All layers' projections in one matrix: they read the same rows.
  std::vector<at::Tensor> prepare() const override {
    std::vector<at::Tensor> weights;
    for (const LayerProjections& layer : layers_) {
      weights.push_back(layer.k);
      weights.push_back(layer.v);
    }
    return {at::cat(weights)};
  }

  std::vector<ContextProjections> project(const at::Tensor& taps,
                                          const std::vector<at::Tensor>& prepared) const override {
    const int64_t count = taps.size(0);
    const at::Tensor fused = rms_norm(draftsmith::linear(taps.reshape({count, -1}), fc_), norm_, eps_);  // [C, H]
    std::vector<ContextProjections> result;
    for (const at::Tensor& layer :
         draftsmith::linear(fused, prepared[0]).chunk(static_cast<int64_t>(layers_.size()), 1))
      result.push_back(split(layer));
    return result;
  }

  NamedTensors scale_taps(const at::Tensor& scale) override {
    const at::Tensor columns = scale.to(fc_.options()).reshape({-1});
    fc_.div_(columns);
    return {{"fc.weight", columns}};
  }

 private:
  double eps_;
  const std::vector<LayerProjections>& layers_;
  at::Tensor fc_, norm_;  // [H, T H], [H]
};

class LayerwiseConditioning : public Conditioning {
 public:
  LayerwiseConditioning(const DrafterConfig& config, ParameterSet& parameters) : eps_(config.rms_norm_eps) {
    const int64_t hidden = config.hidden_size, taps = static_cast<int64_t>(config.taps.size());
    const int64_t width = config.num_key_value_heads * config.head_dim;
    fusion_ = parameters.values("layer_fusion_weights", fusion_start(config.fusion_init, config.layers, taps));
    norm_ = parameters.vector("hidden_norm.weight", hidden, 1.0);
    for (int64_t i = 0; i < config.layers; ++i) {
      const std::string at = fmt::format("layers.{}.self_attn.", i);
      const auto projection = [&](const char* name) {
        return parameters.matrix(at + name, width, hidden, config.initializer_range);
      };
      layers_.push_back({projection("k_proj_target.weight"), projection("v_proj_target.weight")});
    }
  }

  // The mixture [D, T], softmax in fp32, and each layer's two projections in one matrix.
  std::vector<at::Tensor> prepare() const override {
    std::vector<at::Tensor> prepared{at::softmax(fusion_.to(at::promoteTypes(fusion_.scalar_type(), at::kFloat)), -1)};
    for (const LayerProjections& layer : layers_) prepared.push_back(at::cat({layer.k, layer.v}));
    return prepared;
  }

  std::vector<ContextProjections> project(const at::Tensor& taps,
                                          const std::vector<at::Tensor>& prepared) const override {
    const int64_t count = taps.size(0), depth = taps.size(1), hidden = taps.size(2);
    const at::Tensor by_tap = taps.transpose(0, 1).reshape({depth, count * hidden});
    const at::Tensor mixed = at::matmul(prepared[0].to(taps.scalar_type()), by_tap).view({-1, count, hidden});
    const at::Tensor rows = rms_norm(mixed, norm_, eps_);  // [D, C, H]
    std::vector<ContextProjections> result;
    for (const at::Tensor& layer : batched_linear(rows, {prepared.begin() + 1, prepared.end()}))
      result.push_back(split(layer));
    return result;
  }

  std::vector<std::string> plain_parameters() const override { return {"layer_fusion_weights"}; }

  NamedTensors scale_taps(const at::Tensor&) override {
    DS_FAIL(
        "drafter.unit_taps: a layer-wise mixture has one weight a tap, so a scale for each channel has no place in it; "
        "take unit_taps: false");
  }

 private:
  double eps_;
  at::Tensor fusion_, norm_;  // [D, T], [H]
  std::vector<LayerProjections> layers_;
};

}  // namespace

std::unique_ptr<Conditioning> make_fused_conditioning(const DrafterConfig& config, ParameterSet& parameters,
                                                      const std::vector<LayerProjections>& own) {
  return std::make_unique<FusedConditioning>(config, parameters, own);
}

std::unique_ptr<Conditioning> make_layerwise_conditioning(const DrafterConfig& config, ParameterSet& parameters,
                                                          const std::vector<LayerProjections>&) {
  return std::make_unique<LayerwiseConditioning>(config, parameters);
}

at::Tensor fusion_start(const std::string& rule, int64_t layers, int64_t taps) {
  at::Tensor logits = at::zeros({layers, taps});
  for (int64_t d = 0; d < layers; ++d) {
    const double depth = static_cast<double>(d), count = static_cast<double>(layers);
    if (rule == "angelslim") {
      const auto peak = static_cast<int64_t>(depth / count * static_cast<double>(taps));
      logits[d][std::min(taps - 1, peak)] = 2.0;
    } else {
      DS_CHECK(rule == "angelspec", "drafter.fusion_init is `{}`; known: angelslim, angelspec", rule);
      const double exact = layers > 1 ? depth / (count - 1) * static_cast<double>(taps - 1) : 0.0;
      const double peak = std::nearbyint(exact);  // half to even, as Python's round
      for (int64_t t = 0; t < taps; ++t) logits[d][t] = -2.0 * std::abs(static_cast<double>(t) - peak);
    }
  }
  return logits;
}

}  // namespace draftsmith
