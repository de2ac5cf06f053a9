// The backbone that block-diffusion drafters share: decoder layers over [anchor, mask, mask, ...] which attend to keys
// and values injected from the target's features (arXiv 2602.06036; shared/research/dflash.md). What it attends to is
// its conditioning's matter (conditioning.h).
#pragma once

#include "models/drafters/conditioning.h"
#include "models/drafters/drafter.h"
#include "models/parts/block_attention.h"
#include "models/parts/rope.h"

namespace draftsmith {

struct BlockLayer {
  at::Tensor input_norm, post_norm, q_norm, k_norm;  // [H], [H], [head_dim], [head_dim]
  at::Tensor q, k, v, o;                             // [heads d, H], [kv d, H], [kv d, H], [H, heads d]
  at::Tensor gate, up, down;                         // [I, H], [I, H], [H, I]
};

// Context of one layer: rotated keys and values, [C, kv_heads, head_dim].
struct LayerContext {
  at::Tensor keys, values;
};

// Blocks to run: their anchors' tokens, every slot's position, and the slots whose states are wanted.
struct Blocks {
  at::Tensor anchor_tokens;  // int64 [A]
  at::Tensor positions;      // int64 [A*B]
  at::Tensor wanted;         // int64 [M], ascending rows of the flattened [A*B]
  BlockView all, kept;       // views of all rows and of the wanted rows
};

class BlockDrafter : public Drafter {
 public:
  BlockDrafter(const DrafterConfig& config, const HfConfig& target, const TargetEnds& ends,
               const DraftVocabulary& vocabulary, uint64_t seed, MakeConditioning make_conditioning);

  NamedTensors parameters() const override { return parameters_; }
  std::vector<std::string> plain_parameters() const override { return conditioning_->plain_parameters(); }
  NamedTensors initialise(const DraftStart& start) override;
  DraftSlots slots(const DraftSample& sample) const override;
  std::unique_ptr<DraftState> start() const override;
  void append(DraftState& state, const at::Tensor& taps) const override;
  Proposal propose(DraftState& state, int64_t anchor, const ProposeOptions& options) const override;

 private:
  void register_layers(ParameterSet& parameters);
  void copy_target_layers(const WeightFolder& target);
  std::vector<LayerContext> context(const at::Tensor& taps, const at::Tensor& positions,
                                    const std::vector<at::Tensor>& prepared) const;
  at::Tensor blocks(const std::vector<LayerContext>& context, const Blocks& blocks) const;
  at::Tensor rotate(const at::Tensor& heads, const at::Tensor& positions) const;
  at::Tensor heads(const at::Tensor& rows) const { return rows.reshape({rows.size(0), -1, config_.head_dim}); }
  at::Tensor expand_blocks(const at::Tensor& distinct) const;

  int64_t target_layers_;
  std::vector<BlockLayer> layers_;
  std::vector<LayerProjections> projections_;  // k and v of layers_
  std::unique_ptr<Conditioning> conditioning_;
  at::Tensor norm_;  // [H]
  NamedTensors parameters_;
  Rope rope_;
};

}  // namespace draftsmith
