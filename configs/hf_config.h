// What a target's config.json says, in the field's own names.
//
// Old and new spellings are read (`rope_theta`/`rope_scaling` at the top, `rope_parameters`, `dtype`/`torch_dtype`); a RoPE base that no
// spelling states is an error, as are two spellings that contradict each other. Plain data; owns nothing.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace draftsmith {

struct RopeConfig {
  double theta = 0;            // base
  std::string type = "default";  // default, linear, llama3, yarn
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  int64_t original_max_position_embeddings = 0;      // llama3, yarn
  double beta_fast = 32, beta_slow = 1, attention_factor = 0;  // yarn; attention_factor 0: 0.1 ln(factor) + 1
};

struct HfConfig {
  std::string architecture;  // e.g. LlamaForCausalLM
  std::string model_type;
  int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, num_hidden_layers = 0;
  int64_t num_attention_heads = 0, num_key_value_heads = 0, head_dim = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false, attention_bias = false, mlp_bias = false;
  RopeConfig rope;
  std::string dtype = "float32";  // as declared on disk
  int64_t bos_token_id = -1, pad_token_id = -1;
  std::vector<int64_t> eos_token_ids;  // from generation_config.json when it is there, else config.json
  nlohmann::json raw;                  // the whole config.json
};

// Reads `folder`/config.json (and generation_config.json). Throws Error naming the file and key for: unknown architecture keys missing,
// head counts that do not divide, no RoPE base, conflicting RoPE spellings, partial rotary, sliding windows in use.
HfConfig read_hf_config(const std::string& folder);

// RoPE keys of a config in any published spelling; `where` names the file in errors.
RopeConfig parse_rope(const nlohmann::json& config, const std::string& where);

// Writes both RoPE spellings into `config`.
void write_rope(const RopeConfig& rope, nlohmann::ordered_json& config);

}  // namespace draftsmith
