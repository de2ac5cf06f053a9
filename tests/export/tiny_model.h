// A whole target in an HF folder, small enough to be made, decoded and served within a test: random weights, byte-level
// tokenizer, ChatML template.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "configs/hf_config.h"
#include "data/safetensors.h"
#include "launch/check.h"
#include "launch/file.h"
#include "models/drafters/drafter.h"
#include "models/parts/linear.h"
#include "models/targets/target.h"
#include "tests/support.h"

namespace draftsmith::testing {

namespace fs = std::filesystem;

// Products of this size cost less than waking a second thread.
inline const bool kOneThread = (at::set_num_threads(1), true);

constexpr int64_t kTinySpecials = 17;     // <|endoftext|>, <|im_start|>, <|im_end|>, <extra_3> ...
constexpr int64_t kTinyVocabulary = 288;  // 17 + 256 bytes + 2 merged tokens, the rest of the embedding rows unused
constexpr int64_t kTinyMask = 16;

// GPT-2's printable stand-in of each byte.
inline std::string byte_symbol(int byte) {
  const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  int code = byte;
  if (!printable) {
    code = 256;
    for (int other = 0; other < byte; ++other) {
      code += !((other >= 33 && other <= 126) || (other >= 161 && other <= 172) || other >= 174);
    }
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

inline void write_tiny_tokenizer(const std::string& folder) {
  using nlohmann::ordered_json;
  const std::string names[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  ordered_json vocab, added = ordered_json::array();
  for (int64_t id = 0; id < kTinySpecials; ++id) {
    const std::string name = id < 3 ? names[id] : fmt::format("<extra_{}>", id);
    vocab[name] = id;
    added.push_back({{"id", id},
                     {"content", name},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  for (int byte = 0; byte < 256; ++byte) vocab[byte_symbol(byte)] = kTinySpecials + byte;
  vocab["he"] = kTinySpecials + 256;
  vocab["hel"] = kTinySpecials + 257;
  ordered_json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  ordered_json tokenizer;
  tokenizer["version"] = "1.0";
  tokenizer["truncation"] = nullptr;
  tokenizer["padding"] = nullptr;
  tokenizer["added_tokens"] = added;
  tokenizer["normalizer"] = nullptr;
  tokenizer["pre_tokenizer"] = {{"type", "Sequence"},
                                {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, byte_level}}};
  tokenizer["post_processor"] = nullptr;
  tokenizer["decoder"] = byte_level;
  tokenizer["model"] = {{"type", "BPE"},
                        {"dropout", nullptr},
                        {"unk_token", nullptr},
                        {"continuing_subword_prefix", nullptr},
                        {"end_of_word_suffix", nullptr},
                        {"fuse_unk", false},
                        {"byte_fallback", false},
                        {"ignore_merges", false},
                        {"vocab", vocab},
                        {"merges", {"h e", "he l"}}};
  write_file(fs::path(folder) / "tokenizer.json", tokenizer.dump());
  const ordered_json settings = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                 {"bos_token", "<|im_start|>"},
                                 {"eos_token", "<|im_end|>"},
                                 {"pad_token", "<|im_end|>"},
                                 {"unk_token", "<|endoftext|>"}};
  write_file(fs::path(folder) / "tokenizer_config.json", settings.dump());
  write_file(fs::path(folder) / "chat_template.jinja",
             "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
             "'<|im_end|>' + '\\n' }}{% endfor %}"
             "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}");
}

struct TinyShape {
  bool qwen3 = false, tied = true;
  int64_t hidden = 64, layers = 4, heads = 4, kv_heads = 2, head_dim = 16, ffn = 96;
};

// Writes the folder and returns it. Weights are wide enough (standard deviation 0.15) that greedy answers wander
// instead of repeating one token.
inline std::string write_tiny_target(const std::string& folder, const TinyShape& shape = {}, uint64_t seed = 3) {
  fs::create_directories(folder);
  write_tiny_tokenizer(folder);
  nlohmann::ordered_json config = {{"architectures", {shape.qwen3 ? "Qwen3ForCausalLM" : "LlamaForCausalLM"}},
                                   {"model_type", shape.qwen3 ? "qwen3" : "llama"},
                                   {"vocab_size", kTinyVocabulary},
                                   {"hidden_size", shape.hidden},
                                   {"intermediate_size", shape.ffn},
                                   {"num_hidden_layers", shape.layers},
                                   {"num_attention_heads", shape.heads},
                                   {"num_key_value_heads", shape.kv_heads},
                                   {"head_dim", shape.head_dim},
                                   {"hidden_act", "silu"},
                                   {"max_position_embeddings", 512},
                                   {"rms_norm_eps", 1e-5},
                                   {"tie_word_embeddings", shape.tied},
                                   {"attention_bias", false},
                                   {"dtype", "float32"},
                                   {"bos_token_id", 1},
                                   {"eos_token_id", 2},
                                   {"pad_token_id", 2}};
  RopeConfig rope;
  rope.theta = 10000;
  write_rope(rope, config);
  write_file(fs::path(folder) / "config.json", config.dump(2));

  at::Generator generator = at::detail::createCPUGenerator(seed);
  NamedTensors weights;
  auto matrix = [&](const std::string& name, int64_t rows, int64_t columns) {
    weights.emplace_back(name, at::randn({rows, columns}, generator, at::kFloat) * 0.15);
  };
  auto norm = [&](const std::string& name, int64_t size) {
    weights.emplace_back(name, at::rand({size}, generator, at::kFloat) + 0.5);
  };
  matrix("model.embed_tokens.weight", kTinyVocabulary, shape.hidden);
  norm("model.norm.weight", shape.hidden);
  if (!shape.tied) matrix("lm_head.weight", kTinyVocabulary, shape.hidden);
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    norm(prefix + "input_layernorm.weight", shape.hidden);
    norm(prefix + "post_attention_layernorm.weight", shape.hidden);
    matrix(prefix + "self_attn.q_proj.weight", shape.heads * shape.head_dim, shape.hidden);
    matrix(prefix + "self_attn.k_proj.weight", shape.kv_heads * shape.head_dim, shape.hidden);
    matrix(prefix + "self_attn.v_proj.weight", shape.kv_heads * shape.head_dim, shape.hidden);
    matrix(prefix + "self_attn.o_proj.weight", shape.hidden, shape.heads * shape.head_dim);
    if (shape.qwen3) {
      norm(prefix + "self_attn.q_norm.weight", shape.head_dim);
      norm(prefix + "self_attn.k_norm.weight", shape.head_dim);
    }
    matrix(prefix + "mlp.gate_proj.weight", shape.ffn, shape.hidden);
    matrix(prefix + "mlp.up_proj.weight", shape.ffn, shape.hidden);
    matrix(prefix + "mlp.down_proj.weight", shape.hidden, shape.ffn);
  }
  write_safetensors((fs::path(folder) / "model.safetensors").string(), weights);
  return folder;
}

inline DrafterConfig tiny_drafter_config(int64_t layers = 2, int64_t block = 5) {
  DrafterConfig config;
  config.layers = layers;
  config.block = block;
  config.taps = {0, 2};
  config.mask_token = kTinyMask;
  return config;
}

// A drafter with random, different values in every tensor (norms too), so that a swapped or forgotten one shows.
inline std::unique_ptr<Drafter> tiny_drafter(const Target& target, const DrafterConfig& config,
                                             const DraftVocabulary& vocabulary = {}) {
  auto drafter = make_drafter(resolve_drafter(config, target.config()), target.config(),
                              {target.embedding(), target.head()}, vocabulary, 7);
  const at::NoGradGuard no_grad;
  at::Generator generator = at::detail::createCPUGenerator(8);
  for (const auto& [name, tensor] : drafter->parameters()) {
    const at::Tensor noise = at::randn(tensor.sizes(), generator, at::kFloat);
    tensor.copy_(tensor.dim() == 1 ? 1 + 0.3 * noise : 0.1 * noise);
  }
  return drafter;
}

}  // namespace draftsmith::testing
