#include "models/parts/mlp.h"

#include <gtest/gtest.h>

namespace draftsmith {
namespace {

at::Tensor formula(const at::Tensor& gate, const at::Tensor& up) {
  return gate * at::sigmoid(gate) * up;
}

template <typename F>
std::vector<at::Tensor> with_gradients(F f, const at::Tensor& gate, const at::Tensor& up, const at::Tensor& upstream) {
  const at::Tensor a = gate.clone().set_requires_grad(true), b = up.clone().set_requires_grad(true);
  const at::Tensor y = f(a, b);
  y.backward(upstream);
  return {y.detach(), a.grad(), b.grad()};
}

TEST(SwiGlu, ValueAndGradientsEqualTheFormulaInDoublePrecision) {
  at::manual_seed(1);
  for (const int64_t n : {1, 15, 64, 1000}) {
    // Up to 40 on both sides: silu's flat and linear ends.
    const at::Tensor gate = at::randn({3, n}) * 10, up = at::randn({3, n}), upstream = at::randn({3, n});
    const auto truth = with_gradients(formula, gate.to(at::kDouble), up.to(at::kDouble), upstream.to(at::kDouble));
    const auto ours = with_gradients(swiglu, gate, up, upstream);
    // fp32 with an exponential of 1e-7 relative error.
    for (size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(at::allclose(ours[i].to(at::kDouble), truth[i], 2e-6, 1e-6)) << n << " " << i;
    EXPECT_TRUE(at::equal(swiglu(gate.clone(), up), ours[0]));
    const auto general = with_gradients(swiglu, gate.to(at::kDouble), up.to(at::kDouble), upstream.to(at::kDouble));
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::allclose(general[i], truth[i], 1e-12, 1e-12));
  }
}

TEST(SwiGlu, ExtremesStayFiniteAndNotANumberStaysSo) {
  const at::Tensor gate = at::tensor({-1e30F, -200.F, -0.F, 200.F, std::numeric_limits<float>::quiet_NaN()});
  const at::Tensor y = swiglu(gate.clone(), at::ones({5}));
  EXPECT_NEAR(y[0].item<float>(), 0, 1e-6);
  EXPECT_NEAR(y[1].item<float>(), 0, 1e-6);
  EXPECT_EQ(y[2].item<float>(), 0);
  EXPECT_EQ(y[3].item<float>(), 200);
  EXPECT_TRUE(std::isnan(y[4].item<float>()));
}

TEST(SwiGlu, AnElementHasTheSameBitsWhereverItStands) {
  at::manual_seed(2);
  const at::Tensor gate = at::randn({50001}), up = at::randn({50001});
  const at::Tensor together = swiglu(gate.clone(), up);
  for (const int64_t i : {0, 7, 16383, 16384, 50000}) {
    EXPECT_EQ(together[i].item<float>(), swiglu(gate.narrow(0, i, 1).clone(), up.narrow(0, i, 1)).item<float>());
  }
}

TEST(Mlp, EqualsItsThreeProducts) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({2, 5, 8});
  const MlpWeights w{at::randn({12, 8}), at::randn({12, 8}), at::randn({8, 12}),
                     at::randn({12}),    at::randn({12}),    at::randn({8})};
  const at::Tensor expected =
      at::linear(formula(at::linear(x, w.gate, w.gate_bias), at::linear(x, w.up, w.up_bias)), w.down, w.down_bias);
  EXPECT_TRUE(at::allclose(mlp(x, w), expected, 1e-5, 1e-4));
}

}  // namespace
}  // namespace draftsmith
