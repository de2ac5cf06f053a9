// The trainer as a user meets it: what a run leaves behind, resume to the same bits, every key has an effect, bad input
// has its message.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "launch/check.h"
#include "launch/lock.h"
#include "launch/log.h"
#include "tests/models/run_program.h"
#include "tests/train/toy_run.h"
#include "train/trainer.h"

namespace draftsmith {
namespace {

class Train : public ::testing::Test {
 protected:
  Train() {
    at::set_num_threads(1);  // as the program is told below
    tiny::write_model(folder_ / "target");
    toy::write_store(folder_ / "store", folder_ / "target");
  }

  std::string recipe(const std::string& run) {
    const std::string path = folder_ / (run + ".yaml");
    write_file(path, toy::recipe(folder_ / "target", folder_ / "store", folder_ / run));
    return path;
  }
  RunResult train(const std::string& run, const std::vector<std::string>& set = {}, const RunLimits& limits = {}) {
    std::vector<std::string> arguments{"train", "--threads", "1", "--config", recipe(run)};
    for (const std::string& assignment : set) arguments.insert(arguments.end(), {"--set", assignment});
    return run_program(arguments, limits);
  }
  // Loss of the first steps in this process, and the setup it came from.
  std::vector<double> losses(const std::string& run, const std::vector<std::string>& set, int64_t steps = 2) {
    std::vector<std::string> all = set;
    TrainConfig config = read_train_config(recipe(run), all);
    TrainingSetup setup = set_up_training(config, at::kCPU);
    RunFolder folder(config.output.run, to_yaml(setup.config));
    Trainer trainer(setup, folder);
    std::vector<double> result;
    for (int64_t i = 0; i < steps; ++i) result.push_back(trainer.step().loss());
    result.push_back(static_cast<double>(trainer.total_steps()));
    return result;
  }

