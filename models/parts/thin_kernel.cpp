#include "models/parts/thin_kernel.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

#include "launch/check.h"

namespace draftsmith {
namespace {

using Columns = void (*)(const ThinProduct&, int64_t, int64_t);

Columns columns_of(ThinLanes lanes) {
#if defined(__x86_64__)
  if (lanes == ThinLanes::kAvx512) return thin_detail::avx512;
  if (lanes == ThinLanes::kAvx2) return thin_detail::avx2;
#endif
  DS_CHECK(lanes == ThinLanes::kPortable, "thin product: this build has no {} lanes", thin_lanes_name(lanes));
  return thin_detail::portable;
}

// Shares of about half a MiB of weights, taken by whichever thread is free: a core that is busy elsewhere delays one
// share, not half the product.
void run(const ThinProduct& p, Columns columns) {
  if (p.m == 0 || p.n == 0) return;
  // Waking the threads takes as long as reading 128 KiB of weights.
  const bool small = p.n * p.k < 32 * 1024;
  const int64_t threads = small || at::in_parallel_region() ? 1 : at::get_num_threads();
  if (threads == 1) return columns(p, 0, p.n);
  constexpr int64_t kShareElements = 128 * 1024, kRounding = 24;
  const int64_t shares = threads * std::max<int64_t>(1, p.n * p.k / (threads * kShareElements));
  const int64_t width = ((p.n + shares - 1) / shares + kRounding - 1) / kRounding * kRounding;
  std::atomic<int64_t> next{0};
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    for (int64_t begin; (begin = next.fetch_add(width, std::memory_order_relaxed)) < p.n;) {
      columns(p, begin, std::min(p.n, begin + width));
    }
  });
}

std::vector<ThinLanes> ask_processor() {
  std::vector<ThinLanes> lanes{ThinLanes::kPortable};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    lanes.push_back(ThinLanes::kAvx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      lanes.push_back(ThinLanes::kAvx512);
    }
  }
#endif
  return lanes;
}

}  // namespace

const std::vector<ThinLanes>& thin_lanes_available() {
  static const std::vector<ThinLanes> lanes = ask_processor();
  return lanes;
}

const char* thin_lanes_name(ThinLanes lanes) {
  switch (lanes) {
    case ThinLanes::kAvx512:
      return "AVX-512";
    case ThinLanes::kAvx2:
      return "AVX2";
    case ThinLanes::kPortable:
      return "portable";
  }
  return "unknown";
}

void thin_product(const ThinProduct& product) {
  static const Columns columns = columns_of(thin_lanes_available().back());
  run(product, columns);
}

void thin_product(const ThinProduct& product, ThinLanes lanes) {
  const auto& available = thin_lanes_available();
  DS_CHECK(std::find(available.begin(), available.end(), lanes) != available.end(),
           "thin product: this processor has no {} lanes", thin_lanes_name(lanes));
  run(product, columns_of(lanes));
}

}  // namespace draftsmith
