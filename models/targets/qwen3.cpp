// Qwen3, dense (Qwen3ForCausalLM): as llama.cpp, with a norm over each query and key head before the rotation, and no
// bias in the feed-forward part. Formulas as in Transformers' modeling_qwen3.py.
#include "models/parts/attention.h"
#include "models/parts/linear.h"
#include "models/parts/mlp.h"
#include "models/parts/norm.h"
#include "models/parts/rope.h"
#include "models/targets/architectures.h"
#include "models/targets/packed_pass.h"

namespace draftsmith {
namespace {

// 1. one layer's weights
struct Layer {
  at::Tensor input_norm, post_norm;
  at::Tensor q, k, v, o;
  at::Tensor q_norm, k_norm;
  at::Tensor q_bias, k_bias, v_bias, o_bias;
  MlpWeights mlp;
};

Layer take_layer(const HfConfig& c, Weights& weights, int64_t index) {
  const std::string at = fmt::format("model.layers.{}.", index), attention = at + "self_attn.", mlp = at + "mlp.";
  const int64_t hidden = c.hidden_size, inner = c.intermediate_size, queries = c.num_attention_heads * c.head_dim,
                keys = c.num_key_value_heads * c.head_dim;
  Layer layer;
  layer.input_norm = weights.take(at + "input_layernorm.weight", {hidden});
  layer.q = weights.take(attention + "q_proj.weight", {queries, hidden});
  layer.k = weights.take(attention + "k_proj.weight", {keys, hidden});
  layer.v = weights.take(attention + "v_proj.weight", {keys, hidden});
  layer.o = weights.take(attention + "o_proj.weight", {hidden, queries});
  layer.q_bias = weights.take_if(c.attention_bias, attention + "q_proj.bias", {queries});
  layer.k_bias = weights.take_if(c.attention_bias, attention + "k_proj.bias", {keys});
  layer.v_bias = weights.take_if(c.attention_bias, attention + "v_proj.bias", {keys});
  layer.o_bias = weights.take_if(c.attention_bias, attention + "o_proj.bias", {hidden});
  layer.q_norm = weights.take(attention + "q_norm.weight", {c.head_dim});
  layer.k_norm = weights.take(attention + "k_norm.weight", {c.head_dim});
  layer.post_norm = weights.take(at + "post_attention_layernorm.weight", {hidden});
  layer.mlp.gate = weights.take(mlp + "gate_proj.weight", {inner, hidden});
  layer.mlp.up = weights.take(mlp + "up_proj.weight", {inner, hidden});
  layer.mlp.down = weights.take(mlp + "down_proj.weight", {hidden, inner});
  return layer;
}

class Qwen3 final : public Target {
 public:
  // 2. the model's weights
  Qwen3(const HfConfig& config, const TargetOptions& options, Weights& weights)
      : Target(config, options, weights),
        rope_(config.rope, config.head_dim, config.max_position_embeddings, options.device) {
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) layers_.push_back(take_layer(config, weights, i));
    norm_ = weights.take("model.norm.weight", {config.hidden_size});
  }

  // 3. the forward pass
  TargetOutput forward(const TargetInput& input, KvCache& cache) const override {
    const at::NoGradGuard no_grad;
    PackedPass pass(*this, input, cache);
    const CausalAttention attention(cache, pass.where(), config_.num_attention_heads);
    at::Tensor x = pass.embeddings();
    for (int64_t i = 0; i < pass.layers(); ++i) {
      const Layer& layer = layers_[static_cast<size_t>(i)];
      x.add_(attend(i, rms_norm(x, layer.input_norm, config_.rms_norm_eps), pass.where(), attention, cache));
      x.add_(mlp(rms_norm(x, layer.post_norm, config_.rms_norm_eps), layer.mlp));
      pass.keep(i, x);
    }
    return pass.finish(input.hidden ? rms_norm(x, norm_, config_.rms_norm_eps) : at::Tensor());
  }

 private:
  // 4. attention of one layer: x [N, H], normed -> [N, H]
  at::Tensor attend(int64_t index, const at::Tensor& x, const Placement& where, const CausalAttention& attention,
                    KvCache& cache) const {
    const Layer& layer = layers_[static_cast<size_t>(index)];
    const int64_t tokens = x.size(0), dim = config_.head_dim;
    at::Tensor q = linear(x, layer.q, layer.q_bias).view({tokens, config_.num_attention_heads, dim});
    at::Tensor k = linear(x, layer.k, layer.k_bias).view({tokens, config_.num_key_value_heads, dim});
    const at::Tensor v = linear(x, layer.v, layer.v_bias).view({tokens, config_.num_key_value_heads, dim});
    q = rms_norm(q, layer.q_norm, config_.rms_norm_eps);
    k = rms_norm(k, layer.k_norm, config_.rms_norm_eps);
    rope_.rotate_packed_(q, where.position);
    rope_.rotate_packed_(k, where.position);
    cache.write_packed(index, k, v, where);
    return linear(attention.run(index, q), layer.o, layer.o_bias);
  }

  Rope rope_;
  std::vector<Layer> layers_;
  at::Tensor norm_;
};

}  // namespace

std::unique_ptr<Target> make_qwen3(const HfConfig& config, const TargetOptions& options, Weights& weights) {
  return std::make_unique<Qwen3>(config, options, weights);
}

}  // namespace draftsmith
