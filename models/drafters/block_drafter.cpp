// A block is [anchor, mask, mask, ...]; slot k at position a + k predicts the token at that very position (no shift).
// Every layer attends to the keys and values that the conditioning makes of the context, positions 0 .. a-1, with the
// layer's own k_norm, and to its own block in both directions.
#include "models/drafters/block_drafter.h"

#include <cmath>

#include "launch/check.h"
#include "models/decoding/sampling.h"
#include "models/parts/gather.h"
#include "models/parts/linear.h"
#include "models/parts/mlp.h"
#include "models/parts/norm.h"

namespace draftsmith {

namespace {

class BlockState : public DraftState {
 public:
  int64_t length() const override { return length_; }

  int64_t length_ = 0;
  std::vector<at::Tensor> prepared;      // the conditioning's weights
  std::vector<at::Tensor> keys, values;  // per layer [capacity, kv_heads, head_dim]
};

}  // namespace

// 1. What it is called, what it needs.

BlockDrafter::BlockDrafter(const DrafterConfig& config, const HfConfig& target, const TargetEnds& ends,
                           const DraftVocabulary& vocabulary, uint64_t seed, MakeConditioning make_conditioning)
    : target_layers_(target.num_hidden_layers),
      // Slots of the last blocks stand beyond the row's end; they are never scored, but they have a position.
      rope_(config.rope, config.head_dim, config.max_position_embeddings + config.block, ends.embedding.device()) {
  const at::NoGradGuard no_grad;
  config_ = config;
  ends_ = ends;
  vocabulary_ = vocabulary;
  if (vocabulary.to_target.defined()) {
    const at::Device device = ends.head.device();
    vocabulary_ = DraftVocabulary{vocabulary.to_target.to(device), vocabulary.from_target.to(device)};
    config_.vocabulary = vocabulary.to_target.numel();
    head_ = ends.head.index_select(0, vocabulary_.to_target);
  } else {
    config_.vocabulary = 0;
    head_ = ends.head;
  }
  const at::ScalarType type = ends_.embedding.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  ParameterSet parameters(ends_.embedding.options().dtype(type), seed);
  conditioning_ = make_conditioning(config_, parameters, projections_);
  register_layers(parameters);
  parameters_ = parameters.named();
}

// 2. Its tensors: names as published (z-lab), no prefix.

void BlockDrafter::register_layers(ParameterSet& parameters) {
  const int64_t hidden = config_.hidden_size, d = config_.head_dim, inner = config_.intermediate_size;
  const int64_t q_width = config_.num_attention_heads * d, kv_width = config_.num_key_value_heads * d;
  for (int64_t i = 0; i < config_.layers; ++i) {
    const std::string at = fmt::format("layers.{}.", i);
    const auto matrix = [&](const char* name, int64_t rows, int64_t columns) {
      return parameters.matrix(at + name, rows, columns, config_.initializer_range);
    };
    BlockLayer layer;
    layer.input_norm = parameters.vector(at + "input_layernorm.weight", hidden, 1.0);
    layer.q = matrix("self_attn.q_proj.weight", q_width, hidden);
    layer.k = matrix("self_attn.k_proj.weight", kv_width, hidden);
    layer.v = matrix("self_attn.v_proj.weight", kv_width, hidden);
    layer.o = matrix("self_attn.o_proj.weight", hidden, q_width);
    layer.q_norm = parameters.vector(at + "self_attn.q_norm.weight", d, config_.init_qk_norm);
    layer.k_norm = parameters.vector(at + "self_attn.k_norm.weight", d, config_.init_qk_norm);
    layer.post_norm = parameters.vector(at + "post_attention_layernorm.weight", hidden, 1.0);
    layer.gate = matrix("mlp.gate_proj.weight", inner, hidden);
    layer.up = matrix("mlp.up_proj.weight", inner, hidden);
    layer.down = matrix("mlp.down_proj.weight", hidden, inner);
    layers_.push_back(layer);
    projections_.push_back({layer.k, layer.v});
  }
  norm_ = parameters.vector("norm.weight", hidden, config_.init_norm);
}

NamedTensors BlockDrafter::initialise(const DraftStart& start) {
  const at::NoGradGuard no_grad;
  if (config_.init == "target") {
    DS_CHECK(start.target != nullptr, "drafter.init: target needs the target's layers");
    copy_target_layers(*start.target);
  }
  if (!config_.unit_taps) return {};
  const std::vector<int64_t> taps_shape{static_cast<int64_t>(config_.taps.size()), config_.hidden_size};
  DS_CHECK(start.tap_scale.defined() && start.tap_scale.sizes() == taps_shape,
           "drafter.unit_taps needs the taps' root mean squares, [{}, {}]", taps_shape[0], taps_shape[1]);
  return conditioning_->scale_taps(start.tap_scale);
}

// Layer i becomes a copy of an evenly spaced target layer, tensor by tensor where the shapes agree.
void BlockDrafter::copy_target_layers(const WeightFolder& target) {
  int64_t copied = 0;
  for (auto& [name, parameter] : parameters_) {
    if (!name.starts_with("layers.")) continue;
    const size_t dot = name.find('.', 7);
    const int64_t i = std::stoll(name.substr(7, dot - 7));
    // Middles of `layers` equal stretches of the target, its last layer excluded.
    const int64_t from = (2 * i + 1) * (target_layers_ - 1) / (2 * config_.layers);
    std::string source = fmt::format("model.layers.{}{}", from, name.substr(dot));
    if (const size_t part = source.find("_proj_target"); part != std::string::npos) source.erase(part + 5, 7);
    if (!target.has(source) || target.shape(source) != parameter.sizes().vec()) continue;
    parameter.copy_(target.tensor(source));
    ++copied;
  }
  DS_CHECK(copied > 0, "drafter.init: target, but no tensor of {} fits the drafter's layers; take init: random",
           target.folder());
}

// 3. The context: its projections from the conditioning, then norm and rotation.

std::vector<LayerContext> BlockDrafter::context(const at::Tensor& taps, const at::Tensor& positions,
                                                const std::vector<at::Tensor>& prepared) const {
  const auto projections = conditioning_->project(taps.to(norm_.scalar_type()), prepared);
  std::vector<LayerContext> result;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const at::Tensor keys = rms_norm(heads(projections[i].keys), layers_[i].k_norm, config_.rms_norm_eps);
    result.push_back(LayerContext{rotate(keys, positions), heads(projections[i].values)});
  }
  return result;
}