  testing::TemporaryFolder folder_;
};

// Metric lines without what depends on the clock.
std::vector<std::string> metrics(const std::string& run) {
  std::istringstream lines(read_file(run + "/metrics.jsonl"));
  std::vector<std::string> result;
  for (std::string line; std::getline(lines, line);) {
    auto json = nlohmann::ordered_json::parse(line);
    json.erase("time");
    result.push_back(json.dump());
  }
  return result;
}

std::string checkpoint_file(const std::string& run, int64_t step, const std::string& name) {
  return read_file(fmt::format("{}/checkpoints/step-{}/{}", run, step, name));
}

TEST_F(Train, LeavesConfigMetricsAndCheckpoints) {
  const RunResult result = train("run");
  ASSERT_EQ(result.code, 0) << result.output;
  const std::string run = folder_ / "run";
  EXPECT_TRUE(std::filesystem::exists(run + "/config.yaml"));
  const auto lines = metrics(run);
  const auto last = nlohmann::json::parse(lines.back());
  EXPECT_TRUE(last["validation"].get<bool>());
  EXPECT_GE(last["tau"].get<double>(), 1.0);
  const int64_t steps = last["step"];
  EXPECT_EQ(read_file(run + "/latest"), fmt::format("checkpoints/step-{}\n", steps));
  EXPECT_TRUE(std::filesystem::exists(fmt::format("{}/checkpoints/step-{}/drafter.json", run, steps)));
  int64_t kept = 0;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/checkpoints")) kept += entry.is_directory();
  EXPECT_EQ(kept, 2);
  EXPECT_NE(result.output.find("rows     24 of 24 rows"), std::string::npos) << result.output;
  // Again: finished, nothing to do, nothing changed.
  EXPECT_EQ(train("run").code, 0);
  EXPECT_EQ(nlohmann::json::parse(metrics(run)[3])["step"], 4);
}

TEST_F(Train, TwentyStepsEqualTenKillTen) {
  for (const std::string optimizer : {"adamw", "muon"}) {
    const std::vector<std::string> set{"schedule.max_steps=20", "checkpoint.keep=9", "optimizer.kind=" + optimizer};
    const std::string straight = optimizer + "-straight", cut = optimizer + "-cut";
    ASSERT_EQ(train(straight, set).code, 0);
    // Killed as soon as step 10 is reached, wherever it then is; then continued.
    const pid_t child = ::fork();
    if (child == 0) {
      ::freopen("/dev/null", "w", stdout);
      std::vector<std::string> arguments{"train", "--threads", "1", "--config", recipe(cut)};
      for (const std::string& assignment : set) arguments.insert(arguments.end(), {"--set", assignment});
      std::vector<char*> argv{const_cast<char*>(DRAFTSMITH_PROGRAM)};
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      ::execv(DRAFTSMITH_PROGRAM, argv.data());
      ::_exit(127);
    }
    for (int wait = 0; wait < 60000 && !std::filesystem::exists(folder_ / (cut + "/checkpoints/step-10/state.json"));
         ++wait) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(std::filesystem::exists(folder_ / (cut + "/checkpoints/step-10/state.json")));
    const RunResult second = train(cut, set);
    ASSERT_EQ(second.code, 0) << second.output;
    for (const char* name : {"drafter.safetensors", "optimizer.safetensors", "drafter.json"})
      EXPECT_EQ(checkpoint_file(folder_ / straight, 20, name), checkpoint_file(folder_ / cut, 20, name)) << name;
    EXPECT_EQ(metrics(folder_ / straight), metrics(folder_ / cut));
  }
}

TEST_F(Train, TheSameRunTwiceHasTheSameBits) {
  ASSERT_EQ(train("a", {"schedule.max_steps=6"}).code, 0);
  ASSERT_EQ(train("b", {"schedule.max_steps=6"}).code, 0);
  EXPECT_EQ(checkpoint_file(folder_ / "a", 6, "drafter.safetensors"),
            checkpoint_file(folder_ / "b", 6, "drafter.safetensors"));
}

TEST_F(Train, AnotherRunsFolderIsRefused) {
  ASSERT_EQ(train("run", {"schedule.max_steps=2"}).code, 0);
  const RunResult other = train("run", {"schedule.max_steps=2", "optimizer.lr=0.1"});
  EXPECT_NE(other.code, 0);
  EXPECT_NE(other.output.find("belongs to another run"), std::string::npos) << other.output;
  EXPECT_NE(other.output.find("lr: 0.1"), std::string::npos) << other.output;
  std::filesystem::create_directories(folder_ / "full");
  write_file(folder_ / "full/notes.txt", "mine");
  const RunResult full = train("full");
  EXPECT_NE(full.code, 0);
  EXPECT_NE(full.output.find("not empty"), std::string::npos) << full.output;
}

TEST_F(Train, OneSampleIsLearntByHeart) {
  toy::write_store(folder_ / "one", folder_ / "target", 1);
  TrainConfig config = read_train_config(
      recipe("heart"),
      {"data.validation_fraction=0", "data.store=" + (folder_ / "one"), "schedule.epochs=120",
       "schedule.samples_per_step=1", "drafter.init_norm=0.25", "checkpoint.every_steps=0", "evaluate.every_steps=0"});
  TrainingSetup setup = set_up_training(config, at::kCPU);
  RunFolder run(config.output.run, to_yaml(setup.config));
  Trainer trainer(setup, run);
  trainer.run();
  const TrainFigures last = trainer.step();
  for (size_t k = 0; k < last.slot_count.size(); ++k)
    EXPECT_EQ(last.slot_correct[k], last.slot_count[k]) << "slot " << k + 1;
}

// Each key of the recipe, changed, changes the first losses, the number of steps or the folder that is left.
TEST_F(Train, EveryKeyOfTheLearningHasAnEffect) {
  const std::vector<std::string> base{"schedule.max_steps=6", "schedule.warmup=0"};
  const auto with = [&](const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> all = base;
    all.insert(all.end(), more.begin(), more.end());
    return losses(name, all, 3);
  };
  const std::vector<double> plain = with("plain", {});
  EXPECT_EQ(plain, with("plain-again", {}));
  int i = 0;
  for (const std::string change : {"drafter.layers=1",
                                   "drafter.block=3",
                                   "drafter.taps=[1]",
                                   "drafter.mask_token=260",
                                   "drafter.intermediate_size=24",
                                   "drafter.num_attention_heads=2",
                                   "drafter.num_key_value_heads=1",
                                   "drafter.head_dim=4",
                                   "drafter.vocabulary=50",
                                   "drafter.initializer_range=0.05",
                                   "drafter.init=target",
                                   "drafter.init_norm=0.5",
                                   "drafter.init_qk_norm=2",
                                   "drafter.unit_taps=true",
                                   "drafter.kind=dflare",
                                   "data.validation_fraction=0.5",
                                   "data.anchors=2",
                                   "objective.gamma=1",
                                   "objective.weighting=dpace",
                                   "objective.normalize=count",
                                   "objective.normalize=samples",
                                   "optimizer.kind=muon",
                                   "optimizer.lr=0.001",
                                   "optimizer.beta1=0.5",
                                   "optimizer.beta2=0.5",
                                   "optimizer.eps=0.1",
                                   "optimizer.weight_decay=1",
                                   "optimizer.clip=0.01",
                                   "schedule.kind=linear",
                                   "schedule.warmup=0.9",
                                   "schedule.samples_per_step=2",
                                   "schedule.seed=2",
                                   "schedule.max_steps=3"}) {
    EXPECT_NE(plain, with(fmt::format("change-{}", i++), {change})) << change;
  }
  const std::vector<double> muon = with("muon", {"optimizer.kind=muon"});
  for (const std::string change :
       {"optimizer.muon_lr=0.1", "optimizer.muon_momentum=0.5", "optimizer.muon_iterations=2"})
    EXPECT_NE(muon, with(fmt::format("change-{}", i++), {"optimizer.kind=muon", change})) << change;
  EXPECT_NE(plain, with("gamma-end", {"objective.gamma_end=20"}));
  const std::vector<std::string> second{"schedule.max_steps=0", "schedule.samples_per_step=12"};  // two steps an epoch
  EXPECT_NE(with("gamma-fixed", second), with("gamma-epoch", {second[0], second[1], "objective.gamma_per_epoch=3"}));
  const std::vector<double> dpace = with("dpace", {"objective.weighting=dpace"});
  EXPECT_NE(dpace, with("dpace-alpha", {"objective.weighting=dpace", "objective.alpha=0.9"}));
  const std::vector<double> wsd = with("wsd", {"schedule.kind=wsd", "schedule.decay=1"});
  EXPECT_NE(wsd, with("wsd-decay", {"schedule.kind=wsd", "schedule.decay=0.7"}));
  EXPECT_NE(wsd, with("wsd-floor", {"schedule.kind=wsd", "schedule.decay=1", "schedule.floor=0.5"}));
  EXPECT_NE(with("epochs", {"schedule.max_steps=0"}).back(),
            with("epochs-2", {"schedule.max_steps=0", "schedule.epochs=2"}).back());
}

TEST_F(Train, PackingChangesMemoryAndNotTheResult) {
  const auto alone = losses("alone", {"schedule.rows_per_pass=1", "objective.chunk_bytes=65536"}, 4),
             packed = losses("packed", {}, 4);
  for (size_t i = 0; i < alone.size(); ++i)
    EXPECT_NEAR(alone[i], packed[i], 1e-4 * packed[i]);  // fp32 sums in another order, through four updates
  const FeatureStore store = FeatureStore::open(folder_ / "store");
  SampleStream stream(store, DataSection{}, 1);
  stream.configure({}, 4, 1, at::kCPU);
  EXPECT_EQ(stream.training_passes(0, 3).size(), 3u);
  stream.configure({}, 4, 1 << 20, at::kCPU);
  EXPECT_EQ(stream.training_passes(0, 3).size(), 1u);
}

// What the keys of checkpoint and evaluate leave behind.
TEST_F(Train, CheckpointsAndValidationsComeWhenTheirKeysSay) {
  const auto checkpoints = [&](const std::string& run) {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / (run + "/checkpoints")))
      names.insert(entry.path().filename().string());
    return names;
  };
  const auto validations = [&](const std::string& run) {
    std::vector<std::pair<int64_t, int64_t>> found;  // step, samples
    for (const std::string& line : metrics(folder_ / run)) {
      const auto json = nlohmann::json::parse(line);
      if (json.contains("validation")) found.emplace_back(json["step"].get<int64_t>(), json["samples"].get<int64_t>());
    }
    return found;
  };
  ASSERT_EQ(train("a", {"schedule.max_steps=7", "checkpoint.every_steps=2", "checkpoint.keep=3",
                        "evaluate.every_steps=3", "evaluate.rows=2"})
                .code,
            0);
  EXPECT_EQ(checkpoints("a"), (std::set<std::string>{"step-4", "step-6", "step-7"}));
  EXPECT_EQ(validations("a"), (std::vector<std::pair<int64_t, int64_t>>{{3, 2}, {6, 2}, {7, 2}}));
  ASSERT_EQ(
      train("b", {"schedule.max_steps=7", "checkpoint.every_steps=0", "evaluate.every_steps=0", "evaluate.rows=1"})
          .code,
      0);
  EXPECT_EQ(checkpoints("b"), std::set<std::string>{"step-7"});
  EXPECT_EQ(validations("b"), (std::vector<std::pair<int64_t, int64_t>>{{7, 1}}));
}

