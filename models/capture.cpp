#include "models/capture.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "launch/check.h"

namespace draftsmith {

namespace {

// Runs one batch; the samples of its rows.
std::vector<FeatureSample> capture_batch(const Target& target, const Corpus& corpus, std::pair<int64_t, int64_t> batch,
                                         const CaptureOptions& options) {
  std::vector<CorpusRow> rows;
  int64_t longest = 0;
  for (int64_t row = batch.first; row < batch.second; ++row) {
    rows.push_back(corpus.row(row));
    longest = std::max(longest, static_cast<int64_t>(rows.back().tokens.size()));
  }
  const int64_t count = batch.second - batch.first;
  TargetInput input;
  at::Tensor tokens = at::zeros({count, longest}, at::kLong);
  for (int64_t r = 0; r < count; ++r) {
    const auto& ids = rows[static_cast<size_t>(r)].tokens;
    std::copy(ids.begin(), ids.end(), tokens.data_ptr<int64_t>() + r * longest);
    input.counts.push_back(static_cast<int64_t>(ids.size()));
  }
  input.tokens = tokens.to(target.options().device);
  input.taps = options.taps;
  input.hidden = options.last;
  KvCache cache = target.make_cache(count, longest);
  const TargetOutput output = target.forward(input, cache);

  std::vector<FeatureSample> samples;
  for (int64_t r = 0; r < count; ++r) {
    const CorpusRow& row = rows[static_cast<size_t>(r)];
    const auto length = static_cast<int64_t>(row.tokens.size());
    FeatureSample sample;
    sample.row_id = row.row_id;
    sample.row = batch.first + r;
    sample.tokens = tokens[r].slice(0, 0, length).clone();
    sample.loss_mask = at::tensor(row.mask, at::kByte);
    sample.taps = output.taps[r].slice(0, 0, length).to(at::kCPU, at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    if (options.last) sample.last = output.hidden[r].slice(0, 0, length).to(at::kCPU, at::kFloat, false, true);
    const bool finite =
        sample.taps.isfinite().all().item<bool>() && (!options.last || sample.last.isfinite().all().item<bool>());
    DS_CHECK(finite,
             "row {} ({}) of the corpus: the target's features of its {} tokens are not all finite\n"
             "       a target in float16 overflows on some rows; check the weights, or leave the row out of the corpus",
             sample.row, sample.row_id, length);
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace

std::vector<std::pair<int64_t, int64_t>> capture_batches(const std::vector<int64_t>& lengths, int64_t batch_tokens) {
  std::vector<std::pair<int64_t, int64_t>> batches;
  int64_t begin = 0, tokens = 0;
  const auto rows = static_cast<int64_t>(lengths.size());
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t length = lengths[static_cast<size_t>(row)];
    if (row > begin && tokens + length > batch_tokens) {
      batches.emplace_back(begin, row);
      begin = row;
      tokens = 0;
    }
    tokens += length;
  }
  if (begin < rows) batches.emplace_back(begin, rows);
  return batches;
}

void capture_rows(const Target& target, const Corpus& corpus, int64_t first_row, const CaptureOptions& options,
                  const std::function<void(const FeatureSample&)>& write,
                  const std::function<void(int64_t tokens)>& progress) {
  const at::NoGradGuard no_grad;
  std::vector<int64_t> lengths;
  for (int64_t row = 0; row < corpus.rows(); ++row) lengths.push_back(corpus.length(row));
  for (const auto& batch : capture_batches(lengths, options.batch_tokens)) {
    if (batch.second <= first_row) continue;
    int64_t tokens = 0;
    for (const FeatureSample& sample : capture_batch(target, corpus, batch, options)) {
      if (sample.row < first_row) continue;  // on disk already; run again because it belongs to this batch
      write(sample);
      tokens += sample.tokens.numel();
    }
    if (progress) progress(tokens);
  }
}

}  // namespace draftsmith
