// Body of fp32_kernels.cpp, included once per instruction set with DS_LANES floats in a vector and DS_TARGET in the
// namespace's name.

#define DS_JOIN2(a, b) a##b
#define DS_JOIN(a, b) DS_JOIN2(a, b)

namespace draftsmith::DS_JOIN(fp32_, DS_TARGET) {

  constexpr int64_t kLanes = DS_LANES;
  typedef float V __attribute__((vector_size(DS_LANES * 4)));
  typedef int32_t I __attribute__((vector_size(DS_LANES * 4)));
  typedef float Unaligned __attribute__((vector_size(DS_LANES * 4), aligned(4), may_alias));

  static inline V load(const float* p) {
    return *reinterpret_cast<const Unaligned*>(p);
  }
  static inline void store(float* p, V v) {
    *reinterpret_cast<Unaligned*>(p) = v;
  }
  static inline V all(float x) {
    return x - V{};
  }

  // Tails go through a padded vector, so that an element's bits do not depend on where it stands.
  static inline V load_part(const float* p, int64_t n, float rest = 0.f) {
    V v = all(rest);
    for (int64_t i = 0; i < n; ++i) v[i] = p[i];
    return v;
  }
  static inline void store_part(float* p, V v, int64_t n) {
    for (int64_t i = 0; i < n; ++i) p[i] = v[i];
  }

  static inline float sum(V v) {
    I lane;
    for (int i = 0; i < DS_LANES; ++i) lane[i] = i;
#if DS_LANES >= 16
    v += __builtin_shuffle(v, lane ^ 8);
#endif
#if DS_LANES >= 8
    v += __builtin_shuffle(v, lane ^ 4);
#endif
    v += __builtin_shuffle(v, lane ^ 2);
    v += __builtin_shuffle(v, lane ^ 1);
    return v[0];
  }

  // e^x for x in [-87.3, 88.3], clamped outside; NaN stays NaN. x = n ln 2 + r with |r| <= ln 2 / 2, then the Taylor
  // series of e^r to r^7 (its rest is below 6e-9 relative) times 2^n put into the exponent bits. ln 2 is split in two
  // so that n ln 2 is exact in its high part without FMA too.
  static inline V exp(V x) {
    x = x < -87.3f ? all(-87.3f) : x;
    x = x > 88.3f ? all(88.3f) : x;
    const V shifted = x * 1.44269504f + 12582912.f;  // 1.5 * 2^23: the integer part lands in the low mantissa bits
    const V n = shifted - 12582912.f;
    const V r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    V p = r * (1.f / 5040.f) + 1.f / 720.f;
    p = p * r + 1.f / 120.f;
    p = p * r + 1.f / 24.f;
    p = p * r + 1.f / 6.f;
    p = p * r + 0.5f;
    p = p * r + 1.f;
    p = p * r + 1.f;
    const I scale = ((I)shifted + 127) << 23;  // a cast between vectors keeps the bits
    return p * (V)scale;
  }

  static void rms_norm(const float* x, const float* w, float* y, float* rstd, int64_t rows, int64_t width, float eps) {
    const int64_t whole = width / kLanes * kLanes, part = width - whole;
    for (int64_t r = 0; r < rows; ++r, x += width, y += width) {
      V total{};
      for (int64_t i = 0; i < whole; i += kLanes) total += load(x + i) * load(x + i);
      if (part) {
        const V last = load_part(x + whole, part);
        total += last * last;
      }
      const float inverse = 1.f / __builtin_sqrtf(sum(total) / static_cast<float>(width) + eps);
      if (rstd) rstd[r] = inverse;
      for (int64_t i = 0; i < whole; i += kLanes) store(y + i, load(w + i) * (load(x + i) * inverse));
      if (part) store_part(y + whole, load_part(w + whole, part) * (load_part(x + whole, part) * inverse), part);
    }
  }

  static void rms_norm_backward(const float* g, const float* x, const float* w, const float* rstd, float* dx, float* dw,
                                int64_t rows, int64_t width) {
    const int64_t whole = width / kLanes * kLanes, part = width - whole;
    for (int64_t r = 0; r < rows; ++r, g += width, x += width) {
      const float inverse = rstd[r];
      if (dx) {
        V total{};
        for (int64_t i = 0; i < whole; i += kLanes) total += load(g + i) * load(w + i) * load(x + i);
        if (part) total += load_part(g + whole, part) * load_part(w + whole, part) * load_part(x + whole, part);
        const float along = sum(total) / static_cast<float>(width) * inverse * inverse;
        for (int64_t i = 0; i < whole; i += kLanes) {
          store(dx + i, (load(g + i) * load(w + i) - load(x + i) * along) * inverse);
        }
        for (int64_t i = whole; i < width; ++i) dx[i] = (g[i] * w[i] - x[i] * along) * inverse;
        dx += width;
      }
      if (dw) {
        for (int64_t i = 0; i < whole; i += kLanes) store(dw + i, load(dw + i) + load(g + i) * (load(x + i) * inverse));
        for (int64_t i = whole; i < width; ++i) dw[i] += g[i] * (x[i] * inverse);
      }
    }
  }

