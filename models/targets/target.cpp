#include "models/targets/target.h"

#include <fmt/ranges.h>

#include "launch/check.h"
#include "models/parts/linear.h"
#include "models/targets/architectures.h"

namespace draftsmith {
namespace {

struct Architecture {
  const char* name;
  std::unique_ptr<Target> (*make)(const HfConfig&, const TargetOptions&, Weights&);
};

constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", make_llama},
    {"Qwen3ForCausalLM", make_qwen3},
};

}  // namespace

Target::Target(const HfConfig& config, const TargetOptions& options, Weights& weights)
    : config_(config), options_(options), folder_(weights.folder()) {
  const std::string activation = config.raw.value("hidden_act", "silu");
  DS_CHECK(activation == "silu", "{}/config.json: hidden_act is \"{}\"; {} is computed with silu only", folder_,
           activation, config.architecture);
  const std::vector<int64_t> shape{config.vocab_size, config.hidden_size};
  embedding_ = weights.take("model.embed_tokens.weight", shape);
  const bool stored = weights.has("lm_head.weight");
  if (!config.tie_word_embeddings) {
    DS_CHECK(stored,
             "{}: config.json says tie_word_embeddings is false, but lm_head.weight is absent; set tie_word_embeddings "
             "to true in config.json if the model is tied, "
             "else fetch the complete checkpoint",
             folder_);
    head_ = weights.take("lm_head.weight", shape);
    return;
  }
  if (stored) {
    DS_CHECK(at::equal(weights.take("lm_head.weight", shape), embedding_),
             "{}: config.json says tie_word_embeddings is true, but lm_head.weight differs from "
             "model.embed_tokens.weight; set tie_word_embeddings to false in config.json "
             "if the head is its own",
             folder_);
  }
  head_ = embedding_;
}

at::Tensor Target::embed(const at::Tensor& ids) const {
  const at::NoGradGuard no_grad;
  if (ids.numel() > 0) {
    const auto [least, most] = ids.aminmax();
    const int64_t low = least.item<int64_t>(), high = most.item<int64_t>();
    DS_CHECK(low >= 0 && high < config_.vocab_size,
             "target: token id {} is outside the embedding's {} rows; the tokenizer and the weights belong to "
             "different models",
             low < 0 ? low : high, config_.vocab_size);
  }
  return at::embedding(embedding_, ids.to(options_.device));
}

at::Tensor Target::logits(const at::Tensor& hidden) const {
  const at::NoGradGuard no_grad;
  return draftsmith::linear(hidden, head_).to(at::kFloat);
}

KvCache Target::make_cache(int64_t rows, int64_t capacity) const {
  KvCacheOptions cache;
  cache.layers = config_.num_hidden_layers;
  cache.rows = rows;
  cache.kv_heads = config_.num_key_value_heads;
  cache.head_dim = config_.head_dim;
  cache.capacity = capacity;
  cache.limit = config_.max_position_embeddings;
  cache.dtype = options_.dtype;
  cache.device = options_.device;
  return KvCache(cache);
}

const std::string& Target::weight_hash() const {
  if (weight_hash_.empty()) weight_hash_ = WeightFolder::open(folder_).weight_hash();
  return weight_hash_;
}

std::unique_ptr<Target> load_target(const std::string& folder, const TargetOptions& options) {
  const at::NoGradGuard no_grad;
  const HfConfig config = read_hf_config(folder);
  std::vector<std::string> known;
  for (const Architecture& architecture : kArchitectures) {
    if (config.architecture != architecture.name) {
      known.emplace_back(architecture.name);
      continue;
    }
    Weights weights(folder, options.dtype, options.device);
    std::unique_ptr<Target> target = architecture.make(config, options, weights);
    weights.finish();
    return target;
  }
  DS_FAIL("{}/config.json: architecture {} is not one of {}", folder, config.architecture, fmt::join(known, ", "));
}

TargetInput right_pad(const at::Tensor& tokens, const at::Tensor& mask) {
  DS_CHECK(tokens.dim() == 2 && mask.sizes() == tokens.sizes(), "right_pad: tokens and mask must both be [B, S]");
  const at::Tensor ids = tokens.to(at::kCPU, at::kLong).contiguous(), valid = mask.to(at::kCPU, at::kLong).contiguous();
  const int64_t rows = tokens.size(0), length = tokens.size(1);
  TargetInput input;
  input.tokens = at::zeros({rows, length}, at::kLong);
  const int64_t* from = ids.const_data_ptr<int64_t>();
  const int64_t* keep = valid.const_data_ptr<int64_t>();
  int64_t* to = input.tokens.mutable_data_ptr<int64_t>();
  for (int64_t r = 0; r < rows; ++r, from += length, keep += length, to += length) {
    int64_t first = 0;
    while (first < length && !keep[first]) ++first;
    int64_t end = first;
    while (end < length && keep[end]) ++end;
    DS_CHECK(end > first, "right_pad: row {} has no valid token", r);
    for (int64_t i = end; i < length; ++i) DS_CHECK(!keep[i], "right_pad: the mask of row {} has a hole at {}", r, end);
    std::copy(from + first, from + end, to);
    input.counts.push_back(end - first);
  }
  return input;
}

}  // namespace draftsmith
