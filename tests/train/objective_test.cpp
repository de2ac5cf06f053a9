#include "train/objective.h"

#include <gtest/gtest.h>

#include <cmath>

#include "launch/check.h"
#include "train/linear_cross_entropy.h"

namespace draftsmith {
namespace {

TEST(LinearCrossEntropy, EqualsPlainLogitsInPiecesOfAnySize) {
  at::manual_seed(1);
  const at::Tensor states = at::randn({23, 16}), head = at::randn({37, 16});
  at::Tensor labels = at::randint(0, 37, {23}, at::kLong);
  labels[4] = -1;
  const at::Tensor weight = at::rand({23});

  at::Tensor plain = states.clone().set_requires_grad(true);
  const at::Tensor losses = at::cross_entropy_loss(at::linear(plain, head), labels, {}, at::Reduction::None, -1);
  (losses * weight).sum().backward();
  for (const int64_t bytes : {1, 37 * 4 * 5, 1 << 20}) {
    at::Tensor own = states.clone().set_requires_grad(true);
    const SlotLosses found = linear_cross_entropy(own, head, labels, bytes);
    (found.loss * weight).sum().backward();
    // fp32 sums of 37 terms in another order.
    EXPECT_LT((found.loss - losses).abs().max().item<double>(), 1e-5);
    EXPECT_LT((own.grad() - plain.grad()).abs().max().item<double>(), 1e-5);
    EXPECT_EQ(found.loss[4].item<float>(), 0);
    EXPECT_TRUE(at::equal(found.predicted, at::linear(states, head).argmax(1)));
    EXPECT_TRUE(at::equal(linear_argmax(states, head, bytes), found.predicted));
  }
}

TEST(LinearCrossEntropy, LargeLogitsStayFinite) {
  const at::Tensor states = at::full({1, 1}, 1.0f).set_requires_grad(true),
                   head = at::tensor({300.f, -300.f, 0.f}).view({3, 1});
  const SlotLosses found = linear_cross_entropy(states, head, at::tensor({1}, at::kLong), 1024);
  EXPECT_NEAR(found.loss.item<double>(), 600, 1e-4);
}

TEST(Objective, DecayWeightsFollowThePaper) {
  EXPECT_DOUBLE_EQ(decay_weight(1, 7), 1.0);
  EXPECT_DOUBLE_EQ(decay_weight(8, 7), std::exp(-1.0));
  EXPECT_DOUBLE_EQ(decay_weight(8, 0), 1.0);
}

TEST(Objective, GammaGrowsByEpochOrEvenly) {
  ObjectiveSection objective;
  objective.gamma = 4.5;
  EXPECT_EQ(objective_at(objective, 3.9, 0.6).gamma, 4.5);
  objective.gamma_per_epoch = 0.5;  // AngelSlim's step: 4.5 to 7.0 over six epochs
  EXPECT_EQ(objective_at(objective, 0.99, 0.1).gamma, 4.5);
  EXPECT_EQ(objective_at(objective, 5.2, 0.9).gamma, 7.0);
  objective.gamma_per_epoch = 0;
  objective.gamma_end = 7;
  EXPECT_EQ(objective_at(objective, 0, 0).gamma, 4.5);
  EXPECT_DOUBLE_EQ(objective_at(objective, 2.5, 0.5).gamma, 5.75);
  EXPECT_EQ(objective_at(objective, 6, 1).gamma, 7.0);
}

TEST(Objective, DpaceWeightsAreSumsOfSoftenedProducts) {
  // One block of three slots with q = 0.5, 0.25, 1 and alpha 0.5: softened 0.75, 0.625, 1; products 0.75, 0.46875,
  // 0.46875.
  const auto weights = dpace_weights({0, 0, 0, 1}, {std::log(2.0), std::log(4.0), 0.0, 0.0}, {1, 1, 1, 1}, 0.5);
  EXPECT_NEAR(weights[0], 0.75 + 0.46875 + 0.46875, 1e-12);
  EXPECT_NEAR(weights[1], 0.46875 + 0.46875, 1e-12);
  EXPECT_NEAR(weights[2], 0.46875, 1e-12);
  EXPECT_NEAR(weights[3], 1.0, 1e-12);
}

TEST(Objective, TeacherLabelsAreTheTargetsOwnChoiceOneBefore) {
  ObjectiveSection objective;
  objective.labels = "teacher";
  const at::Tensor tokens = at::tensor({5, 6, 7, 8}, at::kLong), mask = at::tensor({0, 0, 1, 1}, at::kByte);
  const at::Tensor head = at::eye(9), last = at::zeros({4, 9});
  last[0][1] = 1;
  last[1][3] = 1;  // says that position 2 is token 3
  last[2][8] = 1;
  last[3][2] = 1;
  const at::Tensor labels = position_labels(objective, tokens, mask, last, head);
  EXPECT_TRUE(at::equal(labels, at::tensor({5, 6, 3, 8}, at::kLong)));
  EXPECT_THROW(position_labels(objective, tokens, mask, {}, head), Error);
  objective.labels = "data";
  EXPECT_TRUE(at::equal(position_labels(objective, tokens, mask, {}, head), tokens));
}

TEST(Acceptance, CountsLeadingCorrectSlots) {
  // Block 0: right, wrong, right. Block 1: slot 1 unscored. Block 2: right, right.
  const ScoredSlots slots{{0, 0, 0, 1, 2, 2}, {1, 2, 3, 2, 1, 2}, {1, 0, 1, 1, 1, 1}};
  EXPECT_EQ(accepted_lengths(slots, 4), (std::vector<int64_t>{1, 0, 2, 0}));
}

TEST(Acceptance, SimulatedRoundsWalkAsDecodingDoes) {
  const at::Tensor mask = at::tensor({0, 1, 1, 1, 1, 1, 1, 0, 1, 1}, at::kByte);
  // First stretch 1..6: from 1 two accepted -> 4; from 4 nothing -> 5; from 5 four accepted, but only one token is
  // left. Second stretch: one round.
  const Rounds rounds = simulate_rounds(mask, {1, 2, 3, 4, 5, 8}, {2, 4, 4, 0, 4, 0});
  EXPECT_EQ(rounds.rounds, 4);
  EXPECT_EQ(rounds.tokens, 6);
  EXPECT_THROW(simulate_rounds(mask, {1}, {0}), Error);
}

}  // namespace
}  // namespace draftsmith
