#include "models/parts/library_product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <cblas.h>

#include <atomic>
#include <chrono>
#include <mutex>

#include "launch/check.h"

namespace draftsmith {
namespace {

struct Operand {
  const float* data;
  int64_t row, column;  // strides in elements; one of them is 1

  bool transposed() const { return column != 1; }
  blasint leading() const { return static_cast<blasint>(transposed() ? column : row); }
};

// Rows or columns contiguous, and a leading dimension that BLAS takes (at least the contiguous length); otherwise a
// copy, kept alive in `keep`.
Operand operand(const at::Tensor& t, at::Tensor& keep) {
  const int64_t rows = t.size(0), columns = t.size(1);
  if (t.stride(1) == 1 && (t.stride(0) >= std::max<int64_t>(1, columns))) return {t.data_ptr<float>(), t.stride(0), 1};
  if (t.stride(0) == 1 && t.stride(1) >= std::max<int64_t>(2, rows)) return {t.data_ptr<float>(), 1, t.stride(1)};
  keep = at::empty({rows, columns}, t.options()).copy_(t);
  return {keep.data_ptr<float>(), std::max<int64_t>(1, columns), 1};
}

// How many parts of rows and of columns: every part packs its operands anew, so as little as possible is packed for the
// number wanted.
std::pair<int64_t, int64_t> grid(int64_t m, int64_t n, int64_t k, int64_t threads) {
  constexpr int64_t kSmallestSide = 32;
  // Two parts a thread let a free core help a delayed one; below 25 MFLOP a part the calls cost more than that saves.
  const int64_t wanted = m * n * k > threads * 2 * 12'500'000 ? 2 * threads : threads;
  std::pair<int64_t, int64_t> best{1, 1};
  int64_t best_parts = 1, best_packed = m * k + n * k;
  for (int64_t gm = 1; gm <= wanted && (gm == 1 || m / gm >= kSmallestSide); ++gm) {
    const int64_t gn = std::min(std::max<int64_t>(1, n / kSmallestSide), wanted / gm);
    const int64_t parts = gm * gn, packed = gn * m * k + gm * n * k;
    if (parts > best_parts || (parts == best_parts && packed < best_packed)) {
      best = {gm, gn};
      best_parts = parts;
      best_packed = packed;
    }
  }
  return best;
}

void openblas_product(const at::Tensor& a_any, const at::Tensor& b_any, at::Tensor& c, bool add) {
  static const bool single = (scipy_openblas_set_num_threads(1), true);
  static_cast<void>(single);
  at::Tensor keep_a, keep_b;
  const Operand a = operand(a_any, keep_a), b = operand(b_any, keep_b);
  const int64_t m = c.size(0), n = c.size(1), k = a_any.size(1);
  constexpr int64_t kLargest = std::numeric_limits<blasint>::max();
  DS_CHECK(std::max({m, n, k, a.row, a.column, b.row, b.column, c.stride(0)}) <= kLargest,
           "product of [{}, {}] and [{}, {}]: a side is longer than OpenBLAS counts ({})", m, k, k, n, kLargest);
  float* out = c.data_ptr<float>();
  const int64_t ldc = std::max<int64_t>(c.stride(0), n);
  const auto part = [&](int64_t m0, int64_t m1, int64_t n0, int64_t n1) {
    scipy_cblas_sgemm(CblasRowMajor, a.transposed() ? CblasTrans : CblasNoTrans,
                      b.transposed() ? CblasTrans : CblasNoTrans, static_cast<blasint>(m1 - m0),
                      static_cast<blasint>(n1 - n0), static_cast<blasint>(k), 1.0f, a.data + m0 * a.row, a.leading(),
                      b.data + n0 * b.column, b.leading(), add ? 1.0f : 0.0f, out + m0 * ldc + n0,
                      static_cast<blasint>(ldc));
  };
  const int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  if (threads == 1) return part(0, m, 0, n);
  const auto [gm, gn] = grid(m, n, k, threads);
  // Part g of `parts` ends at a multiple of 16: whole vectors of C.
  const auto edge = [](int64_t size, int64_t parts, int64_t g) {
    return g == parts ? size : std::min(size, (size * g / parts + 15) / 16 * 16);
  };
  std::atomic<int64_t> next{0};
  at::parallel_for(0, threads, 1, [&, gm = gm, gn = gn](int64_t, int64_t) {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < gm * gn;) {
      const int64_t im = i % gm, in = i / gm;
      const int64_t m0 = edge(m, gm, im), m1 = edge(m, gm, im + 1), n0 = edge(n, gn, in), n1 = edge(n, gn, in + 1);
      if (m0 < m1 && n0 < n1) part(m0, m1, n0, n1);
    }
  });
}

struct Choice {
  ProductLibrary library;
  double openblas, aten;  // GFLOP/s
};

// Some rows of a training step of a small model against one of its matrices: under a millisecond a product, so that
// some of the repeats run undisturbed on a busy machine. ATen is taken when it is clearly faster in the best of the
// repeats and in most pairs: two libraries of about one speed then do not change places between two runs.
Choice measure() {
  constexpr int64_t m = 128, k = 576, n = 576;
  constexpr int kRepeats = 16, kMost = 13;
  constexpr double kClearly = 1.3;
  const at::Tensor a = at::ones({m, k}), b = at::ones({n, k}).t();
  at::Tensor c = at::empty({m, n});
  const auto seconds = [&](ProductLibrary library) {
    const auto start = std::chrono::steady_clock::now();
    library_product(a, b, c, false, library);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  double openblas = seconds(ProductLibrary::kOpenBlas), aten = seconds(ProductLibrary::kAten);  // warm-up
  int faster = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const double first = seconds(ProductLibrary::kOpenBlas), second = seconds(ProductLibrary::kAten);
    faster += first > kClearly * second;
    openblas = std::min(openblas, first);
    aten = std::min(aten, second);
  }
  const bool take_aten = faster >= kMost && openblas > kClearly * aten;
  const double flop = 2e-9 * m * k * n;
  return {take_aten ? ProductLibrary::kAten : ProductLibrary::kOpenBlas, flop / openblas, flop / aten};
}

const Choice& measured() {
  static const Choice choice = measure();
  return choice;
}

std::atomic<int> asked_for{-1};

}  // namespace

ProductLibrary product_library() {
  const int asked = asked_for.load(std::memory_order_relaxed);
  return asked >= 0 ? static_cast<ProductLibrary>(asked) : measured().library;
}

void use_product_library(ProductLibrary library) {
  asked_for = static_cast<int>(library);
}

std::string product_library_note() {
  const Choice& choice = measured();
  const bool openblas = product_library() == ProductLibrary::kOpenBlas;
  return fmt::format("{} ({:.0f} GFLOP/s, {} {:.0f}, {} threads)", openblas ? "OpenBLAS" : "ATen",
                     openblas ? choice.openblas : choice.aten, openblas ? "ATen" : "OpenBLAS",
                     openblas ? choice.aten : choice.openblas, at::get_num_threads());
}

void library_product(const at::Tensor& a, const at::Tensor& b, at::Tensor& c, bool add) {
  library_product(a, b, c, add, product_library());
}

void library_product(const at::Tensor& a, const at::Tensor& b, at::Tensor& c, bool add, ProductLibrary library) {
  if (c.numel() == 0) return;
  if (a.size(1) == 0) {
    if (!add) c.zero_();
    return;
  }
  if (library == ProductLibrary::kOpenBlas) return openblas_product(a, b, c, add);
  if (add) {
    c.addmm_(a, b);
  } else {
    at::mm_out(c, a, b);
  }
}

}  // namespace draftsmith
