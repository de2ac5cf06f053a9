#include "models/parts/fp32_kernels.h"

// Vectors are passed between inlined functions only; the note about their calling convention does not apply.
#pragma GCC diagnostic ignored "-Wpsabi"

// The body uses no library templates: one instantiated under a target pragma could be linked into code for other CPUs.
#if defined(__x86_64__)

#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")
#define DS_LANES 16
#define DS_TARGET avx512
#include "models/parts/fp32_kernels.inl"
#undef DS_LANES
#undef DS_TARGET
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define DS_LANES 8
#define DS_TARGET avx2
#include "models/parts/fp32_kernels.inl"
#undef DS_LANES
#undef DS_TARGET
#pragma GCC pop_options

#endif

#define DS_LANES 4
#define DS_TARGET baseline
#include "models/parts/fp32_kernels.inl"
#undef DS_LANES
#undef DS_TARGET

namespace draftsmith {

const Fp32Kernels& fp32_kernels() {
  static const Fp32Kernels chosen = [] {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl")) {
      return fp32_avx512::table("AVX-512");
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return fp32_avx2::table("AVX2");
#endif
    return fp32_baseline::table("baseline");
  }();
  return chosen;
}

}  // namespace draftsmith
