// Runs a target over the rows of a corpus and hands out their taps: the engine of `capture`.
//
// How rows are put together is a function of their lengths and the options only, never of where a run starts: a resumed
// run repeats the same forward passes and gets the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "data/corpus.h"
#include "data/feature_store.h"
#include "models/targets/target.h"

namespace draftsmith {

struct CaptureOptions {
  std::vector<int64_t> taps;
  bool last = false;            // the state after the final norm, too
  int64_t batch_tokens = 4096;  // most tokens of one forward; a longer row goes alone
};

// Batches [begin, end) of consecutive rows of these lengths.
std::vector<std::pair<int64_t, int64_t>> capture_batches(const std::vector<int64_t>& lengths, int64_t batch_tokens);

// Captures rows first_row.. in order; `write` gets each, `progress` the tokens of each forward. Throws Error naming the
// row whose features are not finite.
void capture_rows(const Target& target, const Corpus& corpus, int64_t first_row, const CaptureOptions& options,
                  const std::function<void(const FeatureSample&)>& write,
                  const std::function<void(int64_t tokens)>& progress = {});

}  // namespace draftsmith
