// The drafter that needs no training: a table of what followed the last few tokens in the training answers.
//
// Every trained drafter is compared with it (shared/spec/quickstart.md): one that does not beat it has not earned its
// cost.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "data/corpus.h"
#include "models/decoding/decode.h"

namespace draftsmith {

// Longest-suffix table: for every context of 1 to `context` tokens that preceded a supervised token, the token that
// followed it most often; of equally frequent ones the first seen. Contexts reach back into the prompt of their own
// row, never into another row.
class NgramTable {
 public:
  static constexpr int64_t kContext = 4;

  void add(const std::vector<int32_t>& tokens, const std::vector<uint8_t>& mask);
  // The continuation of the longest suffix of `history` that the table knows; -1 when it knows none.
  int64_t next(const std::vector<int64_t>& history) const;

  NgramTable();
  ~NgramTable();
  NgramTable(NgramTable&&) noexcept;
  NgramTable& operator=(NgramTable&&) noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The table of the corpus rows for which `use(row id)` holds (all when empty).
NgramTable make_ngram_table(const Corpus& corpus, const std::function<bool(const std::string& row_id)>& use = {});

// Proposes up to `depth` tokens, less when no suffix is known. The table is borrowed.
std::unique_ptr<Proposer> make_ngram_proposer(const NgramTable& table, int64_t depth);

// The rounds that greedy decode() would make with a proposer that needs no taps, walked along `output`, the known
// greedy answer to `prompt`: exact, without running the target. Fills proposed and accepted only.
DecodeResult simulate_rounds(Proposer& proposer, const std::vector<int64_t>& prompt, const std::vector<int64_t>& output,
                             int64_t max_new_tokens);

}  // namespace draftsmith
