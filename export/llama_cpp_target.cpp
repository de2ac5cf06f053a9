#include "export/llama_cpp_target.h"

#include <cmath>
#include <map>
#include <numbers>

#include "data/safetensors.h"
#include "export/gguf_sizes.h"
#include "export/gguf_vocabulary.h"
#include "launch/check.h"
#include "models/targets/gguf_config.h"
#include "models/targets/gguf_weights.h"

namespace draftsmith {

namespace {

// general.file_type: llama.cpp's number of the mix of types in a file.
uint32_t file_type(GgufType type) {
  return type == GgufType::kF32 ? 0 : type == GgufType::kF16 ? 1 : 7;
}

// Llama 3's divisors of the rotary frequencies, [head_dim / 2]: 1 for short waves, `factor` for long ones, smooth
// between (Llama 3.1's published scaling rule).
at::Tensor llama3_divisors(const RopeConfig& rope, int64_t head_dim) {
  std::vector<float> divisors;
  const double original = static_cast<double>(rope.original_max_position_embeddings);
  for (int64_t pair = 0; pair < head_dim / 2; ++pair) {
    const double exponent = 2.0 * static_cast<double>(pair) / static_cast<double>(head_dim);
    const double wave = 2 * std::numbers::pi * std::pow(rope.theta, exponent);
    const double smooth = (original / wave - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    const double within = 1 / ((1 - smooth) / rope.factor + smooth);
    divisors.push_back(static_cast<float>(wave < original / rope.high_freq_factor  ? 1.0
                                          : wave > original / rope.low_freq_factor ? rope.factor
                                                                                   : within));
  }
  return at::tensor(divisors);
}

// HF row half * (head/2) + i of a head -> GGUF row 2 * i + half.
at::Tensor rotary_order(const at::Tensor& weight, int64_t heads) {
  const int64_t columns = weight.size(1);
  return weight.reshape({heads, 2, -1, columns}).transpose(1, 2).reshape({-1, columns}).contiguous();
}

struct LayerTensor {
  const char* ours;
  const char* theirs;
};

constexpr LayerTensor kLayer[] = {
    {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};

void write_weights(GgufWriter& writer, const WeightFolder& weights, const HfConfig& config, GgufType type) {
  size_t placed = 0;
  auto add = [&](const std::string& theirs, const std::string& ours, int64_t rotary_heads) {
    at::Tensor tensor = weights.tensor(ours);
    if (rotary_heads > 0) tensor = rotary_order(tensor, rotary_heads);
    writer.tensor(theirs, tensor, tensor.dim() == 1 ? GgufType::kF32 : type);
    ++placed;
  };
  const bool llama = config.model_type == "llama";
  add("token_embd.weight", "model.embed_tokens.weight", 0);
  add("output_norm.weight", "model.norm.weight", 0);
  if (!config.tie_word_embeddings) add("output.weight", "lm_head.weight", 0);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    for (const LayerTensor& tensor : kLayer) {
      const std::string ours = fmt::format("model.layers.{}.{}.weight", layer, tensor.ours), name = tensor.theirs;
      if (llama && (name == "attn_q_norm" || name == "attn_k_norm")) continue;  // Qwen3's
      const int64_t heads = !llama             ? 0
                            : name == "attn_q" ? config.num_attention_heads
                            : name == "attn_k" ? config.num_key_value_heads
                                               : 0;
      add(fmt::format("blk.{}.{}.weight", layer, name), ours, heads);
    }
  }
  const size_t tied_copy = config.tie_word_embeddings && weights.has("lm_head.weight") ? 1 : 0;
  DS_CHECK(placed + tied_copy == weights.names().size(), "{}: {} tensors, of which llama.cpp has places for {}",
           weights.folder(), weights.names().size(), placed);
}

// Half a step of a Q8_0 block, with the rounding of the step itself to fp16 (127 steps times 2^-11 of one).
at::Tensor q8_bound(const at::Tensor& exact) {
  const at::Tensor step = exact.reshape({-1, 32}).abs().amax(1, true) / 127;
  return (step * (0.5 + 127.0 / 2048)).expand({-1, 32}).reshape(exact.sizes());
}

}  // namespace

GgufType target_gguf_type(const std::string& name) {
  if (name == "f32") return GgufType::kF32;
  if (name == "f16") return GgufType::kF16;
  if (name == "q8_0") return GgufType::kQ8_0;
  DS_FAIL("--with-target {}: the types are f32, f16, q8_0; coarser ones change the target's answers", name);
}

void write_llama_cpp_target(const std::string& hf_folder, const HfConfig& config, GgufType type,
                            const std::string& path) {
  DS_CHECK(config.model_type == "llama" || config.model_type == "qwen3",
           "{}: targets of type llama and qwen3 are written as GGUF; this one is {}", hf_folder, config.model_type);
  DS_CHECK(!config.attention_bias && !config.mlp_bias, "{}: targets with biases are not written as GGUF", hf_folder);
  DS_CHECK(config.rope.type == "default" || (config.rope.type == "llama3" && config.model_type == "llama"),
           "{}: RoPE scaling {} is not written as GGUF", hf_folder, config.rope.type);
  GgufWriter writer;
  writer.text("general.architecture", config.model_type);
  writer.text("general.type", "model");
  writer.text("general.name", "target");
  writer.u32("general.file_type", file_type(type));
  writer.u32("general.quantization_version", 2);
  write_gguf_sizes(writer, config.model_type, config.num_hidden_layers, config);
  writer.u32(config.model_type + ".rope.dimension_count", static_cast<uint32_t>(config.head_dim));
  writer.u32(config.model_type + ".vocab_size", static_cast<uint32_t>(config.vocab_size));
  write_vocabulary(writer, read_gguf_vocabulary(hf_folder, config), -1, /*with_template=*/true);
  const WeightFolder weights = WeightFolder::open(hf_folder);
  if (config.rope.type == "llama3") {
    writer.tensor("rope_freqs.weight", llama3_divisors(config.rope, config.head_dim), GgufType::kF32);
  }
  write_weights(writer, weights, config, type);
  writer.write(path);
}

int64_t prove_llama_cpp_target(const std::string& hf_folder, const std::string& path) {
  const GgufFile file = GgufFile::open(path);
  const WeightFolder weights = WeightFolder::open(hf_folder);
  int64_t count = 0;
  const uint32_t matrices = static_cast<uint32_t>(file.integer("general.file_type"));
  for (const PlannedTensor& planned : gguf_weights(file, gguf_config(file, "float32"), at::kFloat)) {
    const at::Tensor read = planned.make(), exact = weights.tensor(planned.name).to(at::kFloat);
    DS_CHECK(read.sizes() == exact.sizes(), "{}: {} came back with another shape", path, planned.name);
    bool same = false;
    if (exact.dim() == 1 || matrices == file_type(GgufType::kF32)) {
      same = read.equal(exact);
    } else if (matrices == file_type(GgufType::kF16)) {
      same = read.equal(exact.to(at::kHalf).to(at::kFloat));
    } else {
      same = ((read - exact).abs() <= q8_bound(exact)).all().item<bool>();
    }
    DS_CHECK(same, "{}: {} came back with other values than {} holds", path, planned.name, hf_folder);
    ++count;
  }
  return count;
}

}  // namespace draftsmith
