// The thin product in 4 lanes of the compiler's own vectors: what every processor runs.
#include <cstring>

#include "models/parts/thin_kernel.h"

namespace draftsmith::thin_detail {
namespace {

struct Lanes {
  typedef float Vector __attribute__((vector_size(16)));
  static constexpr int64_t kWidth = 4;
  static constexpr int kMaxRows = 4;
  static constexpr int kTile[kMaxRows + 1] = {0, 8, 4, 3, 2};
  static constexpr int64_t kPanel = 24;

  static inline Vector zero() { return Vector{0, 0, 0, 0}; }
  static inline Vector load(const float* p) { return load_first(p, kWidth); }
  static inline Vector load_first(const float* p, int64_t count) {
    Vector v{0, 0, 0, 0};
    std::memcpy(&v, p, static_cast<size_t>(count) * sizeof(float));
    return v;
  }
  static inline Vector multiply_add(Vector a, Vector b, Vector c) { return a * b + c; }
  static inline float sum(Vector a) { return (a[0] + a[1]) + (a[2] + a[3]); }
  static inline void sum4(Vector a, Vector b, Vector c, Vector d, float* out) {
    out[0] = sum(a);
    out[1] = sum(b);
    out[2] = sum(c);
    out[3] = sum(d);
  }
};

}  // namespace
}  // namespace draftsmith::thin_detail

#include "models/parts/thin_kernel_tile.h"

namespace draftsmith::thin_detail {
void portable(const ThinProduct& product, int64_t begin, int64_t end) {
  columns(product, begin, end);
}
}  // namespace draftsmith::thin_detail
