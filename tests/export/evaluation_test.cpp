#include "export/evaluation.h"

#include <gtest/gtest.h>

#include "export/evaluation_file.h"
#include "tests/export/tiny_model.h"

namespace draftsmith {
namespace {

// Two answers counted by hand. Blocks of 4: three drafted tokens a round.
EvaluationRow first_answer() {
  EvaluationRow row;
  row.prompt = {"one", "sums", "", {1, 2}};
  row.plain.tokens = row.speculative.tokens = {9, 9, 9, 9, 9, 9, 9};  // 7: one from the prefill, six from rounds
  row.plain.seconds = 6.0;
  row.plain.seconds_verify = 5.4;  // six forwards
  row.speculative.proposed = {3, 3};
  row.speculative.accepted = {3, 1};  // commits 4 and 2
  row.speculative.seconds = 3.0;
  row.speculative.seconds_draft = 0.4;
  row.speculative.seconds_verify = 2.2;
  row.ngram.proposed = {1, 0, 2};  // three rounds for the same six tokens
  return row;
}

EvaluationRow second_answer() {
  EvaluationRow row;
  row.prompt = {"two", "code", "", {1}};
  row.plain.tokens = {5, 6, 7, 8};
  row.speculative.tokens = {5, 6, 7, 9};
  row.plain.seconds = 2.0;
  row.plain.seconds_verify = 1.8;
  row.speculative.proposed = {3, 1, 0};
  row.speculative.accepted = {0, 0, 0};
  row.speculative.seconds = 2.0;
  row.speculative.seconds_draft = 0.6;
  row.speculative.seconds_verify = 1.3;
  row.ngram.proposed = {0, 0, 0};
  row.divergence = 3;
  row.gap = 0.25;
  return row;
}

TEST(Evaluation, TauIsTokensCommittedPerRoundWithoutThePrefillsToken) {
  EvaluationFigures figures(4);
  figures.add(first_answer());
  EXPECT_DOUBLE_EQ(figures.tau(), 3.0);
  EXPECT_DOUBLE_EQ(figures.tau_without_bonus(), 2.0);
  figures.add(second_answer());
  EXPECT_DOUBLE_EQ(figures.tau(), 9.0 / 5);
  EXPECT_DOUBLE_EQ(figures.tau_without_bonus(), 4.0 / 5);
  EXPECT_DOUBLE_EQ(figures.tau_mean_over_responses(), (3.0 + 1.0) / 2);
  EXPECT_DOUBLE_EQ(figures.tau_ngram(), 9.0 / 6);
}

TEST(Evaluation, AcceptanceCountsOnlyRoundsThatProposedThatFar) {
  EvaluationFigures figures(4);
  figures.add(first_answer());
  figures.add(second_answer());
  EXPECT_EQ(figures.offered, (std::vector<int64_t>{4, 3, 3}));
  EXPECT_EQ(figures.taken, (std::vector<int64_t>{2, 1, 1}));
  EXPECT_EQ(figures.lengths, (std::vector<int64_t>{3, 1, 0, 1}));
}

TEST(Evaluation, SlotsBehindAnAcceptedStopTokenWereNotOffered) {
  EvaluationRow row = first_answer();
  row.speculative.tokens = {9, 9, 9, 9, 9, 2};  // 4 of the first round, then one: the drafted stop token
  row.speculative.stopped = true;
  EvaluationFigures figures(4);
  figures.add(row);
  EXPECT_EQ(figures.offered, (std::vector<int64_t>{2, 1, 1}));
  EXPECT_EQ(figures.taken, (std::vector<int64_t>{2, 1, 1}));
  // A stop token that the target puts behind a rejected slot: the slots behind were judged.
  row.speculative.tokens = {9, 9, 9, 9, 9, 9, 2};
  EvaluationFigures corrected(4);
  corrected.add(row);
  EXPECT_EQ(corrected.offered, (std::vector<int64_t>{2, 2, 2}));
}

TEST(Evaluation, SpeedAndBreakEvenComeFromMeasuredSeconds) {
  EvaluationFigures figures(4);
  figures.add(first_answer());
  EXPECT_DOUBLE_EQ(figures.plain_rate(), 7 / 6.0);
  EXPECT_DOUBLE_EQ(figures.speedup(), 2.0);
  // A round costs (0.4 + 2.2) / 2 = 1.3 s, a plain forward 5.4 / 6 = 0.9 s.
  EXPECT_NEAR(figures.break_even_tau(), 1.3 / 0.9, 1e-12);
}

TEST(Evaluation, DifferingOutputsAreCountedAndListedWithTheirGap) {
  testing::TemporaryFolder folder;
  testing::write_tiny_tokenizer(folder / "");
  const Tokenizer tokenizer = Tokenizer::load(folder / "");
  const EvaluationReport report = sum_up({first_answer(), second_answer()}, 4, true);
  const nlohmann::ordered_json json = evaluation_json(report, tokenizer);
  EXPECT_EQ(json["outputs_total"], 2);
  EXPECT_EQ(json["outputs_identical"], 1);
  ASSERT_EQ(json["divergences"].size(), 1U);
  EXPECT_EQ(json["divergences"][0]["id"], "two");
  EXPECT_EQ(json["divergences"][0]["position"], 3);
  EXPECT_DOUBLE_EQ(json["divergences"][0]["logit_gap"].get<double>(), 0.25);
  EXPECT_EQ(json["by_category"]["sums"]["outputs_identical"], 1);
  EXPECT_EQ(json["by_category"]["code"]["outputs_identical"], 0);
}

TEST(Evaluation, PiecesOfAnAnswerAreItsTextCutAtTheRounds) {
  testing::TemporaryFolder folder;
  testing::write_tiny_tokenizer(folder / "");
  const Tokenizer tokenizer = Tokenizer::load(folder / "");
  EvaluationRow row = first_answer();
  const std::vector<int64_t> ids = tokenizer
                                       .encode(
                                           "a\xC3\xA9"
                                           "bcde")
                                       .ids;  // seven bytes, seven tokens; the second character is two of them
  ASSERT_EQ(ids.size(), 7U);
  row.plain.tokens = row.speculative.tokens = ids;
  const nlohmann::ordered_json json = evaluation_json(sum_up({row}, 4, false), tokenizer);
  const nlohmann::ordered_json expected = nlohmann::ordered_json::parse(R"([["a", 1], ["ébc", 4], ["de", 2]])");
  EXPECT_EQ(json["rows"][0]["pieces"], expected);
  EXPECT_TRUE(json["tau_ngram"].is_null());
}

class EvaluateTiny : public ::testing::Test {
 protected:
  EvaluateTiny() : target(load_target(testing::write_tiny_target(folder / "target"))) {}

