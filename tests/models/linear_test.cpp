#include "models/parts/linear.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "launch/check.h"
#include "models/parts/library_product.h"
#include "models/parts/thin_kernel.h"

using namespace draftsmith;

namespace {

// Numbers of one scale: a sum of k products of them has an error of about sqrt(k) * 2^-24 * scale; 1e-5 * sqrt(k) is
// 100 times that and still finds one missing term of size 1.
double tolerance(int64_t k) {
  return 1e-5 * std::sqrt(static_cast<double>(std::max<int64_t>(k, 1)));
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0) return a.sizes() == b.sizes() ? 0 : 1;
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

at::Tensor in_double(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias = {}) {
  at::Tensor y = at::matmul(x.detach().to(at::kDouble), w.detach().to(at::kDouble).t());
  return bias.defined() ? y + bias.detach().to(at::kDouble) : y;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && at::equal(a, b);
}

at::Tensor thin(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, ThinLanes lanes) {
  // Surrounded by a marker: a write outside y is found.
  at::Tensor around = at::full({x.size(0) + 2, w.size(0) + 2}, 7.0f);
  at::Tensor y = around.narrow(0, 1, x.size(0)).narrow(1, 1, w.size(0));
  thin_product({.x = x.data_ptr<float>(),
                .ldx = x.stride(0),
                .w = w.data_ptr<float>(),
                .ldw = w.stride(0),
                .bias = bias.defined() ? bias.data_ptr<float>() : nullptr,
                .y = y.data_ptr<float>(),
                .ldy = y.stride(0),
                .m = x.size(0),
                .n = w.size(0),
                .k = x.size(1)},
               lanes);
  at::Tensor result = y.clone();
  y.fill_(7.0f);
  EXPECT_TRUE(at::all(around == 7.0f).item<bool>()) << "the thin product wrote outside its result";
  return result;
}

struct Threads {
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  int before_;
};

}  // namespace

TEST(ThinProduct, EqualsDoublePrecisionForEverySetOfLanesAndOddSizes) {
  at::manual_seed(1);
  for (const ThinLanes lanes : thin_lanes_available()) {
    for (const int64_t k : {1, 3, 8, 15, 16, 17, 33, 100, 577}) {
      for (const int64_t n : {1, 2, 3, 5, 24, 25, 131}) {
        const at::Tensor w = at::randn({n, k}), bias = at::randn({n});
        for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 32}) {
          const at::Tensor x = at::randn({m, k});
          ASSERT_LT(distance(thin(x, w, {}, lanes), in_double(x, w)), tolerance(k))
              << thin_lanes_name(lanes) << " " << m << " " << n << " " << k;
          ASSERT_LT(distance(thin(x, w, bias, lanes), in_double(x, w, bias)), tolerance(k))
              << m << " " << n << " " << k;
        }
      }
    }
  }
}

TEST(ThinProduct, ReadsNothingBehindTheEndOfARow) {
  // Rows of a wider matrix: what stands behind each row is NaN, and would show in the sum.
  for (const ThinLanes lanes : thin_lanes_available()) {
    for (const int64_t k : {1, 5, 16, 19}) {
      at::Tensor wide_x = at::full({5, k + 16}, std::nan("")), wide_w = at::full({9, k + 16}, std::nan(""));
      at::Tensor x = wide_x.narrow(1, 0, k), w = wide_w.narrow(1, 0, k);
      x.copy_(at::randn({5, k}));
      w.copy_(at::randn({9, k}));
      ASSERT_LT(distance(thin(x, w, {}, lanes), in_double(x, w)), tolerance(k)) << thin_lanes_name(lanes) << " " << k;
    }
  }
}

TEST(ThinProduct, RowIsTheSameBitForBitWhateverStandsBesideIt) {
  at::manual_seed(2);
  for (const ThinLanes lanes : thin_lanes_available()) {
    for (const auto& [n, k] :
         std::vector<std::pair<int64_t, int64_t>>{{192, 576}, {577, 131}, {200, 1536}, {2048, 64}}) {
      const at::Tensor x = at::randn({kThinRows, k}), w = at::randn({n, k}), bias = at::randn({n});
      std::vector<at::Tensor> alone;
      {
        const Threads one(1);
        for (int64_t row = 0; row < kThinRows; ++row) alone.push_back(thin(x.narrow(0, row, 1), w, bias, lanes));
      }
      for (const int threads : {1, 2, 3}) {
        const Threads several(threads);
        for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 23, 32}) {
          const int64_t first = (kThinRows - m) / 2;
          const at::Tensor together = thin(x.narrow(0, first, m), w, bias, lanes);
          for (int64_t row = 0; row < m; ++row) {
            ASSERT_TRUE(same_bits(together.narrow(0, row, 1), alone[first + row]))
                << thin_lanes_name(lanes) << ": row " << row << " of " << m;
          }
        }
      }
    }
  }
}

