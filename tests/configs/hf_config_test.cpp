#include "configs/hf_config.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "launch/file.h"
#include "tests/support.h"

namespace draftsmith {
namespace {

using nlohmann::json;

#define EXPECT_FAULT(work, part) EXPECT_CONTAINS(testing::message_of([&] { work; }), part)

RopeConfig rope(const std::string& text) {
  return parse_rope(json::parse(text), "config.json");
}

TEST(RopeConfig, EveryPublishedSpellingSaysTheSame) {
  const char* spellings[] = {
      // Llama 3.1 as published; as Transformers 5 writes it; both; by layer type
      R"({"rope_theta":500000.0,"rope_scaling":{"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
          "original_max_position_embeddings":8192,"rope_type":"llama3"}})",
      R"({"rope_parameters":{"rope_theta":500000.0,"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
          "original_max_position_embeddings":8192,"rope_type":"llama3"}})",
      R"({"rope_theta":500000,"rope_scaling":{"factor":8,"low_freq_factor":1,"high_freq_factor":4,
          "original_max_position_embeddings":8192,"type":"llama3","rope_type":"llama3"},
          "rope_parameters":{"rope_theta":500000,"factor":8,"low_freq_factor":1,"high_freq_factor":4,
          "original_max_position_embeddings":8192,"rope_type":"llama3"}})",
      R"({"rope_parameters":{"full_attention":{"rope_theta":500000.0,"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
          "original_max_position_embeddings":8192,"rope_type":"llama3"}}})"};
  for (const char* spelling : spellings) {
    const RopeConfig found = rope(spelling);
    EXPECT_EQ(found.theta, 500000) << spelling;
    EXPECT_EQ(found.type, "llama3");
    EXPECT_EQ(found.factor, 8);
    EXPECT_EQ(found.low_freq_factor, 1);
    EXPECT_EQ(found.high_freq_factor, 4);
    EXPECT_EQ(found.original_max_position_embeddings, 8192);
  }
  EXPECT_EQ(rope(R"({"rope_theta":1000000,"rope_scaling":null})").type, "default");
  EXPECT_EQ(rope(R"({"rotary_emb_base":10000})").theta, 10000);
  EXPECT_EQ(rope(R"({"rope_theta":1e4,"rope_scaling":{"type":"linear","factor":2}})").factor, 2);
  const RopeConfig yarn =
      rope(R"({"rope_theta":1e6,"max_position_embeddings":32768,"rope_scaling":{"rope_type":"yarn","factor":4.0}})");
  EXPECT_EQ(yarn.original_max_position_embeddings, 32768);
  EXPECT_EQ(yarn.beta_fast, 32);
}

TEST(RopeConfig, NoBaseIsAnErrorAndNotTenThousand) {
  EXPECT_FAULT(rope("{}"), "config.json: states no RoPE base");
  EXPECT_FAULT(rope(R"({"rope_scaling":{"type":"linear","factor":2}})"), "states no RoPE base");
  EXPECT_FAULT(rope(R"({"rope_parameters":{"rope_type":"default"}})"), "states no RoPE base");
}

TEST(RopeConfig, ContradictionsAreErrors) {
  EXPECT_FAULT(rope(R"({"rope_theta":10000,"rope_parameters":{"rope_theta":1000000}})"),
               "two RoPE bases: rope_theta says 10000, rope_parameters says 1000000");
  EXPECT_FAULT(
      rope(
          R"({"rope_theta":1e4,"rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"rope_type":"default"}})"),
      "two RoPE scalings: rope_scaling (linear, factor 2) and rope_parameters (default, factor 1) differ");
  EXPECT_FAULT(
      rope(R"({"rope_parameters":{"full_attention":{"rope_theta":1e6},"sliding_attention":{"rope_theta":1e4}}})"),
      "two RoPE bases");
  EXPECT_FAULT(rope(R"({"rope_theta":1e4,"rope_scaling":{"type":"linear","rope_type":"yarn","factor":2}})"),
               "rope_type yarn contradicts type linear");
}

TEST(RopeConfig, WhatIsNotComputedIsRefused) {
  EXPECT_FAULT(rope(R"({"rope_theta":1e4,"rope_scaling":{"type":"longrope","factor":2}})"),
               "\"longrope\" is not one that draftsmith computes");
  EXPECT_FAULT(rope(R"({"rope_theta":1e4,"partial_rotary_factor":0.5})"), "partial_rotary_factor is 0.5");
  EXPECT_FAULT(rope(R"({"rope_theta":1e4,"rope_scaling":{"type":"linear"}})"), "states no factor");
  EXPECT_FAULT(rope(R"({"rope_theta":1e4,"rope_scaling":{"rope_type":"llama3","factor":8}})"),
               "states no original_max_position_embeddings");
  EXPECT_FAULT(rope(R"({"rope_theta":"big"})"), "rope_theta is \"big\", a number is needed");
  EXPECT_FAULT(rope(R"({"rope_theta":0})"), "is not above 1");
}

