#include "configs/train_config.h"

#include <gtest/gtest.h>

#include "launch/check.h"
#include "tests/support.h"

namespace draftsmith {
namespace {

const char* kMinimal = "target:\n  folder: t\ndata:\n  store: s\noutput:\n  run: r\n";

TrainConfig read(const std::string& text, const std::vector<std::string>& set = {}) {
  std::string whole = kMinimal;
  whole.append(text);
  ConfigReader reader = ConfigReader::from_text(whole, "recipe.yaml");
  for (const std::string& assignment : set) reader.set(assignment);
  return read_train_config(reader);
}

std::string refusal(const std::string& text, const std::vector<std::string>& set = {}) {
  try {
    read(text, set);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(TrainConfig, ReadsValuesOfEveryType) {
  const TrainConfig config = read(
      "drafter:\n  taps: [1, 7]\n  unit_taps: true\noptimizer:\n  lr: 1.5e-3\nschedule:\n  kind: wsd\n  seed: 9\n");
  EXPECT_EQ(config.drafter.taps, (std::vector<int64_t>{1, 7}));
  EXPECT_TRUE(config.drafter.unit_taps);
  EXPECT_DOUBLE_EQ(config.optimizer.lr, 1.5e-3);
  EXPECT_EQ(config.schedule.kind, "wsd");
  EXPECT_EQ(config.schedule.seed, 9);
}

TEST(TrainConfig, AssignmentsWinOverTheFile) {
  EXPECT_DOUBLE_EQ(read("optimizer:\n  lr: 1e-3\n", {"optimizer.lr=2e-3"}).optimizer.lr, 2e-3);
  EXPECT_EQ(read("", {"drafter.taps=[2, 3]"}).drafter.taps, (std::vector<int64_t>{2, 3}));
}

TEST(TrainConfig, UnknownKeyIsNamedWithItsLineAndTheNearestOne) {
  const std::string text = refusal("optimizer:\n  learning: 1\n  lrr: 1e-3\n");
  EXPECT_HAS(text, "recipe.yaml:");
  const std::string near = refusal("optimizer:\n  weight_deacy: 1\n");
  EXPECT_HAS(near, "recipe.yaml:8");
  EXPECT_HAS(near, "did you mean `optimizer.weight_decay`");
  EXPECT_HAS(refusal("optimiser:\n  lr: 1\n"), "did you mean `optimizer`");
  EXPECT_HAS(refusal("", {"optimizer.lrate=1"}), "--set optimizer.lrate=1");
  EXPECT_HAS(refusal("", {"schedul.seed=1"}), "did you mean `schedule`");
  EXPECT_HAS(refusal("", {"seed=1"}), "section.key=value");
}

TEST(TrainConfig, WrongTypesAndRangesAreRefusedWithTheirPlace) {
  EXPECT_HAS(refusal("drafter:\n  layers: two\n"), "recipe.yaml:8: `drafter.layers` must be a whole number");
  EXPECT_HAS(refusal("drafter:\n  layers: 2.5\n"), "whole number");
  EXPECT_HAS(refusal("drafter:\n  layers: 0\n"), "at least 1");
  EXPECT_HAS(refusal("optimizer:\n  lr: fast\n"), "must be a finite number");
  EXPECT_HAS(refusal("optimizer:\n  beta1: 1.5\n"), "must lie in");
  EXPECT_HAS(refusal("drafter:\n  unit_taps: yes please\n"), "true or false");
  EXPECT_HAS(refusal("drafter:\n  taps: 3\n"), "must be a list");
  EXPECT_HAS(refusal("optimizer:\n  kind: adam\n"), "did you mean `adamw`");
  EXPECT_HAS(refusal("schedule:\n  kind: wsd\n  warmup: 0.5\n  decay: 0.8\n"), "exceed the whole run");
}

TEST(TrainConfig, KeysThatNothingReadsAreRefused) {
  EXPECT_HAS(refusal("", {"objective.alpha=0.7"}),
             "objective.alpha: 0.7 has no effect with objective.weighting: decay");
  EXPECT_HAS(refusal("", {"objective.weighting=dpace", "objective.gamma=4"}),
             "no effect with objective.weighting: dpace");
  EXPECT_HAS(refusal("", {"objective.gamma=0", "objective.gamma_end=7"}), "no effect with objective.gamma: 0");
  EXPECT_HAS(refusal("", {"objective.gamma_per_epoch=1", "objective.gamma_end=9"}), "two ways");
  EXPECT_HAS(refusal("", {"optimizer.muon_lr=0.1"}), "no effect with optimizer.kind: adamw");
  EXPECT_HAS(refusal("", {"schedule.decay=0.5"}), "no effect with schedule.kind: cosine");
  EXPECT_HAS(refusal("", {"schedule.kind=constant", "schedule.floor=0.1"}), "no effect with schedule.kind: constant");
  EXPECT_EQ(
      refusal("", {"objective.weighting=dpace", "objective.alpha=0.7", "schedule.kind=wsd", "schedule.decay=0.5"}),
      "accepted");
}

TEST(TrainConfig, TwiceGivenKeysAndBrokenYamlAreRefused) {
  EXPECT_HAS(refusal("optimizer:\n  lr: 1\n  lr: 2\n"), "stands twice");
  EXPECT_HAS(refusal("data:\n  anchors: 3\n"), "section `data` stands twice");
  EXPECT_HAS(refusal("optimizer: [\n"), "not YAML");
}

TEST(TrainConfig, NeededFoldersAreAskedFor) {
  try {
    ConfigReader reader = ConfigReader::from_text("target:\n  folder: t\n", "recipe.yaml");
    read_train_config(reader);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_HAS(std::string(error.what()), "data.store");
  }
}

TEST(TrainConfig, ResolvedTextReadsBackAsTheSame) {
  const TrainConfig config =
      read("drafter:\n  taps: [1, 7]\n  init_norm: 0.25\noptimizer:\n  lr: 0.0015\n  eps: 1e-9\n");
  const std::string text = to_yaml(config);
  ConfigReader reader = ConfigReader::from_text(text, "config.yaml");
  EXPECT_EQ(to_yaml(read_train_config(reader)), text);
}

TEST(DrafterConfig, DefaultTapsAreEvenlySpacedWithHalfToEvenRounding) {
  // The published lists (shared/research/dflash.md 1.3).
  EXPECT_EQ(default_taps(36, 5), (std::vector<int64_t>{1, 9, 17, 25, 33}));
  EXPECT_EQ(default_taps(48, 5), (std::vector<int64_t>{1, 12, 23, 34, 45}));
  EXPECT_EQ(default_taps(34, 5), (std::vector<int64_t>{1, 8, 16, 24, 31}));
  EXPECT_EQ(default_taps(36, 1), (std::vector<int64_t>{18}));
  EXPECT_EQ(default_taps(36, 7), (std::vector<int64_t>{1, 6, 12, 17, 22, 28, 33}));
  EXPECT_EQ(default_taps(6, 3), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_HAS(testing::message_of([] { default_taps(6, 4); }), "no room for 4 evenly spaced taps");
}

TEST(DrafterConfig, ARecipeWithoutTapsGetsOneForEachLayer) {
  HfConfig target;
  target.num_hidden_layers = 36;
  target.vocab_size = 100;
  target.hidden_size = 8;
  target.num_attention_heads = target.num_key_value_heads = 2;
  target.head_dim = 4;
  DrafterConfig config;
  for (const int64_t layers : {1, 3, 5}) {
    config.layers = layers;
    EXPECT_EQ(resolve_drafter(config, target).taps, default_taps(36, layers));
  }
}

}  // namespace
}  // namespace draftsmith