TEST(Linear, RowOfAFewIsTheSameBitForBitAsAlone) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({1, kThinRows, 576}), w = at::randn({1000, 576});
  const at::Tensor all = draftsmith::linear(x, w);
  for (int64_t row = 0; row < kThinRows; ++row) {
    ASSERT_TRUE(same_bits(draftsmith::linear(x.narrow(1, row, 1), w), all.narrow(1, row, 1))) << row;
  }
}

TEST(Linear, EqualsDoublePrecisionOnBothSidesOfTheThinLimit) {
  at::manual_seed(4);
  for (const auto library : {ProductLibrary::kOpenBlas, ProductLibrary::kAten}) {
    use_product_library(library);
    for (const int64_t m : {0, 1, 7, 32, 33, 50, 130}) {
      for (const int64_t n : {1, 33, 200}) {
        for (const int64_t k : {1, 37, 576}) {
          const at::Tensor x = at::randn({m, k}), w = at::randn({n, k}), bias = at::randn({n});
          ASSERT_LT(distance(draftsmith::linear(x, w), in_double(x, w)), tolerance(k)) << m << " " << n << " " << k;
          ASSERT_LT(distance(draftsmith::linear(x, w, bias), in_double(x, w, bias)), tolerance(k))
              << m << " " << n << " " << k;
        }
      }
    }
  }
  use_product_library(ProductLibrary::kOpenBlas);
}

TEST(Linear, TakesAnyNumberOfDimensionsAndAnyStrides) {
  at::manual_seed(5);
  for (const int64_t rows : {3, 50}) {
    const at::Tensor x = at::randn({2, rows, 20}), w = at::randn({9, 20});
    EXPECT_LT(distance(draftsmith::linear(x, w), in_double(x, w)), tolerance(20));
    EXPECT_EQ(draftsmith::linear(x.select(0, 0).select(0, 0), w).sizes(), (at::IntArrayRef{9}));
    // Transposed views, every second column, rows of a wider tensor, one row repeated.
    const at::Tensor across = at::randn({20, rows}).t(), wide = at::randn({rows, 40});
    const at::Tensor weight_across = at::randn({20, 9}).t(), weight_wide = at::randn({9, 40});
    for (const at::Tensor& input :
         {across, wide.slice(1, 0, 40, 2), wide.narrow(1, 7, 20), at::randn({1, 20}).expand({rows, 20})}) {
      for (const at::Tensor& weight :
           {w, weight_across, weight_wide.slice(1, 0, 40, 2), weight_wide.narrow(1, 3, 20)}) {
        ASSERT_LT(distance(draftsmith::linear(input, weight), in_double(input, weight)), tolerance(20)) << rows;
        ASSERT_LT(distance(draftsmith::matmul(input, weight.t()), in_double(input, weight)), tolerance(20)) << rows;
      }
    }
    const at::Tensor permuted = at::randn({rows, 2, 20}).transpose(0, 1);
    EXPECT_LT(distance(draftsmith::linear(permuted, w), in_double(permuted, w)), tolerance(20));
  }
}

TEST(Linear, GradientsEqualThoseOfDoublePrecision) {
  at::manual_seed(6);
  for (const auto library : {ProductLibrary::kOpenBlas, ProductLibrary::kAten}) {
    use_product_library(library);
    for (const int64_t rows : {2, 7, 64}) {
      const at::Tensor x = at::randn({3, rows, 45}).requires_grad_(), w = at::randn({70, 45}).requires_grad_(),
                       bias = at::randn({70}).requires_grad_();
      const at::Tensor dy = at::randn({3, rows, 70});
      draftsmith::linear(x, w, bias).backward(dy);
      const at::Tensor x64 = x.detach().to(at::kDouble).requires_grad_(),
                       w64 = w.detach().to(at::kDouble).requires_grad_(),
                       b64 = bias.detach().to(at::kDouble).requires_grad_();
      at::linear(x64, w64, b64).backward(dy.to(at::kDouble));
      EXPECT_LT(distance(x.grad(), x64.grad()), tolerance(70));
      EXPECT_LT(distance(w.grad(), w64.grad()), tolerance(3 * rows));
      EXPECT_LT(distance(bias.grad(), b64.grad()), tolerance(3 * rows));
    }
  }
  use_product_library(ProductLibrary::kOpenBlas);
}

