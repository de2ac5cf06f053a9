// Loss and every gradient of the block drafters against a plain Python restatement (dense mask, full logits, fp64:
// tests/goldens/make_block_drafter_goldens.py), and against the two public trainers' own code
// (tests/goldens/make_peer_goldens.py).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data/safetensors.h"
#include "tests/models/drafters/tiny_drafter.h"
#include "train/objective.h"

namespace draftsmith {
namespace {

class BlockDrafterGolden : public ::testing::TestWithParam<const char*> {};

void compare(const std::string& name, at::ScalarType type, double tolerance) {
  const SafetensorsFile golden = SafetensorsFile::open(std::string(DRAFTSMITH_GOLDENS) + "/" + name + ".safetensors");
  const auto json = nlohmann::json::parse(golden.metadata().at("case"));
  HfConfig target = tiny::tiny_target();
  target.hidden_size = 32;
  target.head_dim = 16;
  DrafterConfig config;
  config.kind = json.value("kind", "dflash");
  config.layers = 2;
  config.block = 5;
  config.taps = {1, 3, 4};
  config.mask_token = 60;
  const at::Tensor ids = golden.tensor("vocabulary");
  DraftVocabulary vocabulary;
  if (ids.numel() < target.vocab_size)
    vocabulary =
        make_draft_vocabulary({ids.data_ptr<int64_t>(), ids.data_ptr<int64_t>() + ids.numel()}, target.vocab_size);
  const auto drafter = make_drafter(
      config, target, {golden.tensor("embedding").to(type), golden.tensor("head").to(type)}, vocabulary, 1);
  NamedTensors named;
  for (const auto& [key, entry] : golden.entries())
    if (key.starts_with("parameter.")) named.emplace_back(key.substr(10), golden.tensor(key));
  assign_parameters(*drafter, named, name);

  DraftSample sample;
  sample.tokens = golden.tensor("tokens");
  sample.loss_mask = golden.tensor("loss_mask");
  sample.taps = golden.tensor("taps").to(type);
  sample.anchors = golden.tensor("anchors");
  ObjectiveSection objective;
  objective.weighting = json["weighting"];
  objective.gamma = json["gamma"];
  objective.alpha = json["alpha"];
  objective.normalize = json["normalize"];
  objective.chunk_bytes = 7 * 61 * 4;  // several pieces, the last one short
  at::Tensor last;
  if (golden.has("last")) {
    objective.labels = "teacher";
    last = golden.tensor("last");
  }
  const at::Tensor labels = position_labels(objective, sample.tokens, sample.loss_mask, last, drafter->head());
  const ObjectiveTerms terms = objective_terms(objective, *drafter, drafter->slots(sample), labels, 1);
  const double loss = golden.tensor("loss").item<double>();
  EXPECT_NEAR(terms.denominator, golden.tensor("denominator").item<double>(), tolerance * terms.denominator);
  EXPECT_NEAR(terms.value / terms.denominator, loss, tolerance * loss);
  const at::Tensor correct = golden.tensor("correct");
  ASSERT_EQ(static_cast<int64_t>(terms.scored.correct.size()), correct.numel());
  for (size_t i = 0; i < terms.scored.correct.size(); ++i)
    EXPECT_EQ(terms.scored.correct[i], correct[static_cast<int64_t>(i)].item<uint8_t>()) << i;

  (terms.numerator / terms.denominator).backward();
  for (const auto& [parameter_name, parameter] : drafter->parameters()) {
    const at::Tensor expected = golden.tensor("gradient." + parameter_name).to(at::kDouble);
    const double difference = (parameter.grad().to(at::kDouble) - expected).abs().max().item<double>(),
                 size = expected.abs().max().item<double>();
    EXPECT_LT(difference, tolerance * size) << parameter_name;
  }
}

// fp32 carries 1e-7 a step; the project's bound is 1e-5.
TEST_P(BlockDrafterGolden, LossAndAllGradientsInFp32) {
  compare(GetParam(), at::kFloat, 1e-5);
}
// The golden stores fp64 results rounded to fp32, and RoPE tables are fp32 in both: 1e-6.
TEST_P(BlockDrafterGolden, LossAndAllGradientsInFp64) {
  compare(GetParam(), at::kDouble, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Cases, BlockDrafterGolden,
                         ::testing::Values("dflash/decay", "dflash/dpace", "dflash/unknown", "dflash/count",
                                           "dflare/decay", "dflare/dpace"));

class DFlashPeers : public ::testing::TestWithParam<const char*> {};

// Both sides in fp32. speculators divides by the count and 1e-5: 1.3e-7 of the loss here.
TEST_P(DFlashPeers, LossAndAllGradientsEqualTheirs) {
  compare(GetParam(), at::kFloat, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Cases, DFlashPeers,
                         ::testing::Values("dflash/specforge_decay", "dflash/specforge_dpace",
                                           "dflash/speculators_decay", "dflash/speculators_dpace"));

}  // namespace
}  // namespace draftsmith