TEST_F(Train, ImpossibleValuesAreWarnedOf) {
  const auto output = [&](const std::string& run, std::vector<std::string> set) {
    set.insert(set.end(), {"schedule.max_steps=1"});
    return train(run, set).output;
  };
  EXPECT_NE(output("loud", {"drafter.init_norm=60"}).find("badly scaled"), std::string::npos);
  EXPECT_NE(output("narrow", {"drafter.vocabulary=20"}).find("draft vocabulary"), std::string::npos);
  EXPECT_NE(output("blind", {"data.validation_fraction=0"}).find("no row is kept for validation"), std::string::npos);
}

TEST_F(Train, AFullDiskEndsTheRunAndKeepsTheLastCheckpoint) {
  ASSERT_EQ(train("run", {"schedule.max_steps=12"}, {.kill_after = 0, .file_bytes = 64 << 10}).code, 1);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/latest"));
  const RunResult again = train("run", {"schedule.max_steps=12"});
  EXPECT_EQ(again.code, 0) << again.output;
}

TEST_F(Train, ADamagedCheckpointIsNamed) {
  ASSERT_EQ(train("run", {"schedule.max_steps=5"}).code, 0);
  const std::string path = folder_ / "run/checkpoints/step-5/optimizer.safetensors";
  const std::string whole = read_file(path);
  write_file(path, whole.substr(0, whole.size() / 2));
  const RunResult cut = train("run", {"schedule.max_steps=5"});
  EXPECT_EQ(cut.code, 1);
  EXPECT_NE(cut.output.find("optimizer.safetensors"), std::string::npos) << cut.output;
  std::filesystem::remove(folder_ / "run/checkpoints/step-5/state.json");
  EXPECT_NE(train("run", {"schedule.max_steps=5"}).output.find("no whole checkpoint"), std::string::npos);
}