TEST(Linear, FrozenWeightGetsNoGradientAndFrozenInputNeither) {
  const at::Tensor x = at::randn({20, 8}).requires_grad_(), w = at::randn({5, 8});
  draftsmith::linear(x, w).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(w.grad().defined());
  const at::Tensor fixed = at::randn({20, 8}), trained = at::randn({5, 8}).requires_grad_();
  draftsmith::linear(fixed, trained).sum().backward();
  EXPECT_FALSE(fixed.grad().defined());
  EXPECT_LT(distance(trained.grad(), fixed.sum(0).expand({5, 8})), tolerance(20));
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(draftsmith::linear(fixed, trained).requires_grad());
}

TEST(Linear, GradientOfAGradientIsRefusedNotSilentlyMissing) {
  const at::Tensor x = at::randn({20, 8}).requires_grad_(), w = at::randn({5, 8}).requires_grad_();
  const at::Tensor y = draftsmith::linear(x, w).square().sum();
  EXPECT_THROW(y.backward({}, true, true), std::exception);
}

TEST(Linear, WrongShapesAreNamed) {
  try {
    draftsmith::linear(at::zeros({2, 3}), at::zeros({5, 4}));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("[2, 3]"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("[5, 4]"), std::string::npos) << error.what();
  }
  EXPECT_THROW(draftsmith::linear(at::zeros({2, 4}), at::zeros({5, 4}), at::zeros({4})), Error);
  EXPECT_THROW(draftsmith::matmul(at::zeros({2, 3}), at::zeros({4, 5})), Error);
}

TEST(Linear, OtherDtypesGoToAten) {
  const at::Tensor x = at::randn({4, 6}, at::kDouble), w = at::randn({5, 6}, at::kDouble);
  EXPECT_TRUE(at::equal(draftsmith::linear(x, w), at::linear(x, w)));
  const at::Tensor half = draftsmith::linear(x.to(at::kBFloat16), w.to(at::kBFloat16));
  EXPECT_EQ(half.scalar_type(), at::kBFloat16);
}

TEST(MatmulAdd, AddsToWhatIsThere) {
  at::manual_seed(7);
  for (const auto library : {ProductLibrary::kOpenBlas, ProductLibrary::kAten}) {
    use_product_library(library);
    for (const int64_t m : {1, 5, 64, 200}) {
      const at::Tensor a = at::randn({33, m}).t(), b = at::randn({33, 71}), start = at::randn({m, 71});
      at::Tensor c = start.clone();
      draftsmith::matmul_add(a, b, c);
      EXPECT_LT(distance(c, start.to(at::kDouble) + at::matmul(a.to(at::kDouble), b.to(at::kDouble))), tolerance(33))
          << m;
    }
    at::Tensor untouched = at::ones({2, 3});
    draftsmith::matmul_add(at::zeros({2, 0}), at::zeros({0, 3}), untouched);
    EXPECT_TRUE(at::all(untouched == 1).item<bool>());
  }
  use_product_library(ProductLibrary::kOpenBlas);
}

TEST(LibraryProduct, PartsOfTheProductMeetWithoutGapForAnyNumberOfThreads) {
  at::manual_seed(8);
  for (const int threads : {1, 2, 3, 5, 8}) {
    const Threads several(threads);
    for (const auto& [m, n] :
         std::vector<std::pair<int64_t, int64_t>>{{17, 2000}, {2000, 17}, {333, 401}, {33, 33}, {700, 900}}) {
      const at::Tensor a = at::randn({m, 97}), b = at::randn({97, n});
      at::Tensor c = at::full({m, n}, std::nan(""));
      library_product(a, b, c, false, ProductLibrary::kOpenBlas);
      ASSERT_LT(distance(c, at::matmul(a.to(at::kDouble), b.to(at::kDouble))), tolerance(97))
          << threads << " threads, " << m << " x " << n;
    }
  }
}

TEST(LinearBackend, NamesTheLibraryAndBothRates) {
  const std::string note = linear_backend();
  EXPECT_NE(note.find("OpenBLAS"), std::string::npos) << note;
  EXPECT_NE(note.find("ATen"), std::string::npos) << note;
  EXPECT_NE(note.find("GFLOP/s"), std::string::npos) << note;
}