// x: [N, heads, head_dim], positions: int64 [N].
at::Tensor BlockDrafter::rotate(const at::Tensor& x, const at::Tensor& positions) const {
  return rope_.rotate(x.unsqueeze(2), positions.unsqueeze(1)).squeeze(2);
}

// 4. One forward over blocks.

// Rows of the anchors and one row for the mask token, [A + 1, ...] -> every slot's row, [A*B, ...].
at::Tensor BlockDrafter::expand_blocks(const at::Tensor& distinct) const {
  const int64_t anchors = distinct.size(0) - 1;
  auto slots = distinct.sizes().vec();
  slots.insert(slots.begin() + 1, config_.block - 1);
  slots[0] = anchors;
  const at::Tensor mask = distinct.narrow(0, anchors, 1).unsqueeze(1).expand(slots);
  return at::cat({distinct.narrow(0, 0, anchors).unsqueeze(1), mask}, 1).flatten(0, 1);
}

at::Tensor BlockDrafter::blocks(const std::vector<LayerContext>& context, const Blocks& run) const {
  const double eps = config_.rms_norm_eps;
  const at::Tensor mask = at::full({1}, config_.mask_token, run.anchor_tokens.options());
  // All masked slots enter the first layer with the same embedding, so its projections run over the distinct rows only.
  const at::Tensor distinct =
      ends_.embedding.index_select(0, at::cat({run.anchor_tokens, mask})).to(norm_.scalar_type());
  at::Tensor x = expand_blocks(distinct);  // [A*B, H]
  for (size_t i = 0; i < layers_.size(); ++i) {
    const BlockLayer& layer = layers_[i];
    const bool first = i == 0, last = i + 1 == layers_.size();
    // The last layer's queries, and all that follows them, are needed at the wanted slots only.
    const at::Tensor y = rms_norm(first ? distinct : x, layer.input_norm, eps);
    const at::Tensor queries = last && !first ? gather_rows(y, run.wanted) : y;
    at::Tensor q = rms_norm(heads(draftsmith::linear(queries, layer.q)), layer.q_norm, eps);
    at::Tensor k = rms_norm(heads(draftsmith::linear(y, layer.k)), layer.k_norm, eps);
    at::Tensor v = heads(draftsmith::linear(y, layer.v));
    if (first) {
      q = expand_blocks(q);
      k = expand_blocks(k);
      v = expand_blocks(v);
      if (last) q = gather_rows(q, run.wanted);
    }
    const at::Tensor q_positions = last ? run.positions.index_select(0, run.wanted) : run.positions;
    const at::Tensor attended = block_attention(rotate(q, q_positions), rotate(k, run.positions), v, context[i].keys,
                                                context[i].values, last ? run.kept : run.all);
    x = (last ? gather_rows(x, run.wanted) : x) + draftsmith::linear(attended.flatten(1), layer.o);
    x = x + mlp(rms_norm(x, layer.post_norm, eps), MlpWeights{layer.gate, layer.up, layer.down, {}, {}, {}});
  }
  return rms_norm(x, norm_, eps);  // [M, H]
}

