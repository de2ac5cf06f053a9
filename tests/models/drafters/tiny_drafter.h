// A drafter of a few dozen units over a random embedding, and samples for it: for tests that need no target.
#pragma once

#include <ATen/ATen.h>

#include <string>

#include "models/drafters/drafter.h"

namespace draftsmith::tiny {

inline HfConfig tiny_target() {
  HfConfig config;
  config.vocab_size = 61;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.num_hidden_layers = 8;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.max_position_embeddings = 128;
  config.rms_norm_eps = 1e-5;
  config.rope.theta = 10000;
  config.eos_token_ids = {2};
  config.pad_token_id = 3;
  config.bos_token_id = 1;
  return config;
}

inline DrafterConfig tiny_config(int64_t layers, const std::string& kind = "dflash") {
  DrafterConfig config;
  config.kind = kind;
  config.layers = layers;
  config.block = 5;
  config.taps = {1, 3, 5};
  config.mask_token = 60;
  config.initializer_range = 0.2;
  return config;
}

inline TargetEnds tiny_ends(at::ScalarType type) {
  at::manual_seed(11);
  const at::Tensor embedding = at::randn({61, 24}, at::kDouble).to(type),
                   head = at::randn({61, 24}, at::kDouble).to(type);
  return {embedding, head};
}

inline std::unique_ptr<Drafter> make(int64_t layers, at::ScalarType type, const DraftVocabulary& vocabulary = {},
                                     const std::string& kind = "dflash") {
  return make_drafter(tiny_config(layers, kind), tiny_target(), tiny_ends(type), vocabulary, 5);
}

inline DraftSample make_sample(int64_t length, const std::vector<int64_t>& anchors, at::ScalarType type,
                               uint64_t seed) {
  at::manual_seed(seed);
  DraftSample sample;
  sample.tokens = at::randint(4, 60, {length}, at::kLong);
  sample.loss_mask = at::zeros({length}, at::kByte);
  sample.loss_mask.narrow(0, 6, length - 6).fill_(1);
  sample.taps = at::randn({length, 3, 24}, at::kDouble).to(type);
  sample.anchors = at::tensor(anchors, at::kLong);
  return sample;
}

}  // namespace draftsmith::tiny
