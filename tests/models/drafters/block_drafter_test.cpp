// What every block drafter must satisfy, for each kind.
#include <gtest/gtest.h>

#include "launch/file.h"
#include "models/drafters/drafter.h"
#include "models/parts/linear.h"
#include "tests/models/drafters/tiny_drafter.h"
#include "tests/support.h"

namespace draftsmith {
namespace {

using namespace tiny;

class BlockDrafterKinds : public ::testing::TestWithParam<const char*> {};

TEST_P(BlockDrafterKinds, TrainingForwardWithOneAnchorIsTheInferencePassOnThatPrefix) {
  for (const int64_t layers : {1, 3}) {
    const auto drafter = make(layers, at::kFloat, {}, GetParam());
    const DraftSample sample = make_sample(30, {17}, at::kFloat, 3);
    const DraftSlots slots = drafter->slots(sample);
    ASSERT_EQ(slots.hidden.size(0), 4);
    const at::Tensor expected = draftsmith::linear(slots.hidden, drafter->head()).argmax(-1);

    auto state = drafter->start();
    drafter->append(*state, sample.taps.narrow(0, 0, 9));  // the prompt, then what rounds commit
    drafter->append(*state, sample.taps.narrow(0, 9, 1));
    drafter->append(*state, sample.taps.narrow(0, 10, 7));
    ASSERT_EQ(state->length(), 17);
    const Proposal proposal = drafter->propose(*state, sample.tokens[17].item<int64_t>(), {});
    for (int64_t k = 0; k < 4; ++k) EXPECT_EQ(proposal.tokens[static_cast<size_t>(k)], expected[k].item<int64_t>());

    // The probabilities of a sampled proposal show the states themselves: both are softmax(head h). fp32 in two orders
    // of summation: 1e-5.
    ProposeOptions sampled;
    sampled.temperature = 1;
    const at::Tensor q = drafter->propose(*state, sample.tokens[17].item<int64_t>(), sampled).q;
    EXPECT_LT((q - at::softmax(draftsmith::linear(slots.hidden, drafter->head()), -1)).abs().max().item<double>(),
              1e-5);
  }
}

TEST_P(BlockDrafterKinds, ContextEndsBeforeTheAnchor) {
  const auto drafter = make(2, at::kDouble, {}, GetParam());
  DraftSample sample = make_sample(30, {17}, at::kDouble, 3);
  const at::Tensor before = drafter->slots(sample).hidden.detach();
  sample.taps.narrow(0, 17, 13).fill_(100);  // the anchor's own features and all later ones
  EXPECT_TRUE(at::equal(before, drafter->slots(sample).hidden.detach()));
  sample.taps[16].fill_(100);
  EXPECT_FALSE(at::equal(before, drafter->slots(sample).hidden.detach()));
}

TEST_P(BlockDrafterKinds, SlotsAreTheSupervisedOnesInsideTheRow) {
  const auto drafter = make(2, at::kFloat, {}, GetParam());
  DraftSample sample = make_sample(20, {8, 17}, at::kFloat, 3);
  sample.loss_mask[10] = 0;
  const DraftSlots slots = drafter->slots(sample);
  const auto values = [](const at::Tensor& t) {
    return std::vector<int64_t>(t.data_ptr<int64_t>(), t.data_ptr<int64_t>() + t.numel());
  };
  EXPECT_EQ(values(slots.slot), (std::vector<int64_t>{1, 3, 4, 1, 2}));
  EXPECT_EQ(values(slots.position), (std::vector<int64_t>{9, 11, 12, 18, 19}));
  EXPECT_EQ(values(slots.block), (std::vector<int64_t>{0, 0, 0, 1, 1}));
}

TEST_P(BlockDrafterKinds, PackedRowsGiveWhatEachGivesAlone) {
  const auto drafter = make(2, at::kDouble, {}, GetParam());
  const DraftSample a = make_sample(25, {7, 9, 20}, at::kDouble, 1), b = make_sample(18, {6, 8, 15}, at::kDouble, 2);
  DraftSample both;
  both.tokens = at::cat({a.tokens, b.tokens});
  both.loss_mask = at::cat({a.loss_mask, b.loss_mask});
  both.taps = at::cat({a.taps, b.taps});
  both.anchors = at::cat({a.anchors, b.anchors + 25});
  both.starts = {0, 25};
  const DraftSlots packed = drafter->slots(both), first = drafter->slots(a), second = drafter->slots(b);
  // fp64, another shape of the same products.
  EXPECT_LT((packed.hidden - at::cat({first.hidden, second.hidden})).abs().max().item<double>(), 1e-11);
  EXPECT_TRUE(at::equal(packed.position, at::cat({first.position, second.position + 25})));
  EXPECT_TRUE(at::equal(packed.block, at::cat({first.block, second.block + 3})));
}

TEST_P(BlockDrafterKinds, GradientsAreFiniteDifferences) {
  for (const int64_t layers : {1, 2}) {
    const auto drafter = make(layers, at::kDouble, {}, GetParam());
    const DraftSample sample = make_sample(26, {7, 8, 12, 21}, at::kDouble, 3);
    at::manual_seed(9);
    const at::Tensor weight = at::randn(drafter->slots(sample).hidden.sizes(), at::kDouble);
    (drafter->slots(sample).hidden * weight).sum().backward();
    const at::NoGradGuard no_grad;
    constexpr double kStep = 1e-5;
    for (const auto& [name, parameter] : drafter->parameters()) {
      double* data = parameter.data_ptr<double>();
      const at::Tensor gradient = parameter.grad().contiguous();
      for (int64_t i = 0; i < parameter.numel(); i += std::max<int64_t>(1, parameter.numel() / 7)) {
        const double kept = data[i];
        const auto at_value = [&](double value) {
          data[i] = value;
          return (drafter->slots(sample).hidden * weight).sum().item<double>();
        };
        const double difference = (at_value(kept + kStep) - at_value(kept - kStep)) / (2 * kStep);
        data[i] = kept;
        // Central differences are right to step^2 times a third derivative of order 10 here.
        EXPECT_NEAR(gradient.data_ptr<double>()[i], difference, 1e-6 * (1 + std::abs(difference)))
            << name << " element " << i;
      }
    }
  }
}

TEST_P(BlockDrafterKinds, ReducedVocabularyProposesOnlyItsOwnTokens) {
  const auto drafter = make(2, at::kFloat, make_draft_vocabulary({40, 7, 13, 7}, 61), GetParam());
  EXPECT_EQ(drafter->head().size(0), 3);
  auto state = drafter->start();
  drafter->append(*state, at::randn({9, 3, 24}));
  for (const int64_t token : drafter->propose(*state, 5, {}).tokens)
    EXPECT_TRUE(token == 7 || token == 13 || token == 40) << token;
}

TEST_P(BlockDrafterKinds, AShorterProposalIsThePrefixOfTheFullOne) {
  const auto drafter = make(2, at::kFloat, {}, GetParam());
  auto state = drafter->start();
  drafter->append(*state, at::randn({9, 3, 24}));
  const std::vector<int64_t> full = drafter->propose(*state, 5, {}).tokens;
  ProposeOptions two;
  two.tokens = 2;
  EXPECT_EQ(drafter->propose(*state, 5, two).tokens, std::vector<int64_t>(full.begin(), full.begin() + 2));
}

INSTANTIATE_TEST_SUITE_P(Kinds, BlockDrafterKinds, ::testing::Values("dflash", "dflare"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace draftsmith