// 5. Its states at the scored slots.

DraftSlots BlockDrafter::slots(const DraftSample& sample) const {
  const int64_t block = config_.block, length = sample.tokens.size(0);
  const at::Tensor anchors = sample.anchors.to(at::kCPU).contiguous(),
                   supervised = sample.loss_mask.to(at::kCPU).contiguous();
  DS_CHECK(anchors.numel() > 0, "a training sample without anchors has nothing to learn from: leave it out");
  const int64_t* anchor = anchors.const_data_ptr<int64_t>();
  const uint8_t* scored = supervised.const_data_ptr<uint8_t>();
  const std::vector<int64_t> starts = sample.starts.empty() ? std::vector<int64_t>{0} : sample.starts;

  Blocks run;
  run.all.slots = run.kept.slots = block;
  run.all.row_begin = run.kept.row_begin = {0};
  std::vector<int64_t> positions, wanted, slot, position, owner;
  for (int64_t a = 0; a < anchors.numel(); ++a) {
    DS_CHECK(anchor[a] >= 0 && anchor[a] < length && (a == 0 || anchor[a] > anchor[a - 1]),
             "anchors must ascend inside the sample: {} after {} of {} tokens", anchor[a], a > 0 ? anchor[a - 1] : -1,
             length);
    const size_t row =
        static_cast<size_t>(std::upper_bound(starts.begin(), starts.end(), anchor[a]) - starts.begin() - 1);
    const int64_t begin = starts[row], end = row + 1 < starts.size() ? starts[row + 1] : length;
    for (int64_t k = 0; k < block; ++k) {
      const int64_t at = anchor[a] + k;
      positions.push_back(at - begin);
      if (k == 0 || at >= end || !scored[at]) continue;
      wanted.push_back(a * block + k);
      slot.push_back(k);
      position.push_back(at);
      owner.push_back(a);
    }
    run.all.context_begin.push_back(begin);
    run.all.context_end.push_back(anchor[a]);
    run.all.row_begin.push_back((a + 1) * block);
    run.kept.row_begin.push_back(static_cast<int64_t>(wanted.size()));
  }
  run.kept.context_begin = run.all.context_begin;
  run.kept.context_end = run.all.context_end;

  const at::Device device = norm_.device();
  const auto to_device = [&](const std::vector<int64_t>& values) { return at::tensor(values, at::kLong).to(device); };
  run.anchor_tokens = sample.tokens.index_select(0, anchors.to(sample.tokens.device())).to(device);
  run.positions = to_device(positions);
  run.wanted = to_device(wanted);

  std::vector<int64_t> context_positions(static_cast<size_t>(length));
  for (size_t row = 0; row < starts.size(); ++row)
    for (int64_t i = starts[row]; i < (row + 1 < starts.size() ? starts[row + 1] : length); ++i)
      context_positions[static_cast<size_t>(i)] = i - starts[row];
  const auto layers = context(sample.taps, to_device(context_positions), conditioning_->prepare());
  return DraftSlots{blocks(layers, run), to_device(slot), to_device(position), to_device(owner)};
}

