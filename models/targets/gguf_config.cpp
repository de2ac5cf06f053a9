#include "models/targets/gguf_config.h"

#include <ATen/ATen.h>

#include <cmath>

#include "launch/check.h"

namespace draftsmith {
namespace {

// A float32 as the shortest decimal that names it: 1e-05, not 9.999999747378752e-06.
double shortest(double value) {
  return std::stod(fmt::format("{}", static_cast<float>(value)));
}

// Frequencies divided by Llama 3's scaling (arXiv 2407.21783; Transformers' _compute_llama3_parameters), as the factors
// that GGUF stores in rope_freqs.weight.
double llama3_divisor(const RopeConfig& rope, int64_t head_dim, int64_t pair) {
  const double wave = 2 * M_PI * std::pow(rope.theta, 2.0 * static_cast<double>(pair) / static_cast<double>(head_dim));
  const double original = static_cast<double>(rope.original_max_position_embeddings);
  if (wave < original / rope.high_freq_factor) return 1;
  if (wave > original / rope.low_freq_factor) return rope.factor;
  const double smooth = (original / wave - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return 1 / ((1 - smooth) / rope.factor + smooth);
}

// GGUF keeps Llama 3's scaling only as its result. All published models share low 1, high 4, length 8192, so the factor
// (the largest divisor) is the one unknown; the result is computed again and must agree.
void recover_llama3(const GgufFile& file, int64_t head_dim, RopeConfig& rope) {
  const at::Tensor divisors = file.tensor("rope_freqs.weight").flatten();
  DS_CHECK(divisors.numel() == head_dim / 2, "{}: tensor \"rope_freqs.weight\" has {} elements, {} are needed",
           file.path(), divisors.numel(), head_dim / 2);
  rope.type = "llama3";
  rope.factor = divisors.max().item<double>();
  rope.original_max_position_embeddings = 8192;
  for (int64_t pair = 0; pair < head_dim / 2; ++pair) {
    const double expected = llama3_divisor(rope, head_dim, pair), found = divisors[pair].item<double>();
    // The converter computed in fp32; a wave length beside a threshold would differ by far more than its rounding.
    DS_CHECK(std::abs(found - expected) <= 1e-3 * expected,
             "{}: rope_freqs.weight[{}] is {}, Llama 3's scaling (factor {}, low 1, high 4, length 8192) gives {}: "
             "this scaling has no "
             "translation",
             file.path(), pair, found, rope.factor, expected);
  }
}

RopeConfig rope_of(const GgufFile& file, const std::string& prefix, int64_t head_dim) {
  RopeConfig rope;
  rope.theta = file.number(prefix + "rope.freq_base");
  const std::string scaling = prefix + "rope.scaling.";
  const std::string type = file.has(scaling + "type") ? file.text(scaling + "type") : "none";
  DS_CHECK(!file.has(prefix + "rope.scale_linear") || file.number(prefix + "rope.scale_linear") == 1.0,
           "{}: key {}rope.scale_linear is not translated; convert the model again with a newer llama.cpp", file.path(),
           prefix);
  DS_CHECK(type == "none" || type == "linear" || type == "yarn", "{}: key {}type: RoPE scaling {} has no translation",
           file.path(), scaling, type);
  if (type != "none") {
    rope.type = type;
    rope.factor = file.number(scaling + "factor");
    if (type == "yarn") rope.original_max_position_embeddings = file.integer(scaling + "original_context_length");
  }
  bool divisors = false;
  for (const GgufTensor& tensor : file.tensors()) divisors |= tensor.name == "rope_freqs.weight";
  if (divisors) {
    DS_CHECK(type == "none", "{}: has both rope_freqs.weight and RoPE scaling {}", file.path(), type);
    recover_llama3(file, head_dim, rope);
  }
  return rope;
}

int64_t token_id(const GgufFile& file, const std::string& name) {
  const std::string key = "tokenizer.ggml." + name + "_token_id";
  return file.has(key) ? file.integer(key) : -1;
}

// One id as a number, several as a list, as Transformers writes them.
nlohmann::ordered_json ids_json(const std::vector<int64_t>& ids) {
  return ids.empty()       ? nlohmann::ordered_json()
         : ids.size() == 1 ? nlohmann::ordered_json(ids[0])
                           : nlohmann::ordered_json(ids);
}

nlohmann::ordered_json config_json(const HfConfig& config) {
  const auto id = [](int64_t value) { return value < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(value); };
  nlohmann::ordered_json out;
  out["architectures"] = {config.architecture};
  out["model_type"] = config.model_type;
  out["vocab_size"] = config.vocab_size;
  out["hidden_size"] = config.hidden_size;
  out["intermediate_size"] = config.intermediate_size;
  out["num_hidden_layers"] = config.num_hidden_layers;
  out["num_attention_heads"] = config.num_attention_heads;
  out["num_key_value_heads"] = config.num_key_value_heads;
  out["head_dim"] = config.head_dim;
  out["hidden_act"] = "silu";
  out["max_position_embeddings"] = config.max_position_embeddings;
  out["rms_norm_eps"] = config.rms_norm_eps;
  write_rope(config.rope, out);
  out["tie_word_embeddings"] = config.tie_word_embeddings;
  out["attention_bias"] = false;
  out["attention_dropout"] = 0.0;
  if (config.model_type == "llama") out["mlp_bias"] = false;
  out["initializer_range"] = 0.02;
  out["bos_token_id"] = id(config.bos_token_id);
  out["eos_token_id"] = ids_json(config.eos_token_ids);
  out["pad_token_id"] = id(config.pad_token_id);
  out["use_cache"] = true;
  out["dtype"] = config.dtype;
  out["torch_dtype"] = config.dtype;
  return out;
}

}  // namespace

HfConfig gguf_config(const GgufFile& file, const std::string& dtype) {
  const std::string architecture = file.text("general.architecture");
  DS_CHECK(architecture == "llama" || architecture == "qwen3",
           "{}: architecture {} is not imported; llama and qwen3 are", file.path(), architecture);
  const std::string prefix = architecture + ".";
  const auto size = [&](const char* key) {
    const int64_t value = file.integer(prefix + key);
    DS_CHECK(value > 0 && value < (int64_t{1} << 31), "{}: key {}{} is {}", file.path(), prefix, key, value);
    return value;
  };
  DS_CHECK(!file.has(prefix + "expert_count") || file.integer(prefix + "expert_count") == 0,
           "{}: key {}expert_count: mixtures of experts are not imported", file.path(), prefix);

  HfConfig out;
  out.architecture = architecture == "llama" ? "LlamaForCausalLM" : "Qwen3ForCausalLM";
  out.model_type = architecture;
  out.hidden_size = size("embedding_length");
  out.intermediate_size = size("feed_forward_length");
  out.num_hidden_layers = size("block_count");
  out.num_attention_heads = size("attention.head_count");
  out.num_key_value_heads =
      file.has(prefix + "attention.head_count_kv") ? size("attention.head_count_kv") : out.num_attention_heads;
  DS_CHECK(out.num_attention_heads % out.num_key_value_heads == 0,
           "{}: {} attention heads are no multiple of {} key/value heads", file.path(), out.num_attention_heads,
           out.num_key_value_heads);
  out.head_dim = file.has(prefix + "attention.key_length") ? size("attention.key_length")
                                                           : out.hidden_size / out.num_attention_heads;
  for (const char* key : {"attention.value_length", "rope.dimension_count"}) {
    DS_CHECK(!file.has(prefix + key) || size(key) == out.head_dim,
             "{}: key {}{} is {}, but heads have {} dimensions: no translation", file.path(), prefix, key, size(key),
             out.head_dim);
  }
  DS_CHECK(out.head_dim % 2 == 0, "{}: heads of {} dimensions cannot be rotated in pairs", file.path(), out.head_dim);
  out.max_position_embeddings = size("context_length");
  out.rms_norm_eps = shortest(file.number(prefix + "attention.layer_norm_rms_epsilon"));
  out.rope = rope_of(file, prefix, out.head_dim);
  out.vocab_size = static_cast<int64_t>(file.texts("tokenizer.ggml.tokens").size());
  out.tie_word_embeddings = true;
  for (const GgufTensor& tensor : file.tensors()) out.tie_word_embeddings &= tensor.name != "output.weight";
  out.dtype = dtype;

  out.bos_token_id = token_id(file, "bos");
  out.pad_token_id = token_id(file, "padding");
  // A turn may end with another token than a text does.
  for (const char* name : {"eos", "eot", "eom"}) {
    const int64_t id = token_id(file, name);
    if (id >= 0 && std::find(out.eos_token_ids.begin(), out.eos_token_ids.end(), id) == out.eos_token_ids.end()) {
      out.eos_token_ids.push_back(id);
    }
  }
  for (const char* name : {"bos", "eos", "eot", "eom", "padding", "unknown"}) {
    DS_CHECK(token_id(file, name) < out.vocab_size,
             "{}: key tokenizer.ggml.{}_token_id is {}, outside the vocabulary of {}", file.path(), name,
             token_id(file, name), out.vocab_size);
  }
  out.raw = config_json(out);
  return out;
}

nlohmann::ordered_json generation_config(const HfConfig& config) {
  nlohmann::ordered_json out;
  if (config.bos_token_id >= 0) out["bos_token_id"] = config.bos_token_id;
  if (!config.eos_token_ids.empty()) out["eos_token_id"] = ids_json(config.eos_token_ids);
  if (config.pad_token_id >= 0) out["pad_token_id"] = config.pad_token_id;
  return out;
}

}  // namespace draftsmith
