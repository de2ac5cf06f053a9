#include "models/targets/packed_pass.h"

#include "launch/check.h"

namespace draftsmith {
namespace {

std::vector<int64_t> checked_counts(const TargetInput& input, const KvCache& cache) {
  DS_CHECK(input.tokens.defined() && input.tokens.dim() == 2 && input.tokens.scalar_type() == at::kLong &&
               input.tokens.numel() > 0,
           "target: tokens must be a non-empty int64 [B, S]");
  const int64_t rows = input.tokens.size(0), length = input.tokens.size(1);
  DS_CHECK(rows == cache.rows(), "target: {} rows of tokens, the cache has {}", rows, cache.rows());
  std::vector<int64_t> counts = input.counts;
  if (counts.empty()) counts.assign(static_cast<size_t>(rows), length);
  DS_CHECK(static_cast<int64_t>(counts.size()) == rows, "target: {} counts for {} rows", counts.size(), rows);
  for (size_t r = 0; r < counts.size(); ++r) {
    DS_CHECK(counts[r] >= 1 && counts[r] <= length, "target: row {} counts {} valid tokens of {}", r, counts[r],
             length);
  }
  return counts;
}

void check_ids(const at::Tensor& tokens, int64_t vocabulary) {
  const at::Tensor on_cpu = tokens.cpu();
  const int64_t* ids = on_cpu.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < on_cpu.numel(); ++i) {
    DS_CHECK(ids[i] >= 0 && ids[i] < vocabulary,
             "target: token id {} is outside the embedding's {} rows; the tokenizer and the weights belong to "
             "different models",
             ids[i], vocabulary);
  }
}

}  // namespace

PackedPass::PackedPass(const Target& target, const TargetInput& input, KvCache& cache)
    : target_(target), input_(input), cache_(cache), counts_(checked_counts(input, cache)) {
  const HfConfig& config = target.config();
  const int64_t rows = input.tokens.size(0), length = input.tokens.size(1);
  layers_ = input.hidden ? config.num_hidden_layers : 0;
  for (int64_t tap : input.taps) {
    DS_CHECK(tap >= 0 && tap < config.num_hidden_layers, "target: tap {} is outside layers 0..{}", tap,
             config.num_hidden_layers - 1);
    layers_ = std::max(layers_, tap + 1);
  }
  DS_CHECK(layers_ > 0, "target: neither the last hidden state nor a tap is wanted");
  const KvCacheOptions& c = cache.options();
  DS_CHECK(c.layers == config.num_hidden_layers && c.kv_heads == config.num_key_value_heads &&
               c.head_dim == config.head_dim && c.dtype == target.options().dtype &&
               c.device.type() == target.options().device.type(),
           "target: the cache was made for another model; make it with make_cache()");
  DS_CHECK(cache.filled_layers() >= layers_,
           "target: the cache holds {} of {} layers: an earlier pass stopped after its last tap", cache.filled_layers(),
           layers_);
  for (size_t r = 0; r < counts_.size(); ++r) {
    const int64_t end = cache.lengths()[r] + counts_[r];
    DS_CHECK(end <= config.max_position_embeddings,
             "target: row {} would hold {} tokens, the model has {} positions (max_position_embeddings); shorten the "
             "prompt or ask for fewer tokens",
             r, end, config.max_position_embeddings);
  }

  const at::Tensor flat = input.tokens.contiguous().view({-1});
  if (std::any_of(counts_.begin(), counts_.end(), [&](int64_t count) { return count != length; })) {
    int64_t valid = 0;
    for (int64_t count : counts_) valid += count;
    at::Tensor slot = at::empty({valid}, at::kLong);
    int64_t* next = slot.mutable_data_ptr<int64_t>();
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < counts_[static_cast<size_t>(r)]; ++i) *next++ = r * length + i;
    }
    tokens_ = flat.index_select(0, slot.to(flat.device()));
    slot_ = slot.to(target.options().device);
  } else {
    tokens_ = flat;
  }
  check_ids(tokens_, config.vocab_size);
  tokens_ = tokens_.to(target.options().device);
  cache.reserve(counts_);
  where_ = cache.place(counts_);
  if (!input.taps.empty()) {
    const std::vector<int64_t> shape{rows * length, static_cast<int64_t>(input.taps.size()), config.hidden_size};
    const auto kind = at::TensorOptions().dtype(target.options().dtype).device(target.options().device);
    taps_ = slot_.defined() ? at::zeros(shape, kind) : at::empty(shape, kind);
  }
}

at::Tensor PackedPass::embeddings() const {
  return target_.embedding().index_select(0, tokens_);
}

void PackedPass::keep(int64_t layer, const at::Tensor& x) {
  for (size_t t = 0; t < input_.taps.size(); ++t) {
    if (input_.taps[t] != layer) continue;
    at::Tensor place = taps_.select(1, static_cast<int64_t>(t));
    if (slot_.defined()) {
      place.index_copy_(0, slot_, x);
    } else {
      place.copy_(x);
    }
  }
}

TargetOutput PackedPass::finish(const at::Tensor& hidden) {
  cache_.advance(counts_, layers_);
  const int64_t rows = input_.tokens.size(0), length = input_.tokens.size(1);
  TargetOutput output;
  if (taps_.defined()) output.taps = taps_.view({rows, length, taps_.size(1), taps_.size(2)});
  if (!hidden.defined()) return output;
  output.hidden = hidden;
  if (slot_.defined()) {
    output.hidden = at::zeros({rows * length, hidden.size(1)}, hidden.options());
    output.hidden.index_copy_(0, slot_, hidden);
  }
  output.hidden = output.hidden.view({rows, length, hidden.size(1)});
  return output;
}

}  // namespace draftsmith
