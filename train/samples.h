// The samples of a run: which rows train and which validate, in which order, with which anchors, packed how.
//
// Everything is a function of the seed and the position in the stream, so a run goes on anywhere. Rows without two
// supervised tokens in a row have no anchor and are left out at the start, counted.
#pragma once

#include <cstdint>
#include <vector>

#include "configs/train_config.h"
#include "data/feature_store.h"
#include "models/drafters/drafter.h"

namespace draftsmith {

// Samples that one forward pass takes together.
struct PackedSamples {
  DraftSample sample;
  at::Tensor last;                   // [S, H] or undefined
  std::vector<int64_t> rows;         // store rows, in order
  std::vector<int64_t> block_begin;  // [rows + 1]: anchors of row i are block_begin[i] .. block_begin[i+1]-1
};

class SampleStream {
 public:
  // Reads tokens and masks of all rows (not their features). `store` is borrowed.
  SampleStream(const FeatureStore& store, const DataSection& data, int64_t seed);
  // How samples are handed out: which of the store's taps (empty: all), the block size and rows per pass that packing
  // counts with, the device.
  void configure(const std::vector<int64_t>& tap_columns, int64_t block, int64_t rows_per_pass, at::Device device);

  const std::vector<int64_t>& training() const { return training_; }
  const std::vector<int64_t>& validation() const { return validation_; }
  int64_t without_anchor() const { return without_anchor_; }
  // How often each token occurs, int64 [V]: anywhere, and as a supervised token of a training row.
  at::Tensor token_counts(int64_t vocabulary) const;
  at::Tensor supervised_counts(int64_t vocabulary) const;

  // Samples first .. first + count - 1 of the endless training stream (epochs one after another, each in its own
  // order), packed into as few passes as rows_per_pass allows.
  std::vector<PackedSamples> training_passes(int64_t first, int64_t count) const;
  // Validation rows begin .. end - 1 with every eligible anchor.
  std::vector<PackedSamples> validation_passes(int64_t begin, int64_t end) const;
  // Root mean square of every tap channel over at most `rows` training rows, [T, H] fp32, at least 1e-3. First tokens
  // do not count: models park their attention there, with states some hundred times as large as all others.
  at::Tensor tap_scale(int64_t rows) const;

 private:
  struct Pick {
    int64_t row;
    int64_t anchors;
    uint64_t seed;
  };
  FeatureSample read(int64_t row) const;
  std::vector<PackedSamples> pack(const std::vector<Pick>& picks) const;

  const FeatureStore& store_;
  DataSection data_;
  uint64_t seed_;
  std::vector<int64_t> tap_columns_;
  int64_t block_ = 2, rows_per_pass_ = 1;
  at::Device device_ = at::kCPU;
  std::vector<int64_t> training_, validation_;
  int64_t without_anchor_ = 0;
  std::vector<int64_t> tokens_, supervised_;  // all tokens; supervised tokens of training rows
};

}  // namespace draftsmith
