// The loops of the thin product, the same for every instruction set. Not a header for general use: a source defines
// `Lanes` in draftsmith::thin_detail and includes this file once, inside its own compile target, so everything here has
// internal linkage.
//
// Lanes gives: Vector, kWidth; kMaxRows (rows of x in one tile), kTile[m] (weight rows in a tile of m rows: what the
// registers hold, and what leaves room in the first-level cache for x and the tile that is being fetched), kPanel
// (weight rows that stay in cache while the groups of x's rows pass over them, a multiple of every kTile); zero, load,
// load_first(p, count) with zeros behind, multiply_add, sum4(a, b, c, d, float[4]) and sum(a): the same additions in
// the same order.

namespace draftsmith::thin_detail {
namespace {

// y[i0 .. i0+M, j0 .. j0+R]. One accumulator per output and one pass over k: the order does not depend on M or R.
template <int M, int R>
inline void tile(const ThinProduct& p, int64_t i0, int64_t j0) {
  using Vector = typename Lanes::Vector;
  constexpr int64_t kWidth = Lanes::kWidth, kLine = 64 / sizeof(float);
  constexpr int64_t kLines = (R * kWidth + kLine - 1) / kLine;  // cache lines of w that a step consumes
  Vector sums[M * R];
#pragma GCC unroll 32
  for (int s = 0; s < M * R; ++s) sums[s] = Lanes::zero();
  const float* x = p.x + i0 * p.ldx;
  const float* w = p.w + j0 * p.ldw;
  const int64_t ldx = p.ldx, ldw = p.ldw, k = p.k, whole = k / kWidth * kWidth;
  // The next tile is fetched while this one is multiplied, in the order of memory: R rows fetched side by side arrive
  // at half the rate (13 against 20 GB/s on one core, 30 with huge pages; Zen 4).
  const float* ahead = w + R * ldw;
  for (int64_t at = 0; at < whole; at += kWidth) {
#pragma GCC unroll 16
    for (int64_t line = 0; line < kLines; ++line) __builtin_prefetch(ahead + at * R + line * kLine);
    Vector weights[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) weights[r] = Lanes::load(w + r * ldw + at);
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      const Vector row = Lanes::load(x + i * ldx + at);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) sums[i * R + r] = Lanes::multiply_add(row, weights[r], sums[i * R + r]);
    }
  }
  if (whole < k) {
    const int64_t left = k - whole;
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      const Vector row = Lanes::load_first(x + i * ldx + whole, left);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        sums[i * R + r] = Lanes::multiply_add(row, Lanes::load_first(w + r * ldw + whole, left), sums[i * R + r]);
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
    const Vector* row = sums + i * R;
    float* y = p.y + (i0 + i) * p.ldy + j0;
#pragma GCC unroll 16
    for (int r = 0; r + 4 <= R; r += 4) Lanes::sum4(row[r], row[r + 1], row[r + 2], row[r + 3], y + r);
#pragma GCC unroll 16
    for (int r = R / 4 * 4; r < R; ++r) y[r] = Lanes::sum(row[r]);
    if (p.bias != nullptr) {
      for (int r = 0; r < R; ++r) y[r] += p.bias[j0 + r];
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
  const int64_t panel = groups == 1 ? end - begin : Lanes::kPanel;
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
