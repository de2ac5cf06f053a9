// Folders that are damaged or contradict themselves: each is refused, and the message names the tensor and the remedy.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/safetensors.h"
#include "launch/check.h"
#include "launch/file.h"
#include "models/targets/target.h"

namespace draftsmith {
namespace {

namespace fs = std::filesystem;

// A copy of a tiny golden model in one file, to be damaged.
class DamagedTarget : public ::testing::Test {
 protected:
  DamagedTarget() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / fmt::format("draftsmith-target-{}-{}", test->name(), ::getpid());
    take("llama-untied-llama3-f16-sharded");
  }
  ~DamagedTarget() override { fs::remove_all(folder_); }

  void take(const std::string& name) {
    fs::create_directories(folder_);
    const std::string source = std::string(DRAFTSMITH_GOLDENS) + "/targets/" + name;
    config_ = nlohmann::json::parse(read_file(source + "/config.json"));
    const WeightFolder weights = WeightFolder::open(source);
    tensors_.clear();
    for (const std::string& tensor : weights.names()) tensors_[tensor] = weights.tensor(tensor).clone();
  }

  // The message with which the folder is refused; empty when it loads.
  std::string refusal() {
    write_file(folder_ / "config.json", config_.dump());
    NamedTensors all(tensors_.begin(), tensors_.end());
    write_safetensors((folder_ / "model.safetensors").string(), all);
    try {
      load_target(folder_.string());
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  fs::path folder_;
  nlohmann::json config_;
  std::map<std::string, at::Tensor> tensors_;
};

#define EXPECT_SAYS(message, part) EXPECT_NE((message).find(part), std::string::npos) << "message: " << (message)

TEST_F(DamagedTarget, LoadsWhenNothingIsDamaged) {
  EXPECT_EQ(refusal(), "");
}

TEST_F(DamagedTarget, MissingWeightIsNamedWithItsNearestName) {
  tensors_["model.layers.1.self_attn.query_proj.weight"] = tensors_.at("model.layers.1.self_attn.q_proj.weight");
  tensors_.erase("model.layers.1.self_attn.q_proj.weight");
  const std::string message = refusal();
  EXPECT_SAYS(message, "model.layers.1.self_attn.q_proj.weight is missing");
  EXPECT_SAYS(message, "config.json");
}

TEST_F(DamagedTarget, ExtraWeightIsNamed) {
  tensors_["model.layers.3.mlp.up_proj.weight"] = at::ones({40, 32});
  EXPECT_SAYS(refusal(), "model.layers.3.mlp.up_proj.weight");
}

TEST_F(DamagedTarget, UnreadBiasIsNamed) {
  config_["attention_bias"] = false;
  EXPECT_SAYS(refusal(), "model.layers.0.self_attn.k_proj.bias");
}

TEST_F(DamagedTarget, WronglyShapedWeightTellsBothShapes) {
  tensors_["model.layers.2.mlp.down_proj.weight"] = at::ones({32, 41});
  const std::string message = refusal();
  EXPECT_SAYS(message, "model.layers.2.mlp.down_proj.weight");
  EXPECT_SAYS(message, "[32, 41]");
  EXPECT_SAYS(message, "download the folder again, or mend config.json");
  EXPECT_SAYS(message, "[32, 40]");
}

TEST_F(DamagedTarget, NotANumberAndInfinityAreNamedInEveryDtype) {
  for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    for (const double value : {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
      take("llama-tied-f32");
      at::Tensor norm = tensors_.at("model.layers.1.input_layernorm.weight").to(dtype);
      norm[17] = value;
      tensors_["model.layers.1.input_layernorm.weight"] = norm;
      const std::string message = refusal();
      EXPECT_SAYS(message, "model.layers.1.input_layernorm.weight holds");
      EXPECT_SAYS(message, "index 17");
    }
  }
}

TEST_F(DamagedTarget, NotANumberDeepInALargeWeightIsFound) {
  at::Tensor large = at::ones({300, 4099});
  EXPECT_EQ(first_not_finite(large), -1);
  large[200][4098] = std::numeric_limits<float>::infinity();
  large[299][4098] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(first_not_finite(large), 200 * 4099 + 4098);
  large[200][4098] = 3e38F;
  EXPECT_EQ(first_not_finite(large), 299 * 4099 + 4098);
}

TEST_F(DamagedTarget, VocabularyThatIsNotTheEmbeddingsTellsBoth) {
  config_["vocab_size"] = 97;
  const std::string message = refusal();
  EXPECT_SAYS(message, "model.embed_tokens.weight");
  EXPECT_SAYS(message, "[96, 32]");
  EXPECT_SAYS(message, "[97, 32]");
}

TEST_F(DamagedTarget, UntiedWithoutHeadIsAContradictionWithItsRemedy) {
  tensors_.erase("lm_head.weight");
  const std::string message = refusal();
  EXPECT_SAYS(message, "lm_head.weight");
  EXPECT_SAYS(message, "tie_word_embeddings");
}

TEST_F(DamagedTarget, TiedWithAnotherHeadIsAContradictionWithItsRemedy) {
  config_["tie_word_embeddings"] = true;
  const std::string message = refusal();
  EXPECT_SAYS(message, "lm_head.weight differs");
  EXPECT_SAYS(message, "tie_word_embeddings to false");
}

TEST_F(DamagedTarget, TiedWithTheSameHeadLoads) {
  config_["tie_word_embeddings"] = true;
  tensors_["lm_head.weight"] = tensors_.at("model.embed_tokens.weight").clone();
  EXPECT_EQ(refusal(), "");
}

TEST_F(DamagedTarget, IntegerWeightIsRefused) {
  tensors_["model.norm.weight"] = at::ones({32}, at::kInt);
  const std::string message = refusal();
  EXPECT_SAYS(message, "model.norm.weight");
  EXPECT_SAYS(message, "download the folder again, or mend config.json");
}

TEST_F(DamagedTarget, UnknownArchitectureListsTheKnownOnes) {
  config_["architectures"] = {"GPT2LMHeadModel"};
  config_["model_type"] = "gpt2";
  const std::string message = refusal();
  EXPECT_SAYS(message, "GPT2LMHeadModel");
  EXPECT_SAYS(message, "LlamaForCausalLM");
  EXPECT_SAYS(message, "Qwen3ForCausalLM");
}

TEST_F(DamagedTarget, AnotherActivationIsRefused) {
  config_["hidden_act"] = "gelu";
  EXPECT_SAYS(refusal(), "hidden_act");
}

}  // namespace
}  // namespace draftsmith
