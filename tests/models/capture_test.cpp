#include "models/capture.h"

#include <gtest/gtest.h>

#include <random>

#include "data/text.h"
#include "models/targets/target.h"
#include "tests/models/run_program.h"
#include "tests/models/tiny_model.h"

namespace draftsmith {
namespace {

class Capture : public ::testing::Test {
 protected:
  Capture() {
    tiny::write_model(folder / "model", 7);
    write_corpus("corpus.h5", 40, 1);
  }

  void write_corpus(const std::string& name, int64_t rows, unsigned seed, int64_t longest = 60) {
    std::mt19937 random(seed);
    CorpusOrigin origin;
    origin.tokenizer_hash = Tokenizer::load(folder / "model").hash();
    origin.template_hash = "t";
    origin.max_length = 1000;
    std::filesystem::remove(folder / name);
    CorpusWriter writer(folder / name, origin);
    for (int64_t i = 0; i < rows; ++i) {
      CorpusRow row;
      row.row_id = fmt::format("{:032x}", i + 1000 * seed);
      row.source = "test";
      const int64_t length = i == 5 ? longest : 2 + static_cast<int64_t>(random() % 50);
      for (int64_t t = 0; t < length; ++t) row.tokens.push_back(static_cast<int32_t>(random() % 256));
      row.mask.assign(row.tokens.size(), 1);
      row.mask[0] = 0;
      writer.add(row);
    }
    writer.finish();
  }
  std::vector<std::string> command(const std::string& output,
                                   const std::vector<std::string>& more = {"--taps", "0,1"}) const {
    std::vector<std::string> arguments{
        "capture",        "--target", folder / "model", "--corpus", folder / "corpus.h5", "--output", folder / output,
        "--batch-tokens", "128",      "--shard-bytes",  "40000",    "--threads",          "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  void interrupted(const std::string& output, int64_t times, const std::function<RunLimits(int64_t)>& limits) {
    for (int64_t i = 0; i < times; ++i) run_program(command(output), limits(i));
    const RunResult last = run_program(command(output));
    EXPECT_EQ(last.code, 0) << last.output;
  }

  testing::TemporaryFolder folder;
};

using CaptureSlow = Capture;

TEST_F(Capture, TheStoreHoldsTheTapsOfAPlainForwardPassOfEachRow) {
  const RunResult run = run_program(command("f", {"--taps", "0,1", "--last", "--json", folder / "f.json"}));
  ASSERT_EQ(run.code, 0) << run.output;
  const auto target = load_target(folder / "model");
  const Corpus corpus = Corpus::open(folder / "corpus.h5");
  const FeatureStore store = FeatureStore::open(folder / "f");
  EXPECT_EQ(FeatureStore::verify(store.folder()), 0);
  EXPECT_EQ(store.identity().target_hash, target->weight_hash());
  EXPECT_EQ(store.identity().corpus_id, corpus.id());
  ASSERT_EQ(store.rows(), corpus.rows());
  for (int64_t i = 0; i < store.rows(); ++i) {
    const FeatureSample sample = store.read(i);
    const CorpusRow row = corpus.row(i);
    EXPECT_EQ(sample.row_id, row.row_id);
    const at::Tensor tokens = at::tensor(std::vector<int64_t>(row.tokens.begin(), row.tokens.end()), at::kLong);
    ASSERT_TRUE(at::equal(sample.tokens, tokens));
    ASSERT_TRUE(at::equal(sample.loss_mask, at::tensor(row.mask, at::kByte)));
    TargetInput input;
    input.tokens = tokens.unsqueeze(0);
    input.taps = {0, 1};
    KvCache cache = target->make_cache(1);
    const TargetOutput output = target->forward(input, cache);
    EXPECT_LT((sample.taps - output.taps[0]).abs().max().item<float>(), 1e-4);  // a batch sums in another order
    EXPECT_LT((sample.last - output.hidden[0]).abs().max().item<float>(), 1e-4);
  }
  const auto summary = nlohmann::json::parse(read_file(folder / "f.json"));
  EXPECT_EQ(summary["rows_kept"], 40);
  EXPECT_EQ(summary["tokens"], corpus.tokens());
  EXPECT_EQ(summary["bytes"], corpus.tokens() * 3 * tiny::kHidden * 4);
}

TEST_F(Capture, RowsAreBatchedByTheirLengthsAlone) {
  using Batches = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(capture_batches({4, 4, 4, 9, 30, 1, 1}, 12), (Batches{{0, 3}, {3, 4}, {4, 5}, {5, 7}}));
  EXPECT_EQ(capture_batches({}, 12), Batches{});
}

TEST_F(Capture, KilledRunsEndInTheSameFiles) {
  const RunResult run = run_program(command("a"));
  ASSERT_EQ(run.code, 0) << run.output;
  interrupted("b", 4, [&](int64_t i) { return RunLimits{run.seconds * (0.5 + 0.13 * static_cast<double>(i)), 0}; });
  EXPECT_GT(files_of(folder / "a").size(), 5U);
  EXPECT_TRUE(files_of(folder / "b") == files_of(folder / "a"));
}

TEST_F(Capture, AFullDiskIsNamedAndTheNextRunEndsInTheSameFiles) {
  ASSERT_EQ(run_program(command("a")).code, 0);
  const RunResult full = run_program(command("b"), {0, 30000});
  EXPECT_EQ(full.code, 1);
  EXPECT_CONTAINS(full.output, folder / "b");
  EXPECT_CONTAINS(full.output, ": File too large\n       check the room on the disk");
  ASSERT_EQ(run_program(command("b")).code, 0);
  EXPECT_TRUE(files_of(folder / "b") == files_of(folder / "a"));
}

TEST_F(CaptureSlow, KilledAtThirtyRandomPointsEndsInTheSameFiles) {
  write_corpus("corpus.h5", 400, 2);
  const RunResult run = run_program(command("a"));
  ASSERT_EQ(run.code, 0) << run.output;
  std::mt19937 random(13);
  for (int round = 0; round < 3; ++round) {
    const std::string name = "b" + std::to_string(round);
    interrupted(name, 10, [&](int64_t) {
      return RunLimits{run.seconds * (0.2 + 0.0006 * static_cast<double>(random() % 1000)), 0};
    });
    EXPECT_TRUE(files_of(folder / name) == files_of(folder / "a"));
  }
}

TEST_F(Capture, TapsComeFromTheRecipeOrTheDrafterSize) {
  write_file(folder / "recipe.yaml", "drafter:\n  kind: dflash\n  taps: [0, 1]\n  mask_token: 263\n");
  ASSERT_EQ(run_program(command("recipe", {"--config", folder / "recipe.yaml"})).code, 0);
  EXPECT_EQ(FeatureStore::open(folder / "recipe").identity().taps, (std::vector<int64_t>{0, 1}));
  const RunResult both = run_program(command("x", {"--config", folder / "recipe.yaml", "--taps", "1"}));
  EXPECT_EQ(both.code, 1);
  EXPECT_NE(both.output.find("one way"), std::string::npos) << both.output;
}

TEST_F(Capture, ADrafterOfSoManyLayersHasTheSameDefaultTapsInARecipe) {
  write_file(folder / "recipe.yaml", "drafter:\n  kind: dflash\n  layers: 1\n");
  ASSERT_EQ(run_program(command("recipe", {"--config", folder / "recipe.yaml"})).code, 0);
  ASSERT_EQ(run_program(command("layers", {"--drafter-layers", "1"})).code, 0);
  EXPECT_EQ(FeatureStore::open(folder / "layers").identity().taps, (std::vector<int64_t>{1}));
  EXPECT_TRUE(files_of(folder / "recipe") == files_of(folder / "layers"));
}

TEST_F(Capture, ADiskThatIsTooSmallIsFoundBeforeAnythingIsMade) {
  nlohmann::json config = nlohmann::json::parse(read_file(folder / "model/config.json"));
  config["hidden_size"] = int64_t{1} << 40;
  write_file(folder / "model/config.json", config.dump());
  const RunResult run = run_program(command("f"));
  EXPECT_EQ(run.code, 1);
  EXPECT_CONTAINS(run.output, "TiB are needed and ");
  EXPECT_FALSE(std::filesystem::exists(folder / "f"));
}

TEST_F(Capture, AStoreWithoutARowDoesNotBlockTheMendedTarget) {
  const std::string config = read_file(folder / "model/config.json");
  nlohmann::json other = nlohmann::json::parse(config);
  other["hidden_size"] = tiny::kHidden + 2;
  write_file(folder / "model/config.json", other.dump());
  const RunResult failed = run_program(command("f"));
  EXPECT_EQ(failed.code, 1);
  EXPECT_CONTAINS(failed.output, "download the folder again, or mend config.json");
  write_file(folder / "model/config.json", config);
  const RunResult mended = run_program(command("f"));
  EXPECT_EQ(mended.code, 0) << mended.output;
}

TEST_F(Capture, TheSummaryNeverReplacesAnInput) {
  for (const char* input : {"corpus.h5", "model/config.json", "model/model.safetensors"}) {
    const std::string before = read_file(folder / input);
    const RunResult run = run_program(command("f", {"--taps", "0,1", "--json", folder / input}));
    EXPECT_EQ(run.code, 1);
    EXPECT_CONTAINS(run.output, "is also read");
    EXPECT_TRUE(read_file(folder / input) == before);
  }
  EXPECT_EQ(run_program({"store", "info", folder / "none", "--json", folder / "none/info.json"}).code, 1);
  EXPECT_FALSE(std::filesystem::exists(folder / "none"));
  ASSERT_EQ(run_program(command("f")).code, 0);
  const auto whole = files_of(folder / "f");
  const RunResult run = run_program({"store", "info", folder / "f", "--json", folder / "f/manifest.json"});
  EXPECT_EQ(run.code, 1);
  EXPECT_CONTAINS(run.output, "is also read");
  EXPECT_TRUE(files_of(folder / "f") == whole);
  EXPECT_EQ(run_program({"store", "info", folder / "f", "--json", folder / "new/info.json"}).code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder / "new/info.json"));
}

TEST_F(Capture, BrainFloatStoresAreTheRoundedFeatures) {
  ASSERT_EQ(run_program(command("full")).code, 0);
  ASSERT_EQ(run_program(command("half", {"--taps", "0,1", "--dtype", "bfloat16"})).code, 0);
  const FeatureStore full = FeatureStore::open(folder / "full"), half = FeatureStore::open(folder / "half");
  EXPECT_TRUE(at::equal(full.read(7).taps.to(at::kBFloat16).to(at::kFloat), half.read(7).taps));
}

TEST_F(Capture, BadInputIsNamedBeforeTheTargetIsLoaded) {
  ASSERT_EQ(run_program(command("f")).code, 0);
  const auto whole = files_of(folder / "f");
  const auto refused = [&](const std::string& output, const std::vector<std::string>& more,
                           const std::vector<std::string>& words) {
    const RunResult run = run_program(command(output, more));
    EXPECT_NE(run.code, 0);
    for (const std::string& word : words) EXPECT_NE(run.output.find(word), std::string::npos) << run.output;
  };
  refused("f", {"--taps", "1"}, {"taps", folder / "f"});
  refused("f", {"--taps", "0,1", "--dtype", "bfloat16"}, {"bfloat16", "float32"});
  EXPECT_TRUE(files_of(folder / "f") == whole);
  refused("g", {"--taps", "0,9"}, {"--taps: 9 is no layer"});
  refused("g", {"--taps", "0,2"}, {"--taps: 2 is the target's last layer"});  // as training says of drafter.taps
  refused("g", {"--drafter-layers", "5"}, {"no room for 5"});
  refused("g", {"--taps", "1,0"}, {"ascend"});
  refused("g", {}, {"--taps"});
  write_corpus("corpus.h5", 10, 3);
  refused("f", {"--taps", "0,1"}, {"corpus"});
  write_corpus("corpus.h5", 10, 3, 600);
  refused("g", {"--taps", "0,1"}, {"row 5", "600", "--max-length"});
  write_file(folder / "model/tokenizer.json",
             nlohmann::json::parse(read_file(folder / "model/tokenizer.json")).dump(1));
  refused("g", {"--taps", "0,1"}, {"another tokenizer", "draftsmith prepare"});
}

TEST_F(Capture, FeaturesThatAreNotFiniteNameTheirRow) {
  // A weight so large that the residual stream of one token overflows fp32.
  const SafetensorsFile file = SafetensorsFile::open(folder / "model/model.safetensors");
  NamedTensors tensors;
  for (const auto& [name, entry] : file.entries()) {
    at::Tensor tensor = file.tensor(name).clone();
    if (name == "model.layers.0.mlp.down_proj.weight" || name == "model.layers.0.mlp.up_proj.weight") tensor *= 1e30;
    tensors.emplace_back(name, tensor);
  }
  write_safetensors(folder / "model/model.safetensors", tensors);
  const RunResult run = run_program(command("f"));
  EXPECT_EQ(run.code, 1);
  EXPECT_NE(run.output.find("not all finite"), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("row 0"), std::string::npos) << run.output;
}

}  // namespace
}  // namespace draftsmith