  std::vector<EvaluationPrompt> prompts(int count) const {
    std::vector<EvaluationPrompt> out;
    for (int i = 0; i < count; ++i) out.push_back({fmt::format("{}", i), "any", "", {1, 40 + i, 50 + 2 * i, 90}});
    return out;
  }

  testing::TemporaryFolder folder;
  std::unique_ptr<Target> target;
};

TEST_F(EvaluateTiny, EveryGreedyOutputIsThatOfPlainDecoding) {
  const auto drafter = testing::tiny_drafter(*target, testing::tiny_drafter_config());
  EvaluationOptions options;
  options.decode.max_new_tokens = 24;
  int64_t seen = 0;
  options.done = [&](const EvaluationRow&) { ++seen; };
  const EvaluationReport report = sum_up(evaluate(*target, *drafter, nullptr, prompts(6), options), 5, false);
  EXPECT_EQ(seen, 6);
  EXPECT_EQ(report.overall.identical, 6);
  EXPECT_EQ(report.overall.speculative_tokens, 6 * 24);
  EXPECT_EQ(report.overall.committed, 6 * 23);
  EXPECT_TRUE(must_be_identical(*target, options.decode));
}

TEST_F(EvaluateTiny, MatchedSamplingDrawsTheTokensOfPlainSampling) {
  const auto drafter = testing::tiny_drafter(*target, testing::tiny_drafter_config());
  EvaluationOptions options;
  options.decode.max_new_tokens = 16;
  options.decode.sampling.temperature = 0.7;
  options.decode.seed = 11;
  const EvaluationReport report = sum_up(evaluate(*target, *drafter, nullptr, prompts(4), options), 5, false);
  EXPECT_EQ(report.overall.identical, 4);
  options.decode.seed = 12;
  const EvaluationReport other = sum_up(evaluate(*target, *drafter, nullptr, prompts(4), options), 5, false);
  EXPECT_NE(report.rows[0].plain.tokens, other.rows[0].plain.tokens);
}

TEST_F(EvaluateTiny, SpeculativeSamplingClaimsNoIdenticalOutputs) {
  const auto drafter = testing::tiny_drafter(*target, testing::tiny_drafter_config());
  EvaluationOptions options;
  options.decode.max_new_tokens = 8;
  options.decode.sampling.temperature = 1;
  options.decode.rule = VerifyRule::kSpeculative;
  const EvaluationReport report = sum_up(evaluate(*target, *drafter, nullptr, prompts(2), options), 5, false);
  EXPECT_TRUE(to_json(report.overall, false)["outputs_identical"].is_null());
}

TEST_F(EvaluateTiny, DrafterWhoseLogitsAreNotFiniteIsNamed) {
  const auto drafter = testing::tiny_drafter(*target, testing::tiny_drafter_config());
  const at::NoGradGuard no_grad;
  for (auto& [name, tensor] : drafter->parameters())
    if (name == "norm.weight") at::Tensor(tensor).fill_(3e38);
  EvaluationOptions options;
  options.decode.max_new_tokens = 8;
  options.name = "runs/burst";
  const std::string said = testing::message_of([&] { evaluate(*target, *drafter, nullptr, prompts(1), options); });
  EXPECT_CONTAINS(said, "runs/burst");
  EXPECT_CONTAINS(said, "not finite");
  EXPECT_CONTAINS(said, "earlier checkpoint");
}

TEST_F(EvaluateTiny, ShorterBlocksProposeLessAndLongerOnesAreRefused) {
  const auto drafter = testing::tiny_drafter(*target, testing::tiny_drafter_config());
  EvaluationOptions options;
  options.decode.max_new_tokens = 12;
  options.block = 3;
  const std::vector<EvaluationRow> rows = evaluate(*target, *drafter, nullptr, prompts(1), options);
  for (int64_t proposed : rows[0].speculative.proposed) EXPECT_LE(proposed, 2);
  options.block = 6;
  EXPECT_THROW(evaluate(*target, *drafter, nullptr, prompts(1), options), Error);
  options.block = 1;
  EXPECT_THROW(evaluate(*target, *drafter, nullptr, prompts(1), options), Error);
  options.block = 0;
  EXPECT_THROW(evaluate(*target, *drafter, nullptr, {}, options), Error);
}

}  // namespace
}  // namespace draftsmith
