#include "data/sampler.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "launch/check.h"

namespace draftsmith {
namespace {

at::Tensor mask_of(std::vector<uint8_t> values) {
  return at::tensor(values, at::kByte);
}

std::vector<int64_t> list(const at::Tensor& values) {
  return {values.data_ptr<int64_t>(), values.data_ptr<int64_t>() + values.numel()};
}

TEST(Sampler, AnchorsAreSupervisedTokensWithASupervisedSuccessor) {
  EXPECT_EQ(list(sample_anchors(mask_of({0, 1, 1, 1, 0, 1, 0, 1, 1}), 0, 1)), (std::vector<int64_t>{1, 2, 7}));
  EXPECT_EQ(sample_anchors(mask_of({0, 1, 0, 0, 1}), 0, 1).numel(), 0);
  EXPECT_EQ(sample_anchors(mask_of({1}), 0, 1).numel(), 0);
  EXPECT_EQ(list(sample_anchors(mask_of({1, 1}), 5, 1)), (std::vector<int64_t>{0}));
}

TEST(Sampler, AnchorsAreDrawnUniformlyWithoutReplacementAndAscend) {
  const at::Tensor mask = mask_of(std::vector<uint8_t>(7, 1));  // six candidates
  std::map<std::vector<int64_t>, int> seen;
  const int draws = 15000;
  for (int seed = 0; seed < draws; ++seed) {
    const std::vector<int64_t> anchors = list(sample_anchors(mask, 2, static_cast<uint64_t>(seed)));
    ASSERT_TRUE(anchors.size() == 2 && anchors[0] < anchors[1]);
    ++seen[anchors];
  }
  ASSERT_EQ(seen.size(), 15u);  // 6 choose 2
  double chi_square = 0;
  for (const auto& [pair, count] : seen) chi_square += (count - draws / 15.0) * (count - draws / 15.0) / (draws / 15.0);
  EXPECT_LT(chi_square, 36.1);  // 14 degrees of freedom, one in a thousand
}

TEST(Sampler, AnEpochIsAPermutationOfItsOwn) {
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    std::vector<int64_t> order = epoch_order(50, 7, epoch);
    EXPECT_EQ(order, epoch_order(50, 7, epoch));
    orders.insert(order);
    std::sort(order.begin(), order.end());
    std::vector<int64_t> all(50);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(order, all);
  }
  EXPECT_EQ(orders.size(), 20u);
  EXPECT_NE(epoch_order(50, 7, 0), epoch_order(50, 8, 0));
  EXPECT_TRUE(epoch_order(0, 7, 0).empty());
}

TEST(Sampler, EveryOrderOfThreeIsEquallyLikely) {
  std::map<std::vector<int64_t>, int> seen;
  for (int64_t epoch = 0; epoch < 6000; ++epoch) ++seen[epoch_order(3, 11, epoch)];
  ASSERT_EQ(seen.size(), 6u);
  double chi_square = 0;
  for (const auto& [order, count] : seen) chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi_square, 20.5);  // 5 degrees of freedom, one in a thousand
}

TEST(Sampler, TheValidationPartDependsOnTheIdAlone) {
  int chosen = 0;
  for (int i = 0; i < 10000; ++i) {
    const std::string id = "row-" + std::to_string(i);
    const bool small = is_validation(id, 0.05, 3), large = is_validation(id, 0.5, 3);
    EXPECT_TRUE(!small || large);  // a larger part holds the smaller one
    chosen += small;
  }
  EXPECT_NEAR(chosen, 500, 110);  // five standard deviations of a binomial of 10000 and 0.05
  EXPECT_FALSE(is_validation("a", 0, 3));
  EXPECT_THROW(is_validation("a", 1.0, 3), Error);
}

TEST(Sampler, StreamsDifferByPurposeAndIndex) {
  std::set<uint64_t> seeds;
  for (const char* purpose : {"order", "anchors", "init", "sampling"}) {
    for (uint64_t index = 0; index < 1000; ++index) {
      for (uint64_t seed = 0; seed < 3; ++seed) seeds.insert(derive_seed(seed, purpose, index));
    }
  }
  EXPECT_EQ(seeds.size(), 12000u);
}

}  // namespace
}  // namespace draftsmith
