// The whole way through the program's commands with a tiny target: generate, prepare, capture, train, evaluate.
#include <gtest/gtest.h>

#include "tests/models/run_program.h"
#include "tests/models/tiny_model.h"

namespace draftsmith {
namespace {

using nlohmann::json;

class WholeWay : public ::testing::Test {
 protected:
  // A target that answers in ASCII: text and tokens are then the same thing, as they are for real models.
  WholeWay() {
    tiny::write_model(folder_ / "target");
    const WeightFolder weights = WeightFolder::open(folder_ / "target");
    NamedTensors tensors;
    for (const std::string& name : weights.names()) {
      tensors.emplace_back(name, weights.tensor(name).clone());
      if (name == "lm_head.weight") tensors.back().second.narrow(0, 95, tiny::kVocabulary - 95).zero_();
    }
    write_safetensors(folder_ / "target/model.safetensors", tensors);
  }

  void run(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--threads", "1"});
    const RunResult result = run_program(arguments);
    ASSERT_EQ(result.code, 0) << result.output;
  }

  // Trains on the target's own answers to `prompts` prompts and evaluates on the same prompts.
  json evaluation(int64_t prompts, int64_t new_tokens, const std::vector<std::string>& set) {
    std::string rows;
    for (int64_t i = 0; i < prompts; ++i)
      rows += json{{"messages", {{{"role", "user"}, {"content", fmt::format("item {}?", i * i)}}}}}.dump() + "\n";
    write_file(folder_ / "prompts.jsonl", rows);
    write_file(folder_ / "recipe.yaml",
               fmt::format("target:\n  folder: {}\ndata:\n  store: {}\n  validation_fraction: 0\n  anchors: 0\n"
                           "output:\n  run: {}\ndrafter:\n  layers: 2\n  block: 4\n  taps: [0, 1]\n  mask_token: 260\n"
                           "  init_norm: 0.25\n  unit_taps: true\noptimizer:\n  lr: 0.01\nobjective:\n  gamma: 0\n"
                           "schedule:\n  samples_per_step: 1\ncheckpoint:\n  every_steps: 0\nevaluate:\n"
                           "  every_steps: 0\n",
                           folder_ / "target", folder_ / "features", folder_ / "run"));
    const std::string target = folder_ / "target", corpus = folder_ / "corpus.h5", tokens = std::to_string(new_tokens);
    run({"generate", "--target", target, "--input", folder_ / "prompts.jsonl", "--output", folder_ / "answers.jsonl",
         "--max-new-tokens", tokens});
    const RunResult prepared = run_program({"prepare", "--target", target, "--input", folder_ / "answers.jsonl",
                                            "--output", corpus, "--max-length", "256"});
    EXPECT_EQ(prepared.code, 0) << prepared.output;
    run({"capture", "--target", target, "--corpus", corpus, "--output", folder_ / "features", "--taps", "0,1"});
    std::vector<std::string> train{"train", "--config", folder_ / "recipe.yaml"};
    for (const std::string& assignment : set) train.insert(train.end(), {"--set", assignment});
    run(train);
    run({"evaluate", "--target", target, "--drafter", folder_ / "run", "--prompts", folder_ / "prompts.jsonl",
         "--corpus", corpus, "--max-new-tokens", tokens, "--output", folder_ / "evaluation.json"});
    return json::parse(read_file(folder_ / "evaluation.json"));
  }

  testing::TemporaryFolder folder_;
};

TEST_F(WholeWay, OneSampleLearntByHeartIsAcceptedInWholeBlocks) {
  // The prefill's token and eight whole rounds of 3 drafted tokens and the target's own.
  const json found = evaluation(1, 1 + 8 * 4, {"schedule.epochs=500"});
  EXPECT_EQ(found["tau"], 4.0);
  EXPECT_EQ(found["acceptance_by_position"], (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(found["outputs_identical"], 1);
}

TEST_F(WholeWay, OneSampleLearntByHeartByDFlareIsAcceptedInWholeBlocks) {
  const json found =
      evaluation(1, 1 + 8 * 4, {"schedule.epochs=500", "drafter.kind=dflare", "drafter.unit_taps=false"});
  EXPECT_EQ(found["tau"], 4.0);
  EXPECT_EQ(found["outputs_identical"], 1);
}

TEST_F(WholeWay, FiftyAnswersAreThoseOfPlainDecodingAndDraftsAreAccepted) {
  const json found = evaluation(50, 24, {"schedule.epochs=12"});
  EXPECT_EQ(found["outputs_total"], 50);
  EXPECT_EQ(found["outputs_identical"], 50);
  EXPECT_GT(found["tau"].get<double>(), 1.2);  // else nothing was there to go wrong
  EXPECT_LT(found["tau"].get<double>(), 4.0);
}

}  // namespace
}  // namespace draftsmith
