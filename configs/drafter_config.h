// What a drafter is made of: the `drafter` section of a recipe, and the body of drafter.json.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "configs/hf_config.h"

namespace draftsmith {

struct DrafterConfig {
  std::string kind = "dflash";
  int64_t layers = 5;         // decoder layers of the drafter (D)
  int64_t block = 16;         // block size B, anchor included
  std::vector<int64_t> taps;  // tap ids, ascending; empty: default_taps, one for each layer
  int64_t mask_token = -1;    // an existing embedding row that no text uses; -1: picked by pick_mask_token
  int64_t hidden_size =
      0;  // 0: the target's (the only width this drafter can have: it borrows the target's embedding and head)
  int64_t intermediate_size = 0;                                           // 0: the target's
  int64_t num_attention_heads = 0, num_key_value_heads = 0, head_dim = 0;  // 0: the target's
  double rms_norm_eps = 0;                                                 // 0: the target's
  int64_t max_position_embeddings = 0;                                     // 0: the target's
  RopeConfig rope;                                                         // theta 0: the target's
  double initializer_range = 0.02;  // standard deviation of the matrices at initialisation
  std::string init =
      "random";               // random: as published | target: layers start as copies of target layers where shapes fit
  double init_norm = 1.0;     // value of the final norm's weight at initialisation (1 as published; 0.25 starts at ln V
                              // with a shared-mean embedding)
  double init_qk_norm = 1.0;  // value of the query and key norms' weights at initialisation (1 as published; layers
                              // copied from a target without such norms want about 1.4)
  std::string fusion_init;    // of a layer-wise fusion: angelslim (the authors' code) | angelspec; empty: angelslim
  bool unit_taps = false;  // scale each channel of the taps to unit root mean square over the store; folded into fc, so
                           // exports know nothing of it
  int64_t vocabulary =
      0;  // reduced draft vocabulary: so many of the most frequent supervised tokens; 0: the full vocabulary
};

// Evenly spaced tap ids from 1 to layers-3, `count` of them, half-to-even rounding (dflash.md 1.3, z-lab's
// build_target_layer_ids, which is called with the drafter's layer count). Throws Error when there are not so many.
std::vector<int64_t> default_taps(int64_t target_layers, int64_t count);

// Throws Error naming `option` unless the taps ascend and each is a layer of the target, the last one excepted.
void check_taps(const std::vector<int64_t>& taps, int64_t target_layers, const char* option);

// Fills every 0/empty field from the target and checks the whole. Throws Error with the reason.
DrafterConfig resolve_drafter(DrafterConfig config, const HfConfig& target);

nlohmann::ordered_json to_json(const DrafterConfig& config);
DrafterConfig drafter_from_json(const nlohmann::json& json, const std::string& where);

}  // namespace draftsmith
