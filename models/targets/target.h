// A target: the frozen model that is served, run for its logits and for its taps.
//
// One file per architecture in this folder (llama.cpp, qwen3.cpp), each with the same parts in the same order. Targets
// are made by load_target() from an HF folder, own their weights (mapped, not copied, where the dtype allows) and never
// need gradients. Thread-compatible: one caller at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "configs/hf_config.h"
#include "models/parts/kv_cache.h"
#include "models/parts/weights.h"

namespace draftsmith {

struct TargetInput {
  at::Tensor tokens;            // int64 [B, S], right-padded
  std::vector<int64_t> counts;  // valid tokens of each row, 1..S; empty: S each
  std::vector<int64_t> taps;    // wanted tap ids, any order; a tap `l` is the residual stream after 0-based layer l
  bool hidden = true;           // false: stop after the last tap (capture needs no more)
};

struct TargetOutput {
  at::Tensor
      hidden;  // [B, S, H] after the final norm; undefined when not wanted. Rows beyond counts[r] are undefined content
  at::Tensor taps;  // [B, S, T, H] in the order of TargetInput::taps; undefined when none
};

struct TargetOptions {
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;  // compute dtype
};

class Target {
 public:
  virtual ~Target() = default;

  // Runs tokens behind what `cache` holds (token i of row r stands at position cache.length(r) + i, sees every position
  // up to its own) and appends their keys and values. Only valid tokens cost anything. With hidden = false the layers
  // above the last tap stay unwritten: such a cache serves only passes that stop there too. Throws Error for ids
  // outside the vocabulary, positions outside the model, taps outside 0..layers-1; the cache is then as before.
  virtual TargetOutput forward(const TargetInput& input, KvCache& cache) const = 0;
  // Embedding rows of ids: int64 [...] -> [..., H].
  at::Tensor embed(const at::Tensor& ids) const;
  // Logits of final-normed states [..., H] -> fp32 [..., V].
  at::Tensor logits(const at::Tensor& hidden) const;
  KvCache make_cache(int64_t rows, int64_t capacity = 256) const;

  const HfConfig& config() const { return config_; }
  const at::Tensor& embedding() const { return embedding_; }  // [V, H]
  const at::Tensor& head() const { return head_; }            // [V, H]; the embedding itself when tied
  const std::string& weight_hash() const;                     // computed at the first call
  const std::string& folder() const { return folder_; }
  const TargetOptions& options() const { return options_; }

 protected:
  // Takes the embedding, and the head unless it is tied. Throws Error when config.json and the weights contradict each
  // other.
  Target(const HfConfig& config, const TargetOptions& options, Weights& weights);

  HfConfig config_;
  TargetOptions options_;
  at::Tensor embedding_, head_;
  std::string folder_;
  mutable std::string weight_hash_;
};

// Loads an HF folder (sharded or single safetensors, f32/f16/bf16 on disk). Throws Error for an unknown architecture
// (the known ones are listed), a missing, extra, wrongly shaped or non-finite weight, tied/untied contradictions.
std::unique_ptr<Target> load_target(const std::string& folder, const TargetOptions& options = {});

// Shifts the rows of a left-padded batch so that they are right-padded: tokens [B, S] and attention mask (1 = valid) ->
// tokens and counts as TargetInput wants them. Throws Error when a mask has a hole or a row has no token.
TargetInput right_pad(const at::Tensor& tokens, const at::Tensor& mask);

}  // namespace draftsmith