TEST_F(Train, TheSummaryDoesNotReplaceTheRecipe) {
  const std::string path = recipe("own");
  EXPECT_CONTAINS(run_program({"train", "--config", path, "--json", path}).output, "is also read");
  EXPECT_CONTAINS(read_file(path), "samples_per_step");
}

TEST_F(Train, ARunDoesNotGoOnWithOtherData) {
  const std::vector<std::string> set{"schedule.max_steps=10"};
  ASSERT_EQ(train("run", set).code, 0);
  write_file(folder_ / "run/latest", "checkpoints/step-5\n");
  std::filesystem::remove_all(folder_ / "store");
  toy::write_store(folder_ / "store", folder_ / "target", toy::kRows, false, "another");
  const RunResult other = train("run", set);
  EXPECT_EQ(other.code, 1);
  EXPECT_CONTAINS(other.output, "was trained on another corpus: toy there, another now");
}

TEST_F(Train, ADraftVocabularyIsNotExchangedInTheMiddle) {
  const std::vector<std::string> set{"schedule.max_steps=10", "drafter.vocabulary=60"};
  ASSERT_EQ(train("run", set).code, 0);
  write_file(folder_ / "run/latest", "checkpoints/step-5\n");
  std::filesystem::remove_all(folder_ / "store");
  toy::write_store(folder_ / "store", folder_ / "target", toy::kRows / 2);
  EXPECT_CONTAINS(train("run", set).output, "its draft vocabulary is not the one");
}

