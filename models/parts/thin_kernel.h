// The product of a few rows of activations with a weight matrix: y[i, j] = sum_k x[i, k] w[j, k] + bias[j], fp32 on a
// CPU.
//
// Decoding one token, or verifying a handful, is a matter of reading the weights once: a library's product repacks them
// on every call. This one reads each weight row once, straight from where it lies (a mapped file too), against all rows
// of activations at the same time.
//
// Every y[i, j] is added up in one order that depends on k alone: not on the number of rows, the tile, the thread or
// the split. So row i of an m-row product is, bit for bit, the 1-row product of that row, and verifying drafted tokens
// gives the logits that decoding them one by one gives. Across instruction sets the order differs (16, 8 or 4 lanes):
// bits are the same on one machine, not between machines.
#pragma once

#include <cstdint>
#include <vector>

namespace draftsmith {

// Sizes in elements. Rows of x and w are contiguous; ldx, ldw, ldy are the distances between rows.
struct ThinProduct {
  const float* x;  // [m, k]
  int64_t ldx;
  const float* w;  // [n, k]
  int64_t ldw;
  const float* bias;  // [n], or null
  float* y;           // [m, n]
  int64_t ldy;
  int64_t m, n, k;
};

enum class ThinLanes { kPortable, kAvx2, kAvx512 };

// What this processor can run, best last, asked once at run time.
const std::vector<ThinLanes>& thin_lanes_available();
const char* thin_lanes_name(ThinLanes lanes);

// Runs the product on at::get_num_threads() threads with the best lanes, or with those asked for (tests, benches).
void thin_product(const ThinProduct& product);
void thin_product(const ThinProduct& product, ThinLanes lanes);

// Up to how many rows it beats the library's product (tests/bench/linear_bench prints the crossing).
inline constexpr int64_t kThinRows = 32;

// One source each, compiled for its instruction set: columns [begin, end) of y, on the calling thread.
namespace thin_detail {
void portable(const ThinProduct& product, int64_t begin, int64_t end);
void avx2(const ThinProduct& product, int64_t begin, int64_t end);
void avx512(const ThinProduct& product, int64_t begin, int64_t end);
}  // namespace thin_detail

}  // namespace draftsmith
