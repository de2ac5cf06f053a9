// The few fp32 CPU loops that ATen would run as several passes: norm, rotation, SwiGLU, causal attention.
//
// One source (fp32_kernels.inl) is compiled for AVX-512, AVX2 and the baseline; the best that the CPU has is chosen at
// the first call. Every result depends only on its own row, head or element, never on how many are computed together or
// by how many threads: a token verified in a block gets the same bits as a token decoded alone. Pointers are borrowed;
// nothing is checked here (norm.cpp, rope.cpp, mlp.cpp, attention.cpp do that).
#pragma once

#include <cstdint>

namespace draftsmith {

// Keys and values of one layer for a ragged batch of packed queries.
struct AttendArgs {
  const float* q;         // [N, heads, head_dim]
  const float* keys;      // [rows, kv_heads, capacity, head_dim], strides below, last dimension dense
  const float* values;    // same strides
  float* out;             // [N, heads, head_dim]
  const int64_t* starts;  // [rows + 1]: queries starts[r] .. starts[r + 1] belong to row r
  const int64_t* past;    // [rows]: query i of row r sees keys 0 .. past[r] + i
  int64_t rows, heads, kv_heads, head_dim;
  int64_t row_stride, head_stride;  // of keys and values, in floats
  float scale;
};

struct Fp32Kernels {
  const char* name;
  // y = w * (x * rstd), rstd = 1 / sqrt(mean(x^2) + eps) per row; `rstd` [rows] may be null.
  void (*rms_norm)(const float* x, const float* w, float* y, float* rstd, int64_t rows, int64_t width, float eps);
  // dx = rstd (g w - x rstd^2 mean(g w x)); dw += sum over rows of g x rstd. Either output may be null.
  void (*rms_norm_backward)(const float* g, const float* x, const float* w, const float* rstd, float* dx, float* dw,
                            int64_t rows, int64_t width);
  // One head: y = x rotated by cos and sin [head_dim / 2], half-split; sign -1 turns back. y may be x.
  void (*rotate)(const float* x, float* y, const float* cos, const float* sin, int64_t head_dim, float sign);
  // y = silu(gate) * up over n elements; y may be gate.
  void (*swiglu)(const float* gate, const float* up, float* y, int64_t n);
  // d_gate and d_up of swiglu for the incoming gradient g.
  void (*swiglu_backward)(const float* g, const float* gate, const float* up, float* d_gate, float* d_up, int64_t n);
  // Query heads begin..end of the flat order (row, kv head, query, head within the group). `scratch` holds
  // attend_scratch() floats.
  void (*attend)(const AttendArgs& args, int64_t begin, int64_t end, float* scratch);
};

// Floats of scratch that attend needs when no query sees more than `visible` keys.
inline int64_t attend_scratch(int64_t visible) {
  return 4 * (visible + 16);
}

const Fp32Kernels& fp32_kernels();

}  // namespace draftsmith
