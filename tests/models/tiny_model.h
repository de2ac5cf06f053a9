// A small random Llama as an HF folder, with a byte-level tokenizer and a chat template: a target for tests that need
// no downloads.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "data/safetensors.h"
#include "launch/file.h"
#include "tests/support.h"

namespace draftsmith::tiny {

constexpr int64_t kVocabulary = 264, kHidden = 32, kLayers = 3, kEnd = 257;

// GPT-2's printable stand-in of a byte, in UTF-8.
inline std::string byte_symbol(int byte) {
  int next = 256;
  for (int b = 0; b <= byte; ++b) {
    const bool plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
    const int code = plain ? b : next++;
    if (b < byte) continue;
    if (code < 128) return std::string(1, static_cast<char>(code));
    return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
  }
  return {};
}

inline void write_tokenizer(const std::string& folder) {
  nlohmann::ordered_json vocabulary, added = nlohmann::ordered_json::array();
  for (int byte = 0; byte < 256; ++byte) vocabulary[byte_symbol(byte)] = byte;
  int id = 256;
  for (const char* special : {"<|im_start|>", "<|im_end|>"}) {
    added.push_back({{"id", id++},
                     {"content", special},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  while (id < kVocabulary) {
    const std::string word = "<w" + std::to_string(id) + ">";
    added.push_back({{"id", id++},
                     {"content", word},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", false}});
  }
  const nlohmann::ordered_json level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const nlohmann::ordered_json tokenizer = {{"version", "1.0"},
                                            {"truncation", nullptr},
                                            {"padding", nullptr},
                                            {"added_tokens", added},
                                            {"normalizer", nullptr},
                                            {"pre_tokenizer", level},
                                            {"post_processor", nullptr},
                                            {"decoder", level},
                                            {"model",
                                             {{"type", "BPE"},
                                              {"dropout", nullptr},
                                              {"unk_token", nullptr},
                                              {"continuing_subword_prefix", nullptr},
                                              {"end_of_word_suffix", nullptr},
                                              {"fuse_unk", false},
                                              {"byte_fallback", false},
                                              {"vocab", vocabulary},
                                              {"merges", nlohmann::ordered_json::array()}}}};
  write_file(folder + "/tokenizer.json", tokenizer.dump());
  const nlohmann::ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                         {"eos_token", "<|im_end|>"},
                                         {"chat_template",
                                          "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
                                          "message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
                                          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"}};
  write_file(folder + "/tokenizer_config.json", config.dump());
}

// Writes the folder. `ends`: end tokens beside <|im_end|>, so that some greedy answers of random weights end early.
inline void write_model(const std::string& folder, uint64_t seed = 7, std::vector<int64_t> ends = {},
                        int64_t positions = 512) {
  std::filesystem::create_directories(folder);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto random = [&](std::vector<int64_t> shape, double deviation) {
    return at::randn(shape, generator) * deviation;
  };
  const int64_t ffn = 48, kv = 16;
  NamedTensors tensors{{"model.embed_tokens.weight", random({kVocabulary, kHidden}, 1.0)},
                       {"model.norm.weight", at::ones({kHidden})},
                       {"lm_head.weight", random({kVocabulary, kHidden}, 0.4)}};
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    const double scale = 0.3;
    tensors.emplace_back(at + "input_layernorm.weight", at::ones({kHidden}));
    tensors.emplace_back(at + "post_attention_layernorm.weight", at::ones({kHidden}));
    tensors.emplace_back(at + "self_attn.q_proj.weight", random({kHidden, kHidden}, scale));
    tensors.emplace_back(at + "self_attn.k_proj.weight", random({kv, kHidden}, scale));
    tensors.emplace_back(at + "self_attn.v_proj.weight", random({kv, kHidden}, scale));
    tensors.emplace_back(at + "self_attn.o_proj.weight", random({kHidden, kHidden}, scale));
    tensors.emplace_back(at + "mlp.gate_proj.weight", random({ffn, kHidden}, scale));
    tensors.emplace_back(at + "mlp.up_proj.weight", random({ffn, kHidden}, scale));
    tensors.emplace_back(at + "mlp.down_proj.weight", random({kHidden, ffn}, scale));
  }
  write_safetensors(folder + "/model.safetensors", tensors);
  ends.push_back(kEnd);
  const nlohmann::ordered_json config = {{"architectures", {"LlamaForCausalLM"}},
                                         {"model_type", "llama"},
                                         {"vocab_size", kVocabulary},
                                         {"hidden_size", kHidden},
                                         {"intermediate_size", ffn},
                                         {"num_hidden_layers", kLayers},
                                         {"num_attention_heads", 4},
                                         {"num_key_value_heads", 2},
                                         {"head_dim", 8},
                                         {"hidden_act", "silu"},
                                         {"max_position_embeddings", positions},
                                         {"rms_norm_eps", 1e-5},
                                         {"rope_theta", 10000.0},
                                         {"tie_word_embeddings", false},
                                         {"torch_dtype", "float32"},
                                         {"eos_token_id", ends}};
  write_file(folder + "/config.json", config.dump());
  write_tokenizer(folder);
}

}  // namespace draftsmith::tiny