  static void rotate(const float* x, float* y, const float* cos, const float* sin, int64_t head_dim, float sign) {
    const int64_t half = head_dim / 2, whole = half / kLanes * kLanes, part = half - whole;
    for (int64_t i = 0; i < whole; i += kLanes) {
      const V a = load(x + i), b = load(x + half + i), c = load(cos + i), s = load(sin + i) * sign;
      store(y + i, a * c - b * s);
      store(y + half + i, b * c + a * s);
    }
    if (part) {
      const V a = load_part(x + whole, part), b = load_part(x + half + whole, part);
      const V c = load_part(cos + whole, part), s = load_part(sin + whole, part) * sign;
      store_part(y + whole, a * c - b * s, part);
      store_part(y + half + whole, b * c + a * s, part);
    }
  }

  static inline V silu_times(V gate, V up) {
    return gate / (exp(-gate) + 1.f) * up;
  }

  static void swiglu(const float* gate, const float* up, float* y, int64_t n) {
    const int64_t whole = n / kLanes * kLanes, part = n - whole;
    for (int64_t i = 0; i < whole; i += kLanes) store(y + i, silu_times(load(gate + i), load(up + i)));
    if (part) store_part(y + whole, silu_times(load_part(gate + whole, part), load_part(up + whole, part)), part);
  }

  static void swiglu_backward(const float* g, const float* gate, const float* up, float* d_gate, float* d_up,
                              int64_t n) {
    const int64_t whole = n / kLanes * kLanes;
    for (int64_t i = 0; i < n; i += kLanes) {
      const bool full = i < whole;
      const V out = full ? load(g + i) : load_part(g + i, n - i);
      const V x = full ? load(gate + i) : load_part(gate + i, n - i);
      const V u = full ? load(up + i) : load_part(up + i, n - i);
      const V s = 1.f / (exp(-x) + 1.f);
      const V by_gate = out * u * s * (x * (1.f - s) + 1.f), by_up = out * (x * s);
      if (full) {
        store(d_gate + i, by_gate);
        store(d_up + i, by_up);
      } else {
        store_part(d_gate + i, by_gate, n - i);
        store_part(d_up + i, by_up, n - i);
      }
    }
  }

