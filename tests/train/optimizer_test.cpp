// Against torch.optim.AdamW and a plain restatement of Muon (tests/goldens/make_optimizer_goldens.py).
#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "launch/check.h"
#include "train/schedule.h"

namespace draftsmith {
namespace {

OptimizerSection section(const std::string& kind) {
  OptimizerSection s;
  s.kind = kind;
  s.lr = 0.01;
  s.weight_decay = 0.1;
  s.beta2 = 0.95;
  s.clip = 0;
  return s;
}

SafetensorsFile golden() {
  return SafetensorsFile::open(DRAFTSMITH_GOLDENS "/optimizer.safetensors");
}

at::Tensor train(const std::string& kind, const std::string& name) {
  const SafetensorsFile file = golden();
  at::Tensor parameter = file.tensor(name + ".start").clone().set_requires_grad(true);
  Optimizer optimizer(section(kind), {{name, parameter}}, {});
  for (int i = 0; i < 5; ++i) {
    parameter.mutable_grad() = file.tensor(fmt::format("{}.gradient{}", name, i)).clone() * 3;
    optimizer.finish_gradients(3);
    optimizer.step(1.0);
  }
  return parameter.detach();
}

TEST(AdamW, EqualsTorch) {
  for (const std::string name : {"tall", "wide", "norm"})
    EXPECT_LT((train("adamw", name) - golden().tensor(name + ".adamw")).abs().max().item<double>(), 2e-6)
        << name;  // fp32 against fp64, five steps
}

TEST(Muon, EqualsThePlainRestatement) {
  // Newton-Schulz triples small singular directions each iteration, and their rounding with them: 3.4^5 * 1e-7 * lr.
  for (const std::string name : {"tall", "wide"})
    EXPECT_LT((train("muon", name) - golden().tensor(name + ".muon")).abs().max().item<double>(), 1e-5) << name;
  EXPECT_LT((train("muon", "norm") - golden().tensor("norm.adamw")).abs().max().item<double>(), 2e-6)
      << "vectors stay with AdamW";
}

TEST(Optimizer, ClipsByTheGlobalNorm) {
  OptimizerSection s = section("adamw");
  s.clip = 1.0;
  at::Tensor a = at::zeros({2}).set_requires_grad(true), b = at::zeros({1}).set_requires_grad(true);
  Optimizer optimizer(s, {{"a", a}, {"b", b}}, {});
  a.mutable_grad() = at::tensor({6.f, 0.f});
  b.mutable_grad() = at::tensor({8.f});
  EXPECT_NEAR(optimizer.finish_gradients(2), 5.0, 1e-6);
  EXPECT_NEAR(a.grad()[0].item<double>(), 3.0 / (5.0 + 1e-6), 1e-6);
  EXPECT_NEAR(b.grad()[0].item<double>(), 4.0 / (5.0 + 1e-6), 1e-6);
}

// Training w with input scale s is training u = w s on inputs divided by s.
TEST(Optimizer, InputScalesAreAChangeOfVariables) {
  for (const std::string kind : {"adamw", "muon"}) {
    at::manual_seed(2);
    const at::Tensor scale = at::tensor({0.1f, 1.f, 20.f}), x = at::randn({8, 3}) * scale, y = at::randn({8, 4});
    at::Tensor w = at::randn({4, 3}).set_requires_grad(true), u = (w.detach() * scale).set_requires_grad(true);
    Optimizer scaled(section(kind), {{"w", w}}, {{"w", scale}}), plain(section(kind), {{"u", u}}, {});
    for (int i = 0; i < 4; ++i) {
      (at::linear(x, w) - y).square().sum().backward();
      (at::linear(x / scale, u) - y).square().sum().backward();
      scaled.finish_gradients(1);
      plain.finish_gradients(1);
      scaled.step(1);
      plain.step(1);
    }
    EXPECT_LT((w.detach() * scale - u.detach()).abs().max().item<double>(), 1e-4) << kind;  // fp32, factors up to 20
  }
}

TEST(Optimizer, StateContinuesToTheSameBits) {
  const SafetensorsFile file = golden();
  for (const std::string kind : {"adamw", "muon"}) {
    const at::Tensor expected = train(kind, "wide");
    at::Tensor parameter = file.tensor("wide.start").clone().set_requires_grad(true);
    auto optimizer = std::make_unique<Optimizer>(section(kind), NamedTensors{{"wide", parameter}}, NamedTensors{});
    for (int i = 0; i < 5; ++i) {
      if (i == 2) {
        NamedTensors state;
        for (const auto& [name, tensor] : optimizer->state()) state.emplace_back(name, tensor.clone());
        optimizer = std::make_unique<Optimizer>(section(kind), NamedTensors{{"wide", parameter}}, NamedTensors{});
        optimizer->load(state, "state");
      }
      parameter.mutable_grad() = file.tensor(fmt::format("wide.gradient{}", i)).clone() * 3;
      optimizer->finish_gradients(3);
      optimizer->step(1.0);
    }
    EXPECT_TRUE(at::equal(parameter.detach(), expected)) << kind;
    EXPECT_THROW(optimizer->load({}, "state"), Error);
  }
}

TEST(Schedule, WarmsUpThenFalls) {
  ScheduleSection s;
  s.warmup = 0.1;
  EXPECT_DOUBLE_EQ(learning_rate_share(s, 0, 100), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_share(s, 4, 100), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate_share(s, 9, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_share(s, 10, 100), 1.0);
  EXPECT_NEAR(learning_rate_share(s, 55, 100), 0.5, 1e-12);
  EXPECT_NEAR(learning_rate_share(s, 100, 100), 0.0, 1e-12);
  s.kind = "linear";
  EXPECT_NEAR(learning_rate_share(s, 55, 100), 0.5, 1e-12);
  s.floor = 0.2;
  EXPECT_NEAR(learning_rate_share(s, 55, 100), 0.6, 1e-12);
  s.kind = "wsd";
  s.decay = 0.4;
  EXPECT_NEAR(learning_rate_share(s, 59, 100), 1.0, 1e-12);
  EXPECT_NEAR(learning_rate_share(s, 80, 100), 0.6, 1e-12);
  s.kind = "constant";
  EXPECT_DOUBLE_EQ(learning_rate_share(s, 99, 100), 1.0);
}

}  // namespace
}  // namespace draftsmith
