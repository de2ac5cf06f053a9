#include "configs/drafter_config.h"

#include <cmath>
#include <set>

#include "launch/check.h"

namespace draftsmith {

std::vector<int64_t> default_taps(int64_t target_layers, int64_t count) {
  DS_CHECK(count == 1 || count <= target_layers - 3,
           "a target of {} layers has no room for {} evenly spaced taps between layer 1 and layers-3: state the taps",
           target_layers, count);
  if (count == 1) return {target_layers / 2};
  std::vector<int64_t> taps;
  for (int64_t i = 0; i < count; ++i) {
    const double exact = 1.0 + static_cast<double>(i * (target_layers - 4)) / static_cast<double>(count - 1);
    taps.push_back(static_cast<int64_t>(std::nearbyint(exact)));  // half to even, as Python's round
  }
  return taps;
}

void check_taps(const std::vector<int64_t>& taps, int64_t target_layers, const char* option) {
  for (size_t i = 0; i < taps.size(); ++i) {
    DS_CHECK(taps[i] >= 0 && taps[i] < target_layers, "{}: {} is no layer of the target, which has layers 0 to {}",
             option, taps[i], target_layers - 1);
    DS_CHECK(taps[i] != target_layers - 1,
             "{}: {} is the target's last layer, whose state engines hand out before the final norm and Transformers "
             "after it; take at most {}",
             option, taps[i], target_layers - 2);
    DS_CHECK(i == 0 || taps[i] > taps[i - 1], "{}: taps must ascend without repetition: {} follows {}", option, taps[i],
             taps[i > 0 ? i - 1 : 0]);
  }
}

namespace {

template <class T>
void inherit(T& own, const T& from_target) {
  if (own == T{}) own = from_target;
}

}  // namespace

DrafterConfig resolve_drafter(DrafterConfig config, const HfConfig& target) {
  DS_CHECK(config.layers >= 1, "drafter.layers is {}, at least 1 is needed", config.layers);
  DS_CHECK(config.block >= 2, "drafter.block is {}: a block is the anchor and at least one drafted token, so 2 or more",
           config.block);
  if (config.taps.empty()) config.taps = default_taps(target.num_hidden_layers, config.layers);
  check_taps(config.taps, target.num_hidden_layers, "drafter.taps");

  inherit(config.hidden_size, target.hidden_size);
  DS_CHECK(config.hidden_size == target.hidden_size,
           "the drafter's hidden size is {} but the target's is {}: a drafter uses the target's embedding and head, so "
           "both must be equal",
           config.hidden_size, target.hidden_size);
  inherit(config.intermediate_size, target.intermediate_size);
  inherit(config.num_attention_heads, target.num_attention_heads);
  inherit(config.num_key_value_heads, target.num_key_value_heads);
  inherit(config.head_dim, target.head_dim);
  inherit(config.rms_norm_eps, target.rms_norm_eps);
  inherit(config.max_position_embeddings, target.max_position_embeddings);
  if (config.rope.theta == 0) config.rope = target.rope;

  DS_CHECK(config.num_attention_heads % config.num_key_value_heads == 0,
           "drafter: {} attention heads do not divide into {} key/value heads", config.num_attention_heads,
           config.num_key_value_heads);
  DS_CHECK(config.head_dim % 2 == 0, "drafter.head_dim is {}: rotary embedding pairs dimensions, so it must be even",
           config.head_dim);
  DS_CHECK(config.init == "random" || config.init == "target", "drafter.init is `{}`; known: random, target",
           config.init);
  DS_CHECK(config.vocabulary >= 0 && config.vocabulary <= target.vocab_size,
           "drafter.vocabulary is {} but the target's vocabulary has {} tokens", config.vocabulary, target.vocab_size);
  DS_CHECK(config.mask_token < target.vocab_size,
           "drafter.mask_token {} is outside the embedding table of {} rows, which is never resized", config.mask_token,
           target.vocab_size);
  return config;
}

nlohmann::ordered_json to_json(const DrafterConfig& config) {
  nlohmann::ordered_json json;
  json["kind"] = config.kind;
  json["layers"] = config.layers;
  json["block"] = config.block;
  json["taps"] = config.taps;
  json["mask_token"] = config.mask_token;
  json["hidden_size"] = config.hidden_size;
  json["intermediate_size"] = config.intermediate_size;
  json["num_attention_heads"] = config.num_attention_heads;
  json["num_key_value_heads"] = config.num_key_value_heads;
  json["head_dim"] = config.head_dim;
  json["rms_norm_eps"] = config.rms_norm_eps;
  json["max_position_embeddings"] = config.max_position_embeddings;
  write_rope(config.rope, json);
  json["initializer_range"] = config.initializer_range;
  json["init"] = config.init;
  json["init_norm"] = config.init_norm;
  json["init_qk_norm"] = config.init_qk_norm;
  json["fusion_init"] = config.fusion_init;
  json["unit_taps"] = config.unit_taps;
  json["vocabulary"] = config.vocabulary;
  return json;
}

DrafterConfig drafter_from_json(const nlohmann::json& json, const std::string& where) {
  DrafterConfig config;
  const auto need = [&](const char* key, auto& value) {
    DS_CHECK(json.contains(key), "{}: key `{}` is missing", where, key);
    try {
      json.at(key).get_to(value);
    } catch (const nlohmann::json::exception&) {
      DS_FAIL("{}: key `{}` is {}, which is of another type than draftsmith writes", where, key, json.at(key).dump());
    }
  };
  DS_CHECK(json.is_object(), "{}: a JSON object was expected", where);
  need("kind", config.kind);
  need("layers", config.layers);
  need("block", config.block);
  need("taps", config.taps);
  need("mask_token", config.mask_token);
  need("hidden_size", config.hidden_size);
  need("intermediate_size", config.intermediate_size);
  need("num_attention_heads", config.num_attention_heads);
  need("num_key_value_heads", config.num_key_value_heads);
  need("head_dim", config.head_dim);
  need("rms_norm_eps", config.rms_norm_eps);
  need("max_position_embeddings", config.max_position_embeddings);
  config.rope = parse_rope(json, where);
  need("initializer_range", config.initializer_range);
  need("init", config.init);
  need("init_norm", config.init_norm);
  need("init_qk_norm", config.init_qk_norm);
  need("unit_taps", config.unit_taps);
  if (json.contains("fusion_init")) need("fusion_init", config.fusion_init);  // of drafters that fuse layer by layer
  need("vocabulary", config.vocabulary);
  return config;
}

}  // namespace draftsmith
