// Parameter counts of the published drafters from the targets' config.json (shared/research/dflash.md 1.9 and
// dflare_dfly_mtp.md 1.8).
#include "train/dry_run.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support.h"

namespace draftsmith {
namespace {

nlohmann::ordered_json qwen3(int64_t hidden, int64_t inner) {
  return {{"architectures", {"Qwen3ForCausalLM"}},
          {"model_type", "qwen3"},
          {"vocab_size", 151936},
          {"hidden_size", hidden},
          {"intermediate_size", inner},
          {"num_hidden_layers", 36},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 8},
          {"head_dim", 128},
          {"hidden_act", "silu"},
          {"max_position_embeddings", 40960},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 1000000},
          {"tie_word_embeddings", false},
          {"eos_token_id", 151645}};
}

class DryRunOf : public ::testing::Test {
 protected:
  DryRun run(const nlohmann::ordered_json& target, const std::vector<std::string>& set) const {
    folder_.write("config.json", target.dump());
    folder_.write("recipe.yaml", "target:\n  folder: " + folder_.path().string() + "\n");
    return dry_run(read_train_config(folder_.file("recipe.yaml"), set, /*folders=*/false));
  }
  const testing::TemporaryFolder folder_;
  const nlohmann::ordered_json four_ = qwen3(2560, 9728), eight_ = qwen3(4096, 12288);
};

TEST_F(DryRunOf, CountsOfDFlashAreThePublishedOnes) {
  EXPECT_EQ(run(eight_, {}).parameters, 1'048'626'432);
  EXPECT_EQ(run(four_, {}).parameters, 537'427'200);
}

TEST_F(DryRunOf, CountsOfDFlareAreThePublishedOnes) {
  const std::vector<std::string> set{"drafter.kind=dflare", "drafter.layers=7",
                                     "drafter.taps=[1, 5, 9, 13, 17, 21, 25, 29, 33]"};
  EXPECT_NEAR(static_cast<double>(run(eight_, set).parameters) * 1e-6, 1409.35, 0.005);  // the note's two decimals
  EXPECT_NEAR(static_cast<double>(run(four_, set).parameters) * 1e-6, 743.22, 0.005);
}

TEST_F(DryRunOf, WhatCannotBeTrainedIsRefused) {
  EXPECT_CONTAINS(testing::message_of([&] { run(eight_, {"drafter.taps=[35]"}); }), "last layer");
  EXPECT_CONTAINS(testing::message_of([&] {
                    run(eight_, {"output.export_for=zlab", "drafter.vocabulary=1000"});
                  }),
                  "reduced draft vocabulary");
  EXPECT_EQ(run(eight_, {"drafter.vocabulary=1000"}).parameters, 1'048'626'432);  // the head is the target's
}

}  // namespace
}  // namespace draftsmith
