#include "models/parts/vector_math.h"

#include <bit>
#include <cmath>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define DS_VECTOR __attribute__((target_clones("arch=haswell", "default"), optimize("O3")))
#else
#define DS_VECTOR
#endif

namespace draftsmith {

namespace {

constexpr int64_t kLanes = 8;

// e^x for -87 <= x <= 0: x = n ln2 + r, |r| <= ln2/2; 2^n by the exponent bits. Adding 1.5 * 2^23 rounds to the nearest
// integer.
inline float exp_reduced(float x) {
  constexpr float kRound = 12582912.0f;
  const float clamped = x < -87.0f ? -87.0f : x;
  const float shifted = clamped * 1.44269504f + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;  // ln 2 in two parts
  float p = 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const int32_t power = (std::bit_cast<int32_t>(shifted) << 23) + std::bit_cast<int32_t>(1.0f);
  return x < -87.0f ? 0.0f : p * std::bit_cast<float>(power);
}

template <class T>
inline T max_loop(const T* x, int64_t n) {
  T lanes[kLanes];
  for (int64_t j = 0; j < kLanes; ++j) lanes[j] = x[0];
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
  T most = lanes[0];
  for (int64_t j = 1; j < kLanes; ++j) most = lanes[j] > most ? lanes[j] : most;
  for (; i < n; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

template <class T>
inline T sum_lanes(const T* lanes) {
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

template <class T>
inline T dot_loop(const T* x, const T* y, int64_t n) {
  T lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] += x[i + j] * y[i + j];
  T sum = sum_lanes(lanes);
  for (; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

}  // namespace

DS_VECTOR float max_of(const float* x, int64_t n) {
  return max_loop(x, n);
}
double max_of(const double* x, int64_t n) {
  return max_loop(x, n);
}

DS_VECTOR float exp_minus(float* x, int64_t n, float shift) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) {
      const float e = exp_reduced(x[i + j] - shift);
      x[i + j] = e;
      lanes[j] += e;
    }
  float sum = sum_lanes(lanes);
  for (; i < n; ++i) {
    x[i] = exp_reduced(x[i] - shift);
    sum += x[i];
  }
  return sum;
}

double exp_minus(double* x, int64_t n, double shift) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] = std::exp(x[i] - shift);
  return sum;
}

DS_VECTOR void scale(float* x, int64_t n, float factor) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}
void scale(double* x, int64_t n, double factor) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

DS_VECTOR float dot(const float* x, const float* y, int64_t n) {
  return dot_loop(x, y, n);
}
double dot(const double* x, const double* y, int64_t n) {
  return dot_loop(x, y, n);
}

DS_VECTOR void softmax_backward(float* d, const float* p, int64_t n, float inner, float factor) {
  for (int64_t i = 0; i < n; ++i) d[i] = p[i] * (d[i] - inner) * factor;
}
void softmax_backward(double* d, const double* p, int64_t n, double inner, double factor) {
  for (int64_t i = 0; i < n; ++i) d[i] = p[i] * (d[i] - inner) * factor;
}

}  // namespace draftsmith
