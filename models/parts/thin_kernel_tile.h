// The loops of the thin product, the same for every instruction set. Not a header for general use: a source defines
// `Lanes` in draftsmith::thin_detail and includes this file once, inside its own compile target, so everything here has
// internal linkage.
//
// Lanes gives: Vector, kWidth, kMaxRows (rows of x in one tile), kTile[m] (weight rows in a tile of m rows, a divisor
// of kPanel: what the registers hold), load, load_first(p, count) with zeros behind, multiply_add, sum4(a, b, c, d,
// float[4]) and sum(a): the same additions in the same order.

namespace draftsmith::thin_detail {
namespace {

constexpr int64_t kPanel = 24;  // weight rows that stay in cache while the groups of x's rows pass over them

// y[i0 .. i0+M, j0 .. j0+R]. One accumulator per output and one pass over k: the order does not depend on M or R.
template <int M, int R>
inline void tile(const ThinProduct& p, int64_t i0, int64_t j0) {
  typename Lanes::Vector sums[M][R];
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) sums[i][r] = Lanes::zero();
  }
  const float* x = p.x + i0 * p.ldx;
  const float* w = p.w + j0 * p.ldw;
  const int64_t ldx = p.ldx, ldw = p.ldw, k = p.k;
  int64_t at = 0;
  for (; at + Lanes::kWidth <= k; at += Lanes::kWidth) {
    typename Lanes::Vector weights[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      weights[r] = Lanes::load(w + r * ldw + at);
      // The next tile's row at the same place: short rows end before the processor's own prefetch has found its stride.
      __builtin_prefetch(w + (R + r) * ldw + at);
    }
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      const typename Lanes::Vector row = Lanes::load(x + i * ldx + at);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) sums[i][r] = Lanes::multiply_add(row, weights[r], sums[i][r]);
    }
  }
  if (at < k) {
    const int64_t left = k - at;
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      const typename Lanes::Vector row = Lanes::load_first(x + i * ldx + at, left);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        sums[i][r] = Lanes::multiply_add(row, Lanes::load_first(w + r * ldw + at, left), sums[i][r]);
      }
    }
  }
  const float* bias = p.bias;
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
    float* y = p.y + (i0 + i) * p.ldy + j0;
#pragma GCC unroll 16
    for (int r = 0; r + 4 <= R; r += 4) Lanes::sum4(sums[i][r], sums[i][r + 1], sums[i][r + 2], sums[i][r + 3], y + r);
#pragma GCC unroll 16
    for (int r = R / 4 * 4; r < R; ++r) y[r] = Lanes::sum(sums[i][r]);
    if (bias != nullptr) {
      for (int r = 0; r < R; ++r) y[r] += bias[j0 + r];
    }
  }
}

template <int M>
void rows(const ThinProduct& p, int64_t i0, int64_t begin, int64_t end) {
  constexpr int R = Lanes::kTile[M];
  int64_t j = begin;
  for (; j + R <= end; j += R) tile<M, R>(p, i0, j);
  for (; j < end; ++j) tile<M, 1>(p, i0, j);
}

template <int M = Lanes::kMaxRows>
void rows_of(int64_t count, const ThinProduct& p, int64_t i0, int64_t begin, int64_t end) {
  if constexpr (M >= 1) {
    if (count == M) return rows<M>(p, i0, begin, end);
    rows_of<M - 1>(count, p, i0, begin, end);
  }
}

void columns(const ThinProduct& p, int64_t begin, int64_t end) {
  const int64_t groups = (p.m + Lanes::kMaxRows - 1) / Lanes::kMaxRows;
  const int64_t panel = groups == 1 ? end - begin : kPanel;
  for (int64_t j = begin; j < end; j += panel) {
    const int64_t stop = j + panel < end ? j + panel : end;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t i0 = p.m * g / groups, i1 = p.m * (g + 1) / groups;
      rows_of(i1 - i0, p, i0, j, stop);
    }
  }
}

}  // namespace
}  // namespace draftsmith::thin_detail
