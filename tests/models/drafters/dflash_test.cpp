#include <gtest/gtest.h>

#include "launch/file.h"
#include "models/drafters/drafter.h"
#include "models/parts/linear.h"

#include "tests/export/tiny_model.h"

namespace draftsmith {
namespace {

HfConfig tiny_target() {
  HfConfig config;
  config.vocab_size = 61;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.num_hidden_layers = 8;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.max_position_embeddings = 128;
  config.rms_norm_eps = 1e-5;
  config.rope.theta = 10000;
  config.eos_token_ids = {2};
  config.pad_token_id = 3;
  config.bos_token_id = 1;
  return config;
}

DrafterConfig tiny_config(int64_t layers) {
  DrafterConfig config;
  config.layers = layers;
  config.block = 5;
  config.taps = {1, 3, 5};
  config.mask_token = 60;
  config.initializer_range = 0.2;
  return config;
}

TargetEnds tiny_ends(at::ScalarType type) {
  at::manual_seed(11);
  const at::Tensor embedding = at::randn({61, 24}, at::kDouble).to(type),
                   head = at::randn({61, 24}, at::kDouble).to(type);
  return {embedding, head};
}

std::unique_ptr<Drafter> make(int64_t layers, at::ScalarType type, const DraftVocabulary& vocabulary = {}) {
  return make_drafter(tiny_config(layers), tiny_target(), tiny_ends(type), vocabulary, 5);
}

DraftSample make_sample(int64_t length, const std::vector<int64_t>& anchors, at::ScalarType type, uint64_t seed) {
  at::manual_seed(seed);
  DraftSample sample;
  sample.tokens = at::randint(4, 60, {length}, at::kLong);
  sample.loss_mask = at::zeros({length}, at::kByte);
  sample.loss_mask.narrow(0, 6, length - 6).fill_(1);
  sample.taps = at::randn({length, 3, 24}, at::kDouble).to(type);
  sample.anchors = at::tensor(anchors, at::kLong);
  return sample;
}

TEST(DFlash, TensorsAreThePublishedOnes) {
  const auto drafter = make(2, at::kFloat);
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [name, tensor] : drafter->parameters()) shapes[name] = tensor.sizes().vec();
  EXPECT_EQ(shapes.size(), 2u * 11 + 3);
  EXPECT_EQ(shapes.at("fc.weight"), (std::vector<int64_t>{24, 72}));
  EXPECT_EQ(shapes.at("layers.1.self_attn.q_proj.weight"), (std::vector<int64_t>{32, 24}));
  EXPECT_EQ(shapes.at("layers.1.self_attn.k_norm.weight"), (std::vector<int64_t>{8}));
  EXPECT_EQ(shapes.at("layers.0.mlp.down_proj.weight"), (std::vector<int64_t>{24, 40}));
}

TEST(DFlash, TrainingForwardWithOneAnchorIsTheInferencePassOnThatPrefix) {
  for (const int64_t layers : {1, 3}) {
    const auto drafter = make(layers, at::kFloat);
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

TEST(DFlash, ContextEndsBeforeTheAnchor) {
  const auto drafter = make(2, at::kDouble);
  DraftSample sample = make_sample(30, {17}, at::kDouble, 3);
  const at::Tensor before = drafter->slots(sample).hidden.detach();
  sample.taps.narrow(0, 17, 13).fill_(100);  // the anchor's own features and all later ones
  EXPECT_TRUE(at::equal(before, drafter->slots(sample).hidden.detach()));
  sample.taps[16].fill_(100);
  EXPECT_FALSE(at::equal(before, drafter->slots(sample).hidden.detach()));
}

TEST(DFlash, SlotsAreTheSupervisedOnesInsideTheRow) {
  const auto drafter = make(2, at::kFloat);
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

TEST(DFlash, PackedRowsGiveWhatEachGivesAlone) {
  const auto drafter = make(2, at::kDouble);
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

TEST(DFlash, GradientsAreFiniteDifferences) {
  for (const int64_t layers : {1, 2}) {
    const auto drafter = make(layers, at::kDouble);
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

TEST(DFlash, ReducedVocabularyProposesOnlyItsOwnTokens) {
  const auto drafter = make(2, at::kFloat, make_draft_vocabulary({40, 7, 13, 7}, 61));
  EXPECT_EQ(drafter->head().size(0), 3);
  auto state = drafter->start();
  drafter->append(*state, at::randn({9, 3, 24}));
  for (const int64_t token : drafter->propose(*state, 5, {}).tokens)
    EXPECT_TRUE(token == 7 || token == 13 || token == 40) << token;
}

TEST(DFlash, AShorterProposalIsThePrefixOfTheFullOne) {
  const auto drafter = make(2, at::kFloat);
  auto state = drafter->start();
  drafter->append(*state, at::randn({9, 3, 24}));
  const std::vector<int64_t> full = drafter->propose(*state, 5, {}).tokens;
  ProposeOptions two;
  two.tokens = 2;
  EXPECT_EQ(drafter->propose(*state, 5, two).tokens, std::vector<int64_t>(full.begin(), full.begin() + 2));
}

TEST(DFlash, StartFollowsTheSeedAndItsOptions) {
  DrafterConfig config = tiny_config(2);
  config.init_norm = 0.25;
  config.init_qk_norm = 1.4;
  const auto one = make_drafter(config, tiny_target(), tiny_ends(at::kFloat), {}, 5),
             same = make_drafter(config, tiny_target(), tiny_ends(at::kFloat), {}, 5),
             other = make_drafter(config, tiny_target(), tiny_ends(at::kFloat), {}, 6);
  const auto find = [](const Drafter& drafter, const std::string& wanted) {
    for (const auto& [name, tensor] : drafter.parameters())
      if (name == wanted) return tensor.detach();
    return at::Tensor();
  };
  EXPECT_TRUE(at::equal(find(*one, "fc.weight"), find(*same, "fc.weight")));
  EXPECT_FALSE(at::equal(find(*one, "fc.weight"), find(*other, "fc.weight")));
  EXPECT_NEAR(find(*one, "fc.weight").std().item<double>(), 0.2, 0.01);
  EXPECT_EQ(find(*one, "norm.weight")[3].item<float>(), 0.25f);
  EXPECT_EQ(find(*one, "layers.0.self_attn.q_norm.weight")[3].item<float>(), 1.4f);
}

TEST(Drafter, FolderGivesTheSameDrafterBack) {
  const testing::TemporaryFolder folder;
  const auto drafter = make(2, at::kFloat, make_draft_vocabulary({40, 7, 13}, 61));
  save_drafter(*drafter, {"abc", "corpus", "template"}, folder / "d");
  DrafterIdentity identity;
  const auto again = load_drafter(folder / "d", tiny_target(), tiny_ends(at::kFloat), "abc", &identity);
  EXPECT_EQ(identity.corpus_id, "corpus");
  const auto before = drafter->parameters(), after = again->parameters();
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(at::equal(before[i].second, after[i].second)) << before[i].first;
  EXPECT_TRUE(at::equal(again->vocabulary().to_target, drafter->vocabulary().to_target));
}

TEST(Drafter, AnotherTargetIsRefusedWithBothHashes) {
  const testing::TemporaryFolder folder;
  save_drafter(*make(1, at::kFloat), {"abc", "", ""}, folder / "d");
  const std::string text =
      testing::message_of([&] { load_drafter(folder / "d", tiny_target(), tiny_ends(at::kFloat), "def"); });
  EXPECT_NE(text.find("abc"), std::string::npos) << text;
  EXPECT_NE(text.find("def"), std::string::npos) << text;
}

TEST(Drafter, FaultyWeightsAreNamed) {
  const auto drafter = make(1, at::kFloat);
  const auto with = [&](const std::function<void(NamedTensors&)>& change) {
    NamedTensors named = drafter->parameters();
    change(named);
    return testing::message_of([&] { assign_parameters(*drafter, named, "file"); });
  };
  EXPECT_EQ(with([](NamedTensors&) {}), "no error was thrown");
  EXPECT_NE(with([](NamedTensors& n) { n.erase(n.begin()); }).find("fc.weight"), std::string::npos);
  EXPECT_NE(with([](NamedTensors& n) { n.emplace_back("extra.weight", at::zeros({1})); }).find("extra.weight"),
            std::string::npos);
  EXPECT_NE(with([](NamedTensors& n) { n[0].second = at::zeros({24, 71}); }).find("71"), std::string::npos);
  EXPECT_NE(with([](NamedTensors& n) { n[0].second = at::full({24, 72}, NAN); }).find("not finite"), std::string::npos);
}

TEST(Drafter, ImpossibleConfigurationsAreRefusedWithTheReason) {
  const auto refused = [](const std::function<void(DrafterConfig&)>& change) {
    DrafterConfig config = tiny_config(1);
    change(config);
    return testing::message_of([&] { make_drafter(config, tiny_target(), tiny_ends(at::kFloat), {}, 1); });
  };
  EXPECT_EQ(refused([](DrafterConfig&) {}), "no error was thrown");
  EXPECT_NE(refused([](DrafterConfig& c) { c.kind = "dflush"; }).find("did you mean `dflash`"), std::string::npos);
  EXPECT_NE(refused([](DrafterConfig& c) { c.mask_token = 2; }).find("eos_token_id"), std::string::npos);
  EXPECT_NE(refused([](DrafterConfig& c) { c.mask_token = 3; }).find("pad_token_id"), std::string::npos);
  EXPECT_NE(refused([](DrafterConfig& c) { c.mask_token = 61; }).find("outside"), std::string::npos);
  EXPECT_NE(refused([](DrafterConfig& c) { c.taps = {7}; }).find("last layer"), std::string::npos);
  EXPECT_NE(refused([](DrafterConfig& c) { c.taps = {9}; }).find("no layer"), std::string::npos);
  EXPECT_NE(refused([](DrafterConfig& c) { c.taps = {3, 1}; }).find("ascend"), std::string::npos);
  EXPECT_NE(refused([](DrafterConfig& c) { c.block = 1; }).find("block"), std::string::npos);
  EXPECT_NE(refused([](DrafterConfig& c) { c.num_key_value_heads = 3; }).find("divide"), std::string::npos);
}

TEST(MaskToken, IsARowThatNoTextUses) {
  HfConfig target = tiny_target();
  const at::Tensor nothing = at::zeros({61}, at::kByte);
  EXPECT_EQ(pick_mask_token(target, {0, 1, 2, 3, 4}, 58, nothing), 58);  // the first row behind the tokenizer
  EXPECT_EQ(pick_mask_token(target, {0, 1, 2, 3, 4, 5}, 61, nothing), 5);
  at::Tensor used = nothing.clone();
  used[5] = 1;
  EXPECT_EQ(pick_mask_token(target, {0, 1, 2, 3, 4, 5}, 61, used), 4);
  EXPECT_THROW(pick_mask_token(target, {1, 2, 3}, 61, nothing), Error);
}

}  // namespace
}  // namespace draftsmith