  // R query heads that read the same keys: scores, softmax, weighted values. visible[i] is ascending.
  template <int R>
  static void attend_block(const float* const* q, const float* keys, const float* values, float* const* out,
                           const int64_t* visible, int64_t head_dim, float scale, float* scratch,
                           int64_t scratch_stride) {
    const int64_t whole = head_dim / kLanes * kLanes, part = head_dim - whole;
    const int64_t common = visible[0];
    float* scores[R];
    V best[R];
    float inverse[R];
#pragma GCC unroll 4
    for (int i = 0; i < R; ++i) scores[i] = scratch + i * scratch_stride;

    for (int64_t j = 0; j < visible[R - 1]; ++j) {
      const float* key = keys + j * head_dim;
      if (j < common) {
        V dot[R] = {};
        for (int64_t d = 0; d < whole; d += kLanes) {
          const V k = load(key + d);
#pragma GCC unroll 4
          for (int i = 0; i < R; ++i) dot[i] += load(q[i] + d) * k;
        }
        if (part) {
          const V k = load_part(key + whole, part);
#pragma GCC unroll 4
          for (int i = 0; i < R; ++i) dot[i] += load_part(q[i] + whole, part) * k;
        }
#pragma GCC unroll 4
        for (int i = 0; i < R; ++i) scores[i][j] = sum(dot[i]) * scale;
      } else {
#pragma GCC unroll 4
        for (int i = 0; i < R; ++i) {
          if (j >= visible[i]) continue;
          V dot{};
          for (int64_t d = 0; d < whole; d += kLanes) dot += load(q[i] + d) * load(key + d);
          if (part) dot += load_part(q[i] + whole, part) * load_part(key + whole, part);
          scores[i][j] = sum(dot) * scale;
        }
      }
    }

#pragma GCC unroll 4
    for (int i = 0; i < R; ++i) {
      const int64_t n = visible[i], full = n / kLanes * kLanes, rest = n - full;
      best[i] = all(scores[i][0]);
      for (int64_t j = 0; j < full; j += kLanes) {
        const V s = load(scores[i] + j);
        best[i] = s > best[i] ? s : best[i];
      }
      if (rest) {
        const V s = load_part(scores[i] + full, rest, scores[i][0]);
        best[i] = s > best[i] ? s : best[i];
      }
      float top = best[i][0];
      for (int64_t l = 1; l < kLanes; ++l) top = best[i][l] > top ? best[i][l] : top;
      V total{};
      for (int64_t j = 0; j < full; j += kLanes) {
        const V e = exp(load(scores[i] + j) - top);
        store(scores[i] + j, e);
        total += e;
      }
      float tail = 0;
      if (rest) {
        const V e = exp(load_part(scores[i] + full, rest) - top);
        store_part(scores[i] + full, e, rest);
        for (int64_t l = 0; l < rest; ++l) tail += e[l];
      }
      inverse[i] = 1.f / (sum(total) + tail);
    }

    int64_t d = 0;
    for (; d + 2 * kLanes <= head_dim; d += 2 * kLanes) {
      V a[R] = {}, b[R] = {};
      for (int64_t j = 0; j < common; ++j) {
        const V v0 = load(values + j * head_dim + d), v1 = load(values + j * head_dim + d + kLanes);
#pragma GCC unroll 4
        for (int i = 0; i < R; ++i) {
          a[i] += scores[i][j] * v0;
          b[i] += scores[i][j] * v1;
        }
      }
#pragma GCC unroll 4
      for (int i = 0; i < R; ++i) {
        for (int64_t j = common; j < visible[i]; ++j) {
          a[i] += scores[i][j] * load(values + j * head_dim + d);
          b[i] += scores[i][j] * load(values + j * head_dim + d + kLanes);
        }
        store(out[i] + d, a[i] * inverse[i]);
        store(out[i] + d + kLanes, b[i] * inverse[i]);
      }
    }
    for (; d < head_dim; d += kLanes) {
      const int64_t n = head_dim - d < kLanes ? head_dim - d : kLanes;
#pragma GCC unroll 4
      for (int i = 0; i < R; ++i) {
        V a{};
        for (int64_t j = 0; j < visible[i]; ++j) {
          a += scores[i][j] * (n == kLanes ? load(values + j * head_dim + d) : load_part(values + j * head_dim + d, n));
        }
        store_part(out[i] + d, a * inverse[i], n);
      }
    }
  }

  static void attend(const AttendArgs& a, int64_t begin, int64_t end, float* scratch) {
    const int64_t group = a.heads / a.kv_heads;
    int64_t row = 0;
    for (int64_t item = begin; item < end;) {
      while (a.starts[row + 1] * a.heads <= item) ++row;
      const int64_t queries = a.starts[row + 1] - a.starts[row], per_kv = queries * group;
      const int64_t in_row = item - a.starts[row] * a.heads, kv = in_row / per_kv, first = in_row % per_kv;
      const float* keys = a.keys + row * a.row_stride + kv * a.head_stride;
      const float* values = a.values + row * a.row_stride + kv * a.head_stride;
      const int64_t left = per_kv - first < end - item ? per_kv - first : end - item;
      const int64_t visible_most = a.past[row] + queries;
      for (int64_t done = 0; done < left;) {
        const int64_t count = left - done >= 4 ? 4 : 1;
        const float* q[4];
        float* out[4];
        int64_t visible[4];
        for (int64_t i = 0; i < count; ++i) {
          const int64_t query = (first + done + i) / group, head = kv * group + (first + done + i) % group;
          const int64_t at = ((a.starts[row] + query) * a.heads + head) * a.head_dim;
          q[i] = a.q + at;
          out[i] = a.out + at;
          visible[i] = a.past[row] + query + 1;
        }
        if (count == 4) {
          attend_block<4>(q, keys, values, out, visible, a.head_dim, a.scale, scratch, visible_most + 16);
        } else {
          attend_block<1>(q, keys, values, out, visible, a.head_dim, a.scale, scratch, visible_most + 16);
        }
        done += count;
      }
      item += left;
    }
  }

  static Fp32Kernels table(const char* name) {
    return {name, rms_norm, rms_norm_backward, rotate, swiglu, swiglu_backward, attend};
  }

}  // namespace draftsmith::DS_JOIN(fp32_,DS_TARGET)

#undef DS_JOIN
#undef DS_JOIN2