// 6. Its proposal from a decode state.

std::unique_ptr<DraftState> BlockDrafter::start() const {
  const at::NoGradGuard no_grad;
  auto state = std::make_unique<BlockState>();
  state->prepared = conditioning_->prepare();
  state->keys.resize(layers_.size());
  state->values.resize(layers_.size());
  return state;
}

void BlockDrafter::append(DraftState& opaque, const at::Tensor& taps) const {
  const at::NoGradGuard no_grad;
  auto& state = dynamic_cast<BlockState&>(opaque);
  const int64_t count = taps.size(0), length = state.length_;
  if (count == 0) return;
  const at::Tensor positions = at::arange(length, length + count, norm_.options().dtype(at::kLong));
  const auto added = context(taps, positions, state.prepared);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto write = [&](at::Tensor& buffer, const at::Tensor& rows) {
      if (!buffer.defined() || buffer.size(0) < length + count) {
        const int64_t capacity = std::max<int64_t>(256, 2 * (length + count));
        at::Tensor grown = at::empty({capacity, rows.size(1), rows.size(2)}, rows.options());
        if (length > 0) grown.narrow(0, 0, length).copy_(buffer.narrow(0, 0, length));
        buffer = grown;
      }
      buffer.narrow(0, length, count).copy_(rows);
    };
    write(state.keys[i], added[i].keys);
    write(state.values[i], added[i].values);
  }
  state.length_ += count;
}

Proposal BlockDrafter::propose(DraftState& opaque, int64_t anchor, const ProposeOptions& options) const {
  const at::NoGradGuard no_grad;
  auto& state = dynamic_cast<BlockState&>(opaque);
  const int64_t length = state.length_, room = config_.max_position_embeddings - length - 1;
  const int64_t asked = options.tokens > 0 ? std::min(options.tokens, config_.block - 1) : config_.block - 1;
  const int64_t count = std::min(asked, room);
  DS_CHECK(length > 0, "a drafter proposes after it was given the prompt's features");
  if (count <= 0) return {};

  // The block keeps its trained size whatever is asked for: every slot was trained beside block - 2 other masked ones.
  Blocks run;
  run.anchor_tokens = at::full({1}, anchor, norm_.options().dtype(at::kLong));
  run.positions = at::arange(length, length + config_.block, run.anchor_tokens.options());
  run.wanted = at::arange(1, count + 1, run.anchor_tokens.options());
  run.all = BlockView{config_.block, {0}, {length}, {0, config_.block}};
  run.kept = BlockView{config_.block, {0}, {length}, {0, count}};
  std::vector<LayerContext> layers;
  for (size_t i = 0; i < layers_.size(); ++i)
    layers.push_back(LayerContext{state.keys[i].narrow(0, 0, length), state.values[i].narrow(0, 0, length)});
  const at::Tensor logits =
      draftsmith::linear(blocks(layers, run), head_.to(norm_.scalar_type())).to(at::kFloat);  // [n, Vd]
  // The sum is one pass; only a sum that is not finite is looked into.
  DS_CHECK(std::isfinite(logits.sum().item<float>()) || logits.isfinite().all().item<bool>(),
           "the {} drafter's logits are not finite after {} tokens: its weights are too large or broken\n       "
           "take an earlier checkpoint, or train anew with a smaller optimizer.lr",
           config_.kind, length);

  Proposal proposal;
  at::Tensor ids;
  if (options.temperature > 0) {
    proposal.q = at::softmax(logits / options.temperature, -1);
    std::vector<int64_t> drawn;
    for (int64_t i = 0; i < count; ++i)
      drawn.push_back(draw(proposal.q[i], uniform(options.seed, static_cast<uint64_t>(i))));
    ids = at::tensor(drawn, at::kLong);
  } else {
    ids = logits.argmax(-1).cpu();
  }
  if (vocabulary_.to_target.defined())
    ids = vocabulary_.to_target.index_select(0, ids.to(vocabulary_.to_target.device())).cpu();
  proposal.tokens.assign(ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + count);
  return proposal;
}

}  // namespace draftsmith
