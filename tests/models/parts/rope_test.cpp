#include "models/parts/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "launch/check.h"

// The scalings are held against Transformers in targets/target_test.cpp: llama3, linear and yarn models are among the
// references there.
namespace draftsmith {
namespace {

RopeConfig base(double theta) {
  RopeConfig config;
  config.theta = theta;
  return config;
}

// Dimension j and j + D / 2 form a plane that turns by position * theta^(-2 j / D).
at::Tensor by_hand(const at::Tensor& x, const at::Tensor& positions, double theta) {
  at::Tensor y = at::empty_like(x);
  const int64_t half = x.size(3) / 2;
  for (int64_t b = 0; b < x.size(0); ++b) {
    for (int64_t h = 0; h < x.size(1); ++h) {
      for (int64_t s = 0; s < x.size(2); ++s) {
        const double position =
            static_cast<double>(positions.dim() == 1 ? positions[s].item<int64_t>() : positions[b][s].item<int64_t>());
        for (int64_t j = 0; j < half; ++j) {
          const double angle =
              position * std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(x.size(3)));
          const double p = x[b][h][s][j].item<double>(), q = x[b][h][s][j + half].item<double>();
          y[b][h][s][j] = p * std::cos(angle) - q * std::sin(angle);
          y[b][h][s][j + half] = q * std::cos(angle) + p * std::sin(angle);
        }
      }
    }
  }
  return y;
}

TEST(Rope, TurnsPlanesByPositionAndFrequency) {
  at::manual_seed(1);
  const Rope rope(base(10000), 24, 64, at::kCPU);
  const at::Tensor shared = at::tensor({0, 5, 63}, at::kLong),
                   own = at::tensor({0, 5, 63, 7, 8, 9}, at::kLong).view({2, 3});
  const at::Tensor x = at::randn({2, 3, 2, 24}).transpose(1, 2);  // heads beside each other, as projections give them
  for (const at::Tensor& positions : {shared, own}) {
    const at::Tensor expected = by_hand(x, positions, 10000);
    EXPECT_TRUE(at::allclose(rope.rotate(x, positions), expected, 1e-5, 1e-5));  // fp32 angles up to 63
    EXPECT_TRUE(at::allclose(rope.rotate(x.to(at::kDouble), positions), expected.to(at::kDouble), 1e-5, 1e-5));
  }
}

TEST(Rope, GradientTurnsBack) {
  at::manual_seed(2);
  const Rope rope(base(10000), 16, 32, at::kCPU);
  const at::Tensor positions = at::arange(4, at::kLong) + 3, upstream = at::randn({1, 2, 4, 16});
  const at::Tensor x = at::randn({1, 2, 4, 16}).set_requires_grad(true);
  rope.rotate(x, positions).backward(upstream);
  // A rotation is orthogonal: the gradient rotated forward again is the incoming gradient.
  EXPECT_TRUE(at::allclose(rope.rotate(x.grad(), positions), upstream, 1e-5, 1e-5));
}

TEST(Rope, PackedInPlaceEqualsRotate) {
  at::manual_seed(3);
  const Rope rope(base(10000), 16, 32, at::kCPU);
  const at::Tensor positions = at::tensor({4, 0, 31, 7, 7}, at::kLong), x = at::randn({5, 3, 16});
  at::Tensor packed = x.clone();
  rope.rotate_packed_(packed, positions);
  EXPECT_TRUE(at::equal(packed, rope.rotate(x.unsqueeze(2), positions.unsqueeze(1)).squeeze(2)));
}

TEST(Rope, RefusesPositionsOutsideItsTable) {
  const Rope rope(base(10000), 16, 32, at::kCPU);
  const at::Tensor x = at::ones({1, 1, 1, 16});
  EXPECT_THROW(rope.rotate(x, at::tensor({32}, at::kLong)), Error);
  EXPECT_THROW(rope.rotate(x, at::tensor({-1}, at::kLong)), Error);
  at::Tensor packed = at::ones({1, 1, 16});
  EXPECT_THROW(rope.rotate_packed_(packed, at::tensor({32}, at::kLong)), Error);
}

TEST(Rope, RefusesAMissingBaseAnOddHeadAndScalingWithoutNumbers) {
  EXPECT_THROW(Rope(base(0), 16, 32, at::kCPU), Error);
  EXPECT_THROW(Rope(base(10000), 15, 32, at::kCPU), Error);
  RopeConfig scaled = base(10000);
  scaled.type = "llama3";
  EXPECT_THROW(Rope(scaled, 16, 32, at::kCPU), Error);
  scaled.type = "dynamic";
  EXPECT_THROW(Rope(scaled, 16, 32, at::kCPU), Error);
}

}  // namespace
}  // namespace draftsmith
