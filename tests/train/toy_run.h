// A toy training run: a tiny target in an HF folder, a feature store over patterned rows, and the config text that
// trains on them.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "configs/train_config.h"
#include "data/feature_store.h"
#include "data/safetensors.h"
#include "tests/models/tiny_model.h"

namespace draftsmith::toy {

constexpr int64_t kRows = 24;

// Rows of 20 to 31 tokens that count upward from a random start, the second half supervised; taps say what the token
// is, so that there is something to learn.
inline void write_store(const std::string& folder, const std::string& target_folder, int64_t rows = kRows,
                        bool with_last = false, const std::string& corpus = "toy",
                        const std::vector<int64_t>& taps = {0, 1}) {
  StoreIdentity identity;
  identity.target_hash = WeightFolder::open(target_folder).weight_hash();
  identity.target_name = "tiny";
  identity.corpus_id = corpus;
  identity.taps = taps;
  identity.hidden_size = tiny::kHidden;
  identity.with_last = with_last;
  FeatureStoreWriter writer(folder, identity, rows);
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
  const at::Tensor codes = at::randn({tiny::kVocabulary, static_cast<int64_t>(taps.size()), tiny::kHidden}, generator);
  for (int64_t row = 0; row < rows; ++row) {
    FeatureSample sample;
    sample.row = row;
    sample.row_id = fmt::format("{:016x}", row * 7919 + 17);
    const int64_t length = 20 + row % 12, start = row * 5 % 40;
    sample.tokens = (at::arange(length, at::kLong) * (1 + row % 3) + start).remainder(200);
    sample.loss_mask = at::zeros({length}, at::kByte);
    sample.loss_mask.narrow(0, length / 2, length - length / 2).fill_(1);
    sample.taps = codes.index_select(0, sample.tokens);
    if (with_last) sample.last = at::randn({length, tiny::kHidden}, generator);
    writer.append(sample);
  }
  writer.finish();
}

// Sections of a run that takes milliseconds; `more` is added behind.
inline std::string recipe(const std::string& target, const std::string& store, const std::string& run) {
  return fmt::format(
      "target:\n  folder: {}\ndata:\n  store: {}\n  validation_fraction: 0.2\noutput:\n  run: {}\n"
      "drafter:\n  layers: 2\n  block: 4\n  initializer_range: 0.1\noptimizer:\n  lr: 0.003\n"
      "schedule:\n  samples_per_step: 3\n  epochs: 4\ncheckpoint:\n  every_steps: 5\nevaluate:\n  every_steps: 10\n",
      target, store, run);
}

}  // namespace draftsmith::toy
