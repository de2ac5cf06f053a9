#include "models/parts/norm.h"

#include <gtest/gtest.h>

#include "launch/check.h"

namespace draftsmith {
namespace {

// The formula in fp64 by autograd's own operations.
at::Tensor formula(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return weight * (x * (x.square().mean(-1, true) + eps).rsqrt());
}

at::Tensor leaf(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::randn(shape, at::TensorOptions().dtype(at::kDouble)).to(dtype).set_requires_grad(true);
}

struct Gradients {
  at::Tensor y, x, weight;
};

template <typename F>
Gradients gradients(F f, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& upstream) {
  const at::Tensor a = x.detach().clone().set_requires_grad(true), b = weight.detach().clone().set_requires_grad(true);
  const at::Tensor y = f(a, b);
  y.backward(upstream);
  return {y.detach(), a.grad(), b.grad()};
}

TEST(RmsNorm, ValueAndGradientsEqualTheFormulaInDoublePrecision) {
  at::manual_seed(1);
  for (const int64_t width : {5, 16, 64, 576}) {
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      const at::Tensor x = leaf({3, 7, width}, dtype), weight = leaf({width}, dtype),
                       upstream = at::randn({3, 7, width}).to(dtype);
      const Gradients ours = gradients([](auto& a, auto& b) { return rms_norm(a, b, 1e-5); }, x, weight, upstream);
      const Gradients truth = gradients([](auto& a, auto& b) { return formula(a, b, 1e-5); }, x.to(at::kDouble),
                                        weight.to(at::kDouble), upstream.to(at::kDouble));
      // fp32: a few roundings of values up to about 10, sums over 21 rows; fp64 takes the general path.
      const double tolerance = dtype == at::kFloat ? 2e-5 : 1e-12;
      EXPECT_TRUE(at::allclose(ours.y.to(at::kDouble), truth.y, tolerance, tolerance)) << width;
      EXPECT_TRUE(at::allclose(ours.x.to(at::kDouble), truth.x, tolerance, tolerance)) << width;
      EXPECT_TRUE(at::allclose(ours.weight.to(at::kDouble), truth.weight, tolerance, tolerance)) << width;
    }
  }
}

TEST(RmsNorm, CastsBeforeTheWeightInHalfPrecisions) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({4, 32}).to(at::kBFloat16), weight = at::rand({32}).to(at::kBFloat16);
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor expected = weight * (wide * (wide.square().mean(-1, true) + 1e-6).rsqrt()).to(at::kBFloat16);
  EXPECT_TRUE(at::equal(rms_norm(x, weight, 1e-6), expected));
}

TEST(RmsNorm, ARowHasTheSameBitsAloneAndAmongOthers) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({300, 100}), weight = at::rand({100});
  const at::Tensor together = rms_norm(x, weight, 1e-5);
  for (const int64_t row : {0, 1, 150, 299}) EXPECT_TRUE(at::equal(together[row], rms_norm(x[row], weight, 1e-5)));
}

TEST(RmsNorm, RefusesAWeightOfAnotherWidth) {
  EXPECT_THROW(rms_norm(at::ones({2, 4}), at::ones({5}), 1e-5), Error);
}

}  // namespace
}  // namespace draftsmith