TEST(RopeConfig, WhatIsWrittenIsReadBackFromEitherSpelling) {
  for (
      const char* text :
      {R"({"rope_theta":100000})", R"({"rope_theta":1e4,"rope_scaling":{"type":"linear","factor":2}})",
       R"({"rope_theta":1e6,"rope_scaling":{"type":"yarn","factor":4,"original_max_position_embeddings":4096,"attention_factor":1.5}})",
       R"({"rope_theta":5e5,"rope_scaling":{"type":"llama3","factor":32,"low_freq_factor":1,"high_freq_factor":4,
                               "original_max_position_embeddings":8192}})"}) {
    const RopeConfig wanted = rope(text);
    nlohmann::ordered_json both;
    write_rope(wanted, both);
    nlohmann::ordered_json old = both, now = both;
    old.erase("rope_parameters");
    now.erase("rope_theta");
    now.erase("rope_scaling");
    for (const auto& config : {both, old, now}) {
      const RopeConfig found = rope(config.dump());
      EXPECT_EQ(found.theta, wanted.theta);
      EXPECT_EQ(found.type, wanted.type);
      EXPECT_EQ(found.factor, wanted.factor);
      EXPECT_EQ(found.attention_factor, wanted.attention_factor);
      EXPECT_EQ(found.high_freq_factor, wanted.high_freq_factor);
      EXPECT_EQ(found.original_max_position_embeddings, wanted.original_max_position_embeddings);
    }
  }
}

class Folder {
 public:
  HfConfig read(const json& config, const json& generation = nullptr) const {
    write_file(path + "/config.json", config.dump());
    std::filesystem::remove(path + "/generation_config.json");
    if (!generation.is_null()) write_file(path + "/generation_config.json", generation.dump());
    return read_hf_config(path);
  }

  const testing::TemporaryFolder folder;
  const std::string path = folder.path().string();
};

json llama() {
  return json::parse(
      R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":100,"hidden_size":48,"intermediate_size":64,
    "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":128,"rms_norm_eps":1e-5,
    "rope_theta":10000.0,"bos_token_id":1,"eos_token_id":2,"torch_dtype":"bfloat16"})");
}

TEST(HfConfig, FieldsAreReadWithTheirPublishedMeaning) {
  const Folder folder;
  HfConfig config = folder.read(llama());
  EXPECT_EQ(config.head_dim, 12);
  EXPECT_EQ(config.num_key_value_heads, 2);
  EXPECT_EQ(config.dtype, "bfloat16");
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.eos_token_ids, std::vector<int64_t>{2});
  EXPECT_EQ(config.pad_token_id, -1);

  json other = llama();
  other["head_dim"] = 32;  // Qwen3: heads x head_dim is not the hidden size
  other.erase("num_key_value_heads");
  other["eos_token_id"] = {2, 7};
  other["tie_word_embeddings"] = true;
  other.erase("torch_dtype");
  other["dtype"] = "float16";
  config = folder.read(other);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.num_key_value_heads, 4);
  EXPECT_EQ(config.eos_token_ids, (std::vector<int64_t>{2, 7}));
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.dtype, "float16");
  // generation_config.json decides, as in Transformers
  EXPECT_EQ(folder.read(llama(), {{"eos_token_id", {5, 6}}, {"pad_token_id", 0}}).eos_token_ids,
            (std::vector<int64_t>{5, 6}));
}

TEST(HfConfig, WhatCannotBeMeantIsNamed) {
  const Folder folder;
  const auto with = [&](const char* key, json value) {
    json config = llama();
    if (value.is_null())
      config.erase(key);
    else
      config[key] = value;
    folder.read(config);
  };
  EXPECT_FAULT(with("hidden_size", nullptr), "config.json: hidden_size is missing");
  EXPECT_FAULT(with("rms_norm_eps", nullptr), "rms_norm_eps is missing");
  EXPECT_FAULT(with("rope_theta", nullptr), "states no RoPE base");
  EXPECT_FAULT(with("architectures", nullptr), "architectures must be a list of one name");
  EXPECT_FAULT(with("num_key_value_heads", 3), "4 attention heads are no multiple of 3 key/value heads");
  EXPECT_FAULT(with("num_attention_heads", 5), "no multiple");
  EXPECT_FAULT(with("head_dim", 7), "head_dim 7 is odd");
  EXPECT_FAULT(with("vocab_size", -3), "vocab_size is -3, must be positive");
  EXPECT_FAULT(with("hidden_size", 4.5), "hidden_size is 4.5, a whole number is needed");
  EXPECT_FAULT(with("hidden_act", "gelu"), "hidden_act \"gelu\" is not silu");
  EXPECT_FAULT(with("dtype", "float32"), "dtype float32 contradicts torch_dtype bfloat16");
  EXPECT_FAULT(with("sliding_window", 4096), "sliding_window 4096 is in use");
  EXPECT_FAULT(with("layer_types", json({"full_attention", "sliding_attention"})),
               "layer_types holds \"sliding_attention\"");
  EXPECT_FAULT(with("eos_token_id", 100), "eos_token_id 100 is not an id");
  EXPECT_FAULT(with("bos_token_id", 1000), "bos_token_id 1000 is outside the vocabulary of 100");
  json qwen = llama();
  qwen["sliding_window"] = 4096;
  qwen["use_sliding_window"] = false;
  EXPECT_NO_THROW(folder.read(qwen));
  write_file(folder.path + "/config.json", "{\"a\":");
  EXPECT_FAULT(read_hf_config(folder.path), "config.json: is not a JSON object");
  std::filesystem::remove(folder.path + "/config.json");
  EXPECT_FAULT(read_hf_config(folder.path), "holds no config.json");
}

}  // namespace
}  // namespace draftsmith
