#include "train/samples.h"

#include "data/corpus.h"
#include "data/sampler.h"
#include "launch/check.h"

namespace draftsmith {

SampleStream::SampleStream(const FeatureStore& store, const DataSection& data, int64_t seed)
    : store_(store), data_(data), seed_(static_cast<uint64_t>(seed)) {
  for (int64_t row = 0; row < store.rows(); ++row) {
    const FeatureSample sample = store.read_tokens(row);
    const int64_t* tokens = sample.tokens.const_data_ptr<int64_t>();
    const uint8_t* supervised = sample.loss_mask.const_data_ptr<uint8_t>();
    const int64_t length = sample.tokens.numel();
    tokens_.insert(tokens_.end(), tokens, tokens + length);
    if (sample_anchors(sample.loss_mask, 1, 0).numel() == 0) {
      ++without_anchor_;
      continue;
    }
    if (is_validation(conversation_of(sample.row_id), data.validation_fraction, seed_)) {
      validation_.push_back(row);
      continue;
    }
    training_.push_back(row);
    for (int64_t i = 0; i < length; ++i)
      if (supervised[i]) supervised_.push_back(tokens[i]);
  }
  DS_CHECK(!training_.empty(),
           "{}: none of {} rows can train: {} have no two supervised tokens in a row, {} are kept for validation\n     "
           "  look at the rows:  draftsmith prepare --show 5",
           store.folder(), store.rows(), without_anchor_, validation_.size());
}

namespace {

at::Tensor count_ids(const std::vector<int64_t>& ids, int64_t vocabulary) {
  at::Tensor counts = at::zeros({vocabulary}, at::kLong);
  int64_t* count = counts.mutable_data_ptr<int64_t>();
  for (const int64_t id : ids) {
    DS_CHECK(id >= 0 && id < vocabulary, "token id {} of the store is outside the target's vocabulary of {}", id,
             vocabulary);
    ++count[id];
  }
  return counts;
}

}  // namespace

at::Tensor SampleStream::token_counts(int64_t vocabulary) const {
  return count_ids(tokens_, vocabulary);
}
at::Tensor SampleStream::supervised_counts(int64_t vocabulary) const {
  return count_ids(supervised_, vocabulary);
}

void SampleStream::configure(const std::vector<int64_t>& tap_columns, int64_t block, int64_t rows_per_pass,
                             at::Device device) {
  tap_columns_ = tap_columns;
  block_ = block;
  rows_per_pass_ = rows_per_pass;
  device_ = device;
}

FeatureSample SampleStream::read(int64_t row) const {
  FeatureSample sample = store_.read(row);
  sample.row = row;
  if (!tap_columns_.empty()) sample.taps = sample.taps.index_select(1, at::tensor(tap_columns_, at::kLong));
  return sample;
}

std::vector<PackedSamples> SampleStream::training_passes(int64_t first, int64_t count) const {
  const int64_t rows = static_cast<int64_t>(training_.size());
  std::vector<Pick> picks;
  std::vector<int64_t> order;
  int64_t order_epoch = -1;
  for (int64_t i = first; i < first + count; ++i) {
    if (i / rows != order_epoch) {
      order_epoch = i / rows;
      order = epoch_order(rows, seed_, order_epoch);
    }
    const int64_t row = training_[static_cast<size_t>(order[static_cast<size_t>(i % rows)])];
    picks.push_back(Pick{row, data_.anchors, derive_seed(seed_, "anchors", static_cast<uint64_t>(i))});
  }
  return pack(picks);
}

std::vector<PackedSamples> SampleStream::validation_passes(int64_t begin, int64_t end) const {
  std::vector<Pick> picks;
  for (int64_t i = begin; i < end; ++i) picks.push_back(Pick{validation_[static_cast<size_t>(i)], 0, 0});
  return pack(picks);
}

std::vector<PackedSamples> SampleStream::pack(const std::vector<Pick>& picks) const {
  std::vector<PackedSamples> passes;
  std::vector<FeatureSample> pending;
  std::vector<at::Tensor> pending_anchors;
  int64_t blocks = 0;
  const auto flush = [&] {
    if (pending.empty()) return;
    PackedSamples packed;
    std::vector<at::Tensor> tokens, masks, taps, last, anchors;
    int64_t start = 0, block = 0;
    packed.block_begin = {0};
    for (size_t i = 0; i < pending.size(); ++i) {
      const FeatureSample& sample = pending[i];
      packed.rows.push_back(sample.row);
      packed.sample.starts.push_back(start);
      tokens.push_back(sample.tokens);
      masks.push_back(sample.loss_mask);
      taps.push_back(sample.taps);
      if (sample.last.defined()) last.push_back(sample.last);
      anchors.push_back(pending_anchors[i] + start);
      start += sample.tokens.numel();
      packed.block_begin.push_back(block += pending_anchors[i].numel());
    }
    const auto join = [&](const std::vector<at::Tensor>& parts) {
      return (parts.size() == 1 ? parts[0] : at::cat(parts)).to(device_);
    };
    packed.sample.tokens = join(tokens);
    packed.sample.loss_mask = join(masks);
    packed.sample.taps = join(taps);
    packed.sample.anchors = at::cat(anchors);
    if (!last.empty()) packed.last = join(last);
    passes.push_back(std::move(packed));
    pending.clear();
    pending_anchors.clear();
    blocks = 0;
  };
  for (const Pick& pick : picks) {
    FeatureSample sample = read(pick.row);
    const at::Tensor anchors = sample_anchors(sample.loss_mask, pick.anchors, pick.seed);
    if (blocks > 0 && (blocks + anchors.numel()) * block_ > rows_per_pass_) flush();
    blocks += anchors.numel();
    pending.push_back(std::move(sample));
    pending_anchors.push_back(anchors);
  }
  flush();
  return passes;
}

at::Tensor SampleStream::tap_scale(int64_t rows) const {
  const int64_t available = static_cast<int64_t>(training_.size()), wanted = std::min(rows, available);
  at::Tensor sum;
  int64_t tokens = 0;
  for (int64_t i = 0; i < wanted; ++i) {
    const FeatureSample sample = read(training_[static_cast<size_t>(i * available / wanted)]);
    if (sample.taps.size(0) < 2) continue;
    const at::Tensor squares = sample.taps.slice(0, 1).to(at::kDouble).square().sum(0);  // [T, H]
    sum = sum.defined() ? sum + squares : squares;
    tokens += sample.taps.size(0) - 1;
  }
  return (sum / static_cast<double>(tokens)).sqrt().clamp_min(1e-3).to(at::kFloat);
}

}  // namespace draftsmith
