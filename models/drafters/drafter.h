// A drafter: the small trained model that proposes what the target verifies.
//
// Every drafter answers the same questions: which taps it needs (spec), its named tensors (parameters), its states at
// supervised slots for a training sample (slots), and its proposal from a decode state (start, append, propose).
// Capture, packing, training, resume, evaluation and export work from these answers and never name a drafter. A drafter
// borrows the target's embedding and head (frozen); it owns its parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "configs/drafter_config.h"
#include "configs/hf_config.h"
#include "data/safetensors.h"

namespace draftsmith {

// What a drafter borrows from its target: the embedding [V, H] and the head rows its vocabulary uses.
struct TargetEnds {
  at::Tensor embedding;  // [V, H], frozen
  at::Tensor head;       // [V, H], frozen
};

// Reduced draft vocabulary: draft id -> target id, ascending. Undefined: the full vocabulary.
struct DraftVocabulary {
  at::Tensor to_target;    // int64 [Vd]
  at::Tensor from_target;  // int64 [V], -1 where the target id is not in it
};
// Keeps `ids` (any order, duplicates allowed) of a target vocabulary of `size`.
DraftVocabulary make_draft_vocabulary(const std::vector<int64_t>& ids, int64_t size);

// States of a drafter at the slots that are scored in training.
struct DraftSlots {
  at::Tensor hidden;    // [M, H] after the drafter's final norm: what the head reads; carries the gradient
  at::Tensor slot;      // int64 [M], slot in the block, 1..B-1
  at::Tensor position;  // int64 [M], index in the sample of the token that the slot predicts
  at::Tensor block;     // int64 [M], which anchor it belongs to, 0..A-1
};

// One training sample, or several packed one behind the other (a block never sees another row's context), on the
// drafter's device.
struct DraftSample {
  at::Tensor tokens;            // int64 [S]
  at::Tensor loss_mask;         // uint8 [S]
  at::Tensor taps;              // [S, T, H]
  at::Tensor anchors;           // int64 [A], ascending
  std::vector<int64_t> starts;  // first token of each packed row, ascending from 0; empty: one row
};

// What initialisation may use beyond its seed.
struct DraftStart {
  const WeightFolder* target = nullptr;  // needed by init: target
  at::Tensor tap_scale;                  // root mean square of each tap channel, [T, H]; needed by unit_taps
};

// What the drafter remembers of one sequence while decoding.
class DraftState {
 public:
  virtual ~DraftState() = default;
  virtual int64_t length() const = 0;  // committed tokens whose features it holds
};

// A chain of proposed tokens. `q` are the probabilities they were really drawn from, [n, Vd] over the draft vocabulary;
// undefined for a greedy proposal.
struct Proposal {
  std::vector<int64_t> tokens;  // target ids
  at::Tensor q;
};

struct ProposeOptions {
  int64_t tokens = 0;      // at most this many (<= block - 1); 0: block - 1
  double temperature = 0;  // 0: greedy
  uint64_t seed = 0;       // of this draw; used when temperature > 0
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  const DrafterConfig& config() const { return config_; }
  const DraftVocabulary& vocabulary() const { return vocabulary_; }
  // Head rows of the draft vocabulary, [Vd, H], frozen, shared by objective and proposal.
  const at::Tensor& head() const { return head_; }

  // Named trainable tensors, names as exported, in a fixed order. The tensors are the drafter's own: writing into them
  // changes it.
  virtual NamedTensors parameters() const = 0;

  // Names among them that are no matrices whatever their shape (logits of a mixture): no weight decay, no matrix
  // optimizer.
  virtual std::vector<std::string> plain_parameters() const { return {}; }

  // Applies the parts of the initialisation that need more than a seed (config().init, unit_taps) to fresh parameters.
  // Returns the input scales that the optimizer must know: a parameter w [out, in] with scale s [in] is trained as u =
  // w s, so that its inputs count as if they were divided by s. Throws Error when `start` lacks what the config asks
  // for.
  virtual NamedTensors initialise(const DraftStart& start) = 0;

  // Training: one forward over all blocks of a sample, only supervised slots returned. Slots whose label is outside the
  // draft vocabulary are returned too.
  virtual DraftSlots slots(const DraftSample& sample) const = 0;

  // Decoding.
  virtual std::unique_ptr<DraftState> start() const = 0;
  // Features of newly committed tokens, taps [n, T, H], in order.
  virtual void append(DraftState& state, const at::Tensor& taps) const = 0;
  // Proposes what follows `anchor`, the last committed token (its features are not in the state yet; it stands at
  // position state.length()).
  virtual Proposal propose(DraftState& state, int64_t anchor, const ProposeOptions& options) const = 0;

 protected:
  DrafterConfig config_;
  TargetEnds ends_;
  DraftVocabulary vocabulary_;
  at::Tensor head_;
};

// A token that can stand for "masked": an embedding row that no text uses. The first row behind the tokenizer's ids
// when the table has one; else the highest special id that is not bos/eos/pad/unk and never occurs in the data (`used`:
// uint8 [V], 1 for ids that occur). Throws Error when there is none. Source: shared/research/dflash.md 1.7.
int64_t pick_mask_token(const HfConfig& target, const std::vector<int64_t>& special_ids, int64_t tokenizer_size,
                        const at::Tensor& used);

// Makes an untrained drafter of config.kind, initialised from `seed` (parameters on the ends' device; fp32, or fp64
// when the ends are). Throws Error with the reasons for an unknown kind or a combination that cannot work: taps out of
// range or on the last layer, mask token equal to eos/pad/unk or outside the table, block < 2, heads that do not
// divide.
std::unique_ptr<Drafter> make_drafter(const DrafterConfig& config, const HfConfig& target, const TargetEnds& ends,
                                      const DraftVocabulary& vocabulary, uint64_t seed);

// A drafter's own folder: drafter.json (config, identity of target, corpus and store) + drafter.safetensors
// (parameters, `d2t` when the vocabulary is reduced). Checkpoints and exports begin from it.
struct DrafterIdentity {
  std::string target_hash, corpus_id, chat_template_hash;
};
void save_drafter(const Drafter& drafter, const DrafterIdentity& identity, const std::string& folder);
// Throws Error when weights are missing, extra, wrongly shaped or not finite, or the identity's target is not
// `target_hash` (both are printed, empty skips the check).
std::unique_ptr<Drafter> load_drafter(const std::string& folder, const HfConfig& target, const TargetEnds& ends,
                                      const std::string& target_hash, DrafterIdentity* identity = nullptr);

// A drafter's folder, read and not yet made into a drafter.
struct StoredDrafter {
  nlohmann::json config;  // drafter_from_json() reads it
  DrafterIdentity identity;
  SafetensorsFile file;

  NamedTensors parameters() const;
  // Target ids of the draft vocabulary, int64, ascending; undefined: the full one.
  at::Tensor ids() const;
};
// Throws Error when the folder holds no drafter of this program's format.
StoredDrafter open_stored_drafter(const std::string& folder);

// Puts a folder's weights into a drafter that goes on being trained. Throws Error when the folder's drafter was made
// for another target, another corpus or another draft vocabulary (both are named), or its weights do not fit.
void restore_drafter(const Drafter& drafter, const DrafterIdentity& identity, const std::string& folder);

// True when every parameter of `named` is present in `drafter` with its shape; copies them in. Throws Error naming
// missing, extra and misshaped tensors.
void assign_parameters(const Drafter& drafter, const NamedTensors& named, const std::string& where);

}  // namespace draftsmith
