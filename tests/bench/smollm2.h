// SmolLM2-135M's dimensions, for benches that need no weights of its.
#pragma once

#include "configs/hf_config.h"

namespace draftsmith {

inline HfConfig smollm2_config() {
  HfConfig config;
  config.vocab_size = 49152;
  config.hidden_size = 576;
  config.intermediate_size = 1536;
  config.num_hidden_layers = 30;
  config.num_attention_heads = 9;
  config.num_key_value_heads = 3;
  config.head_dim = 64;
  config.max_position_embeddings = 8192;
  config.rms_norm_eps = 1e-5;
  config.rope.theta = 100000;
  return config;
}

}  // namespace draftsmith
