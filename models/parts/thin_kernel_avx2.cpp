// The thin product in 8 lanes of AVX2 with FMA. Chosen at run time (thin_kernel.cpp); nothing else is compiled for it.
#include "models/parts/thin_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

#pragma GCC target("avx2,fma")

namespace draftsmith::thin_detail {
namespace {

struct Lanes {
  using Vector = __m256;
  static constexpr int64_t kWidth = 8;
  static constexpr int kMaxRows = 4;
  // 16 registers: M * R sums, R weights, one row.
  static constexpr int kTile[kMaxRows + 1] = {0, 8, 4, 3, 3};
  static constexpr int64_t kPanel = 24;

  static inline Vector zero() { return _mm256_setzero_ps(); }
  static inline Vector load(const float* p) { return _mm256_loadu_ps(p); }
  static inline Vector load_first(const float* p, int64_t count) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane));
  }
  static inline Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }

  // 8 -> 4 lanes by halves, then (0 + 1) + (2 + 3).
  static inline __m128 half(Vector a) { return _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)); }
  static inline void sum4(Vector a, Vector b, Vector c, Vector d, float* out) {
    _mm_storeu_ps(out, _mm_hadd_ps(_mm_hadd_ps(half(a), half(b)), _mm_hadd_ps(half(c), half(d))));
  }
  static inline float sum(Vector a) {
    const __m128 pairs = _mm_hadd_ps(half(a), half(a));
    return _mm_cvtss_f32(_mm_hadd_ps(pairs, pairs));
  }
};

}  // namespace
}  // namespace draftsmith::thin_detail

#include "models/parts/thin_kernel_tile.h"

namespace draftsmith::thin_detail {
void avx2(const ThinProduct& product, int64_t begin, int64_t end) {
  columns(product, begin, end);
}
}  // namespace draftsmith::thin_detail
#endif
