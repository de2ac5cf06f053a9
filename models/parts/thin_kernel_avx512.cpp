// The thin product in 16 lanes of AVX-512. Chosen at run time (thin_kernel.cpp); nothing else is compiled for it.
#include "models/parts/thin_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

#pragma GCC target("avx512f,avx512dq,avx512vl,avx2,fma")

namespace draftsmith::thin_detail {
namespace {

struct Lanes {
  using Vector = __m512;
  static constexpr int64_t kWidth = 16;
  static constexpr int kMaxRows = 6;
  // 32 registers: M * R sums, R weights, one row.
  static constexpr int kTile[kMaxRows + 1] = {0, 4, 4, 4, 4, 4, 4};
  static constexpr int64_t kPanel = 4;

  static inline Vector zero() { return _mm512_setzero_ps(); }
  static inline Vector load(const float* p) { return _mm512_loadu_ps(p); }
  static inline Vector load_first(const float* p, int64_t count) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p);
  }
  static inline Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }

  // 16 -> 8 -> 4 lanes by halves, then (0 + 1) + (2 + 3). The compiler's shuffle: the header's extract intrinsics warn
  // of an uninitialised value that is not there (gcc 12, its bug 105593).
  static inline __m128 quarter(Vector a) {
    const __m256 low = __builtin_shufflevector(a, a, 0, 1, 2, 3, 4, 5, 6, 7);
    const __m256 high = __builtin_shufflevector(a, a, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m256 half = _mm256_add_ps(low, high);
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  }
  static inline void sum4(Vector a, Vector b, Vector c, Vector d, float* out) {
    _mm_storeu_ps(out, _mm_hadd_ps(_mm_hadd_ps(quarter(a), quarter(b)), _mm_hadd_ps(quarter(c), quarter(d))));
  }
  static inline float sum(Vector a) {
    const __m128 pairs = _mm_hadd_ps(quarter(a), quarter(a));
    return _mm_cvtss_f32(_mm_hadd_ps(pairs, pairs));
  }
};

}  // namespace
}  // namespace draftsmith::thin_detail

#include "models/parts/thin_kernel_tile.h"

namespace draftsmith::thin_detail {
void avx512(const ThinProduct& product, int64_t begin, int64_t end) {
  columns(product, begin, end);
}
}  // namespace draftsmith::thin_detail
#endif
