#include "models/decoding/ngram.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/models/tiny_model.h"

namespace draftsmith {
namespace {

TEST(NgramTable, TakesTheLongestSuffixThatWasSeen) {
  NgramTable table;
  table.add({1, 2, 3, 4, 5, 9, 3, 4, 6}, {1, 1, 1, 1, 1, 1, 1, 1, 1});
  EXPECT_EQ(table.next({2, 3, 4}), 5);
  EXPECT_EQ(table.next({9, 3, 4}), 6);
  EXPECT_EQ(table.next({7, 3, 4}), 5);  // 3 4 was followed by 5 and by 6 once each: the first seen
  EXPECT_EQ(table.next({8}), -1);
  EXPECT_EQ(table.next({}), -1);
}

TEST(NgramTable, LearnsSupervisedTokensOnlyAndNeverAcrossRows) {
  NgramTable table;
  table.add({1, 2, 3}, {0, 0, 1});
  table.add({4, 5}, {0, 1});
  EXPECT_EQ(table.next({1}), -1);
  EXPECT_EQ(table.next({1, 2}), 3);
  EXPECT_EQ(table.next({3}), -1);
  EXPECT_EQ(table.next({4}), 5);
}

// Restated by brute force: counts of every continuation of every suffix.
TEST(NgramTable, EqualsBruteForceCounts) {
  std::mt19937 random(3);
  std::vector<std::vector<int32_t>> rows;
  NgramTable table;
  for (int r = 0; r < 20; ++r) {
    std::vector<int32_t> tokens;
    for (int i = 0; i < 40; ++i) tokens.push_back(static_cast<int32_t>(random() % 4));
    table.add(tokens, std::vector<uint8_t>(tokens.size(), 1));
    rows.push_back(tokens);
  }
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<int64_t> history;
    for (int i = 0; i < 1 + trial % 6; ++i) history.push_back(static_cast<int64_t>(random() % 4));
    int64_t expected = -1;
    for (size_t n = std::min<size_t>(4, history.size()); n >= 1 && expected < 0; --n) {
      std::map<int32_t, std::pair<int64_t, int64_t>> seen;  // token -> count, minus first place
      int64_t place = 0;
      for (const auto& row : rows) {
        for (size_t i = n; i < row.size(); ++i, ++place) {
          if (!std::equal(row.begin() + static_cast<std::ptrdiff_t>(i - n),
                          row.begin() + static_cast<std::ptrdiff_t>(i), history.end() - static_cast<std::ptrdiff_t>(n)))
            continue;
          auto [it, fresh] = seen.try_emplace(row[i], 0, -place);
          ++it->second.first;
        }
      }
      for (const auto& [token, score] : seen) {
        if (expected < 0 || score > seen.at(static_cast<int32_t>(expected))) expected = token;
      }
    }
    EXPECT_EQ(table.next(history), expected);
  }
}

TEST(NgramProposer, RoundsSimulatedAlongTheOutputAreThoseOfDecoding) {
  at::set_num_threads(1);  // the products are too small to be shared
  const testing::TemporaryFolder folder;
  tiny::write_model(folder / "m");
  const auto target = load_target(folder / "m");
  int64_t accepted = 0;
  for (int64_t seed = 0; seed < 6; ++seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    std::vector<int64_t> prompt;
    for (int i = 0; i < 6; ++i) prompt.push_back(static_cast<int64_t>(random() % 256));
    DecodeOptions options;
    options.max_new_tokens = 50;
    std::vector<int64_t> plain = decode(*target, nullptr, prompt, options).tokens;
    if (seed % 2 == 1) options.stop = {plain[37]};
    plain = decode(*target, nullptr, prompt, options).tokens;
    // Learn the answer with some holes, so that proposals are right here and wrong there.
    NgramTable table;
    std::vector<int32_t> known(prompt.begin(), prompt.end());
    known.insert(known.end(), plain.begin(), plain.end());
    std::vector<uint8_t> mask(known.size(), 1);
    for (size_t i = 0; i < mask.size(); i += 5) known[i] = static_cast<int32_t>(random() % 256);
    table.add(known, mask);
    for (const int64_t depth : {1, 4}) {
      const auto proposer = make_ngram_proposer(table, depth);
      const DecodeResult real = decode(*target, proposer.get(), prompt, options);
      const DecodeResult walked = simulate_rounds(*proposer, prompt, plain, options.max_new_tokens);
      EXPECT_EQ(real.tokens, plain);
      EXPECT_EQ(walked.proposed, real.proposed);
      EXPECT_EQ(walked.accepted, real.accepted);
      for (const int64_t a : real.accepted) accepted += a;
    }
  }
  EXPECT_GT(accepted, 20);
}

}  // namespace
}  // namespace draftsmith