TEST_F(Train, OneProcessARun) {
  const std::string run = folder_ / "run";
  std::filesystem::create_directories(run);
  const FolderLock lock(run, "run");
  EXPECT_CONTAINS(train("run").output, "another process is writing this run");
}

TEST_F(Train, ARunKilledInItsFirstMomentIsBegunAgain) {
  std::filesystem::create_directories(folder_ / "run");
  write_file(folder_ / "run/config.yaml.part-99999999", "target:");
  EXPECT_EQ(train("run", {"schedule.max_steps=2"}).code, 0);
}

TEST_F(Train, AFolderMayBeSpeltOtherwise) {
  ASSERT_EQ(train("run", {"schedule.max_steps=2"}).code, 0);
  const RunResult again = train("run", {"schedule.max_steps=2", "data.store=" + folder_.path().string() + "/./store"});
  EXPECT_EQ(again.code, 0) << again.output;
}

TEST_F(Train, WhatIsNotFiniteEndsTheRun) {
  for (const std::string weighting : {"decay", "dpace"}) {
    const RunResult run = train(
        weighting, {"objective.weighting=" + weighting, "schedule.kind=constant", "schedule.warmup=0",
                    "optimizer.lr=10", "optimizer.weight_decay=10", "schedule.epochs=100", "schedule.max_steps=400"});
    EXPECT_EQ(run.code, 1) << weighting;
    EXPECT_CONTAINS(run.output, "not finite");
  }
}

TEST_F(Train, TimeBudgetEndsTheRun) {
  const RunResult result = train("brief", {"schedule.epochs=100000", "schedule.max_minutes=0.01",
                                           "evaluate.every_steps=0", "checkpoint.every_steps=0"});
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_LT(result.seconds, 30);
}

TEST_F(Train, TeacherLabelsNeedTheTargetsLastState) {
  const RunResult refused = train("teacher", {"objective.labels=teacher"});
  EXPECT_NE(refused.code, 0);
  EXPECT_NE(refused.output.find("last state"), std::string::npos) << refused.output;
  toy::write_store(folder_ / "with-last", folder_ / "target", toy::kRows, true);
  const std::string store = "data.store=" + (folder_ / "with-last");
  EXPECT_NE(losses("teacher-a", {store, "objective.labels=teacher"}), losses("teacher-b", {store}));
}

TEST_F(Train, WrongInputIsRefusedWithTheRemedy) {
  const auto refused = [&](const std::string& name, const std::vector<std::string>& set,
                           const std::vector<std::string>& parts) {
    const RunResult result = train(name, set);
    EXPECT_NE(result.code, 0) << name;
    for (const std::string& part : parts) EXPECT_NE(result.output.find(part), std::string::npos) << result.output;
  };
  refused("key", {"optimizer.lrr=1"}, {"unknown key `optimizer.lrr`", "optimizer.lr"});
  refused("kind", {"drafter.kind=dflsh"}, {"did you mean `dflash`"});
  refused("format", {"output.export_for=zlba"}, {"zlba", "zlab", "llama.cpp"});
  refused("runtime", {"output.export_for=zlab", "drafter.vocabulary=50"}, {"vocabulary", "llama.cpp"});
  refused("last", {"drafter.taps=[0, 2]"}, {"last layer", "at most 1"});
  toy::write_store(folder_ / "one-tap", folder_ / "target", toy::kRows, false, "toy", {0});
  refused("taps", {"data.store=" + (folder_ / "one-tap"), "drafter.taps=[0, 1]"}, {"holds taps [0]", "capture"});
  refused("mask-eos", {"drafter.mask_token=257"}, {"eos_token_id"});
  refused("mask-used", {"drafter.mask_token=25"}, {"occurs", "masked"});
  refused("mask-outside", {"drafter.mask_token=264"}, {"outside the embedding table"});
  refused("store", {"data.store=" + (folder_ / "nowhere")}, {"nowhere"});
  tiny::write_model(folder_ / "other", 8);
  refused("other", {"target.folder=" + (folder_ / "other")},
          {"other weights", WeightFolder::open(folder_ / "other").weight_hash(), "capture"});
}

}  // namespace
}  // namespace draftsmith
