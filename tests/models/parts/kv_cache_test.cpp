#include "models/parts/kv_cache.h"

#include <gtest/gtest.h>

#include "launch/check.h"

namespace draftsmith {
namespace {

KvCacheOptions small(int64_t rows) {
  KvCacheOptions options;
  options.layers = 2;
  options.rows = rows;
  options.kv_heads = 2;
  options.head_dim = 3;
  options.capacity = 4;
  return options;
}

// Appends `count` tokens to every row; a key's value tells its row, layer and position, a value is its negative.
void append(KvCache& cache, int64_t count) {
  cache.reserve(count);
  for (int64_t layer = 0; layer < 2; ++layer) {
    at::Tensor keys = at::empty({cache.rows(), 2, count, 3});
    for (int64_t r = 0; r < cache.rows(); ++r) {
      for (int64_t i = 0; i < count; ++i)
        keys.select(0, r).select(1, i).fill_(1000. * r + 100. * layer + static_cast<double>(cache.length(r) + i));
    }
    cache.write(layer, keys, -keys);
  }
  cache.advance(std::vector<int64_t>(static_cast<size_t>(cache.rows()), count));
}

// Keys of a row and layer, one per position.
std::vector<float> seen(const KvCache& cache, int64_t row, int64_t layer = 1) {
  std::vector<float> result;
  const int64_t n = cache.length(row);
  for (int64_t i = 0; i < n; ++i) {
    const at::Tensor key = cache.keys(layer, n)[row].select(1, i), value = cache.values(layer, n)[row].select(1, i);
    EXPECT_TRUE(at::equal(key, -value));
    EXPECT_TRUE((key == key[0][0]).all().item<bool>());
    result.push_back(key[0][0].item<float>());
  }
  return result;
}

TEST(KvCache, GrowsWithoutLosingAnything) {
  KvCache cache(small(2));
  append(cache, 3);
  append(cache, 1);
  append(cache, 6);
  EXPECT_GE(cache.capacity(), 10);
  EXPECT_EQ(seen(cache, 1), (std::vector<float>{1100, 1101, 1102, 1103, 1104, 1105, 1106, 1107, 1108, 1109}));
}

TEST(KvCache, RowsOfDifferentLengthGrowEachAtItsOwnEnd) {
  KvCache cache(small(2));
  append(cache, 3);
  cache.truncate(0, 1);
  append(cache, 2);
  EXPECT_EQ(cache.lengths(), (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(seen(cache, 0), (std::vector<float>{100, 101, 102}));
  EXPECT_EQ(seen(cache, 1), (std::vector<float>{1100, 1101, 1102, 1103, 1104}));
}

TEST(KvCache, PackedTokensLandWhereUnpackedOnesDo) {
  KvCache cache(small(2));
  append(cache, 2);
  cache.truncate(1, 1);
  cache.reserve({1, 3});
  const Placement where = cache.place({1, 3});
  EXPECT_EQ(where.starts, (std::vector<int64_t>{0, 1, 4}));
  EXPECT_TRUE(at::equal(where.position, at::tensor({2, 1, 2, 3}, at::kLong)));
  const at::Tensor keys = at::tensor({7, 8, 9, 10}, at::kFloat).view({4, 1, 1}).expand({4, 2, 3});
  for (int64_t layer = 0; layer < 2; ++layer) cache.write_packed(layer, keys, -keys, where);
  cache.advance({1, 3});
  EXPECT_EQ(seen(cache, 0), (std::vector<float>{100, 101, 7}));
  EXPECT_EQ(seen(cache, 1), (std::vector<float>{1100, 8, 9, 10}));
}

TEST(KvCache, KeepsRowsInAnyOrder) {
  for (const std::vector<int64_t>& order :
       {std::vector<int64_t>{0, 3, 2}, std::vector<int64_t>{2, 0}, std::vector<int64_t>{3, 3, 1}}) {
    KvCache cache(small(4));
    append(cache, 3);
    cache.truncate(2, 1);
    std::vector<std::vector<float>> expected;
    for (int64_t row : order) expected.push_back(seen(cache, row));
    cache.keep_rows(order);
    ASSERT_EQ(cache.rows(), static_cast<int64_t>(order.size()));
    for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(seen(cache, static_cast<int64_t>(i)), expected[i]);
    append(cache, 2);
    EXPECT_EQ(cache.length(0), static_cast<int64_t>(expected[0].size()) + 2);
  }
}

TEST(KvCache, TakesOverARowOfAnotherCache) {
  KvCache batch(small(3)), single(small(1));
  append(batch, 2);
  append(single, 9);
  batch.copy_row(1, single, 0);
  EXPECT_EQ(batch.lengths(), (std::vector<int64_t>{2, 9, 2}));
  EXPECT_EQ(seen(batch, 1), seen(single, 0));
  EXPECT_EQ(seen(batch, 2), (std::vector<float>{2100, 2101}));
}

TEST(KvCache, RefusesToPassTheModelsPositions) {
  KvCacheOptions options = small(2);
  options.limit = 5;
  KvCache cache(options);
  append(cache, 4);
  cache.truncate(0, 2);
  EXPECT_NO_THROW(cache.reserve({3, 1}));
  EXPECT_THROW(cache.reserve(2), Error);
  EXPECT_LE(cache.capacity(), 5);
}

TEST(KvCache, RefusesRowsAndLengthsThatAreNotThere) {
  KvCache cache(small(2));
  append(cache, 2);
  EXPECT_THROW(cache.truncate(0, 3), Error);
  EXPECT_THROW(cache.truncate(2, 0), Error);
  EXPECT_THROW(cache.keep_rows({}), Error);
  EXPECT_THROW(cache.keep_rows({2}), Error);
  EXPECT_THROW(cache.write(0, at::ones({2, 2, 3, 3}), at::ones({2, 2, 3, 3})), Error);  // room for 4, holds 2
  EXPECT_THROW(KvCache(KvCacheOptions{}), Error);
}

TEST(KvCache, RemembersThatAPassStoppedEarly) {
  KvCache cache(small(1));
  EXPECT_EQ(cache.filled_layers(), 2);
  cache.reserve(2);
  cache.write(0, at::ones({1, 2, 2, 3}), at::ones({1, 2, 2, 3}));
  cache.advance({2}, 1);
  EXPECT_EQ(cache.filled_layers(), 1);
  cache.truncate(0, 0);
  append(cache, 1);
  EXPECT_EQ(cache.filled_layers(), 2);
}

}  // namespace
}  // namespace draftsmith
