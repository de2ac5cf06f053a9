// The keys of a decoder's sizes that llama.cpp reads under the name of its architecture, for targets and drafters
// alike.
#pragma once

#include <string>

#include "data/gguf.h"

namespace draftsmith {

// `Config`: HfConfig or DrafterConfig, which name their sizes alike.
template <class Config>
void write_gguf_sizes(GgufWriter& writer, const std::string& architecture, int64_t layers, const Config& config) {
  const auto u32 = [&](const char* key, int64_t value) {
    writer.u32(architecture + "." + key, static_cast<uint32_t>(value));
  };
  u32("block_count", layers);
  u32("context_length", config.max_position_embeddings);
  u32("embedding_length", config.hidden_size);
  u32("feed_forward_length", config.intermediate_size);
  u32("attention.head_count", config.num_attention_heads);
  u32("attention.head_count_kv", config.num_key_value_heads);
  u32("attention.key_length", config.head_dim);
  u32("attention.value_length", config.head_dim);
  writer.f32(architecture + ".rope.freq_base", static_cast<float>(config.rope.theta));
  writer.f32(architecture + ".attention.layer_norm_rms_epsilon", static_cast<float>(config.rms_norm_eps));
}

}  // namespace draftsmith
