#include "export/zlab.h"

#include <gtest/gtest.h>

#include "export/open_drafter.h"
#include "export/proof.h"
#include "tests/export/tiny_model.h"

namespace draftsmith {
namespace fs = std::filesystem;

namespace {

class Zlab : public ::testing::Test {
 protected:
  Zlab()
      : target(load_target(testing::write_tiny_target(folder / "target"))),
        ends{target->embedding(), target->head()},
        drafter(testing::tiny_drafter(*target, testing::tiny_drafter_config())) {
    fs::create_directories(folder / "out");
  }

  std::string write(FloatType type = FloatType::kFloat32) {
    write_zlab(*drafter, {target->weight_hash(), "corpus", "template"}, target->config(), type, folder / "out");
    return folder / "out";
  }
  nlohmann::ordered_json config() { return nlohmann::ordered_json::parse(read_file(folder / "out/config.json")); }
  void change(const std::string& key, const nlohmann::ordered_json& value) {
    nlohmann::ordered_json changed = config();
    changed[key] = value;
    write_file(folder / "out/config.json", changed.dump());
  }
  std::string error() {
    try {
      read_zlab(folder / "out", target->config(), ends);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  testing::TemporaryFolder folder;
  std::unique_ptr<Target> target;
  TargetEnds ends;
  std::unique_ptr<Drafter> drafter;
};

// The names and shapes of dflash.md 1.8: eleven a layer and three.
TEST_F(Zlab, FileHoldsElevenTensorsALayerAndThreeWithoutPrefix) {
  write();
  const SafetensorsFile file = SafetensorsFile::open(folder / "out/model.safetensors");
  std::map<std::string, std::vector<int64_t>> expected = {
      {"fc.weight", {64, 128}}, {"hidden_norm.weight", {64}}, {"norm.weight", {64}}};
  for (const char* layer : {"layers.0.", "layers.1."}) {
    const std::string prefix = layer;
    expected[prefix + "input_layernorm.weight"] = {64};
    expected[prefix + "post_attention_layernorm.weight"] = {64};
    expected[prefix + "self_attn.q_proj.weight"] = {64, 64};
    expected[prefix + "self_attn.k_proj.weight"] = {32, 64};
    expected[prefix + "self_attn.v_proj.weight"] = {32, 64};
    expected[prefix + "self_attn.o_proj.weight"] = {64, 64};
    expected[prefix + "self_attn.q_norm.weight"] = {16};
    expected[prefix + "self_attn.k_norm.weight"] = {16};
    expected[prefix + "mlp.gate_proj.weight"] = {96, 64};
    expected[prefix + "mlp.up_proj.weight"] = {96, 64};
    expected[prefix + "mlp.down_proj.weight"] = {64, 96};
  }
  std::map<std::string, std::vector<int64_t>> found;
  for (const auto& [name, entry] : file.entries()) found[name] = entry.shape;
  EXPECT_EQ(found, expected);
}

TEST_F(Zlab, ConfigHasTheKeysOfThePublishedDrafters) {
  write(FloatType::kBFloat16);
  const nlohmann::ordered_json json = config();
  const nlohmann::json expected = {{"architectures", {"DFlashDraftModel"}},
                                   {"model_type", "qwen3"},
                                   {"dtype", "bfloat16"},
                                   {"block_size", 5},
                                   {"num_target_layers", 4},
                                   {"num_hidden_layers", 2},
                                   {"hidden_size", 64},
                                   {"intermediate_size", 96},
                                   {"num_attention_heads", 4},
                                   {"num_key_value_heads", 2},
                                   {"head_dim", 16},
                                   {"hidden_act", "silu"},
                                   {"rms_norm_eps", 1e-5},
                                   {"rope_theta", 10000.0},
                                   {"rope_scaling", nullptr},
                                   {"max_position_embeddings", 512},
                                   {"attention_bias", false},
                                   {"layer_types", {"full_attention", "full_attention"}},
                                   {"use_sliding_window", false},
                                   {"sliding_window", nullptr},
                                   {"vocab_size", testing::kTinyVocabulary},
                                   {"tie_word_embeddings", true},
                                   {"bos_token_id", 1},
                                   {"eos_token_id", 2}};
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(nlohmann::json(json[key]), value) << key;
  EXPECT_EQ(json["rope_parameters"]["rope_theta"], 10000.0);
  EXPECT_EQ(json["dflash_config"]["mask_token_id"], testing::kTinyMask);
  EXPECT_EQ(json["dflash_config"]["target_layer_ids"], (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(json["dflash_config"]["block_size"], 5);
  EXPECT_FALSE(json.contains("auto_map"));
}

TEST_F(Zlab, FolderReadBackIsTheDrafterBitForBit) {
  write();
  DrafterIdentity identity;
  const auto read = read_zlab(folder / "out", target->config(), ends, &identity);
  EXPECT_EQ(identity.corpus_id, "corpus");
  const NamedTensors ours = drafter->parameters(), theirs = read->parameters();
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(ours[i].first, theirs[i].first);
    EXPECT_TRUE(ours[i].second.equal(theirs[i].second)) << ours[i].first;
  }
  const ExportProof proof = prove_export(*drafter, *read, {}, target->config(), ends);
  EXPECT_GT(proof.slots, 20);
  EXPECT_GT(proof.proposals, 20);
  EXPECT_EQ(proof.unrounded_agreement, 1);
}

TEST_F(Zlab, HalfPrecisionIsProvenAgainstTheRoundedDrafter) {
  write(FloatType::kBFloat16);
  const auto read = read_zlab(folder / "out", target->config(), ends);
  EXPECT_NO_THROW(prove_export(*drafter, *read, {FloatType::kBFloat16, false}, target->config(), ends));
  EXPECT_THROW(prove_export(*drafter, *read, {}, target->config(), ends), Error);
}

TEST_F(Zlab, ProofSeesOneChangedWeight) {
  write();
  const auto read = read_zlab(folder / "out", target->config(), ends);
  const at::NoGradGuard no_grad;
  read->parameters().front().second.view(-1)[3].add_(0.01);
  EXPECT_THROW(prove_export(*drafter, *read, {}, target->config(), ends), Error);
}

TEST_F(Zlab, ProofNamesTheTensorThatIsNotFiniteOrTooLarge) {
  write();
  const auto read = read_zlab(folder / "out", target->config(), ends);
  const at::NoGradGuard no_grad;
  const auto tensor = [&](const Drafter& of, const std::string& wanted) {
    for (const auto& [name, found] : of.parameters())
      if (name == wanted) return found;
    return at::Tensor();
  };
  const auto said = [&](const Rounding& rounding) {
    return testing::message_of([&] { prove_export(*drafter, *read, rounding, target->config(), ends); });
  };
  at::Tensor first = tensor(*drafter, "layers.1.mlp.up_proj.weight").view(-1)[7];
  first.fill_(1e6);  // beyond float16
  EXPECT_CONTAINS(said({FloatType::kFloat16, false}), "`layers.1.mlp.up_proj.weight` has values up to 1e+06");
  EXPECT_CONTAINS(said({FloatType::kFloat16, false}), "--dtype");
  first.fill_(std::nan(""));
  EXPECT_CONTAINS(said({}), "`layers.1.mlp.up_proj.weight` holds a value that is not finite at element 7");
  // Finite weights whose products are not.
  first.fill_(0.1);
  for (const Drafter* one : {static_cast<const Drafter*>(drafter.get()), static_cast<const Drafter*>(read.get())})
    tensor(*one, "norm.weight").fill_(3e38);
  EXPECT_CONTAINS(said({}), "`norm.weight`");
  EXPECT_CONTAINS(said({}), "earlier checkpoint");
}

TEST_F(Zlab, ReducedVocabularyIsRefusedWithTheFormatThatTakesIt) {
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < 200; ++id) ids.push_back(id);
  DrafterConfig reduced = testing::tiny_drafter_config();
  reduced.vocabulary = 200;
  const auto small = testing::tiny_drafter(*target, reduced, make_draft_vocabulary(ids, testing::kTinyVocabulary));
  try {
    write_zlab(*small, {}, target->config(), FloatType::kFloat32, folder / "out");
    FAIL() << "was written";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("llama.cpp"), std::string::npos) << error.what();
  }
}

TEST_F(Zlab, FoldersOfOthersAreReadWhereTheyMeanTheSame) {
  write();
  // Keys inside dflash_config only, as newer published configurations have them, and no metadata of ours.
  nlohmann::ordered_json changed = config();
  changed.erase("block_size");
  changed.erase("num_target_layers");
  changed.erase("rope_parameters");
  write_file(folder / "out/config.json", changed.dump());
  EXPECT_EQ(error(), "");
}

TEST_F(Zlab, WhatThisProgramDoesNotComputeIsNamed) {
  write();
  const nlohmann::ordered_json original = config();
  const auto refused = [&](const std::string& key, const nlohmann::ordered_json& value) {
    write_file(folder / "out/config.json", original.dump());
    change(key, value);
    const std::string text = error();
    EXPECT_NE(text.find("config.json"), std::string::npos) << key << ": " << text;
  };
  refused("attention_bias", true);
  refused("layer_types", {"sliding_attention", "full_attention"});
  refused("hidden_size", nullptr);
  refused("vocab_size", 1000);
  nlohmann::ordered_json nested = original["dflash_config"];
  nested["num_target_layers"] = 5;
  refused("dflash_config", nested);
  nested = original["dflash_config"];
  nested["causal"] = true;
  refused("dflash_config", nested);
}

TEST_F(Zlab, MaskTokenAndTapsThatCannotBeNameTheConfigAndWhatToDo) {
  write();
  const nlohmann::ordered_json original = config();
  const auto refused = [&](const char* key, const nlohmann::ordered_json& value, const char* expected) {
    nlohmann::ordered_json changed = original;
    changed["dflash_config"][key] = value;
    write_file(folder / "out/config.json", changed.dump());
    const std::string said = error();
    EXPECT_CONTAINS(said, "out/config.json");
    EXPECT_CONTAINS(said, expected);
    EXPECT_CONTAINS(said, "draftsmith export");
  };
  refused("mask_token_id", 2, "eos_token_id");
  refused("mask_token_id", 100000, "mask");
  refused("target_layer_ids", {0, 9}, "9 is no layer");
  refused("target_layer_ids", {2, 0}, "ascend");
  refused("target_layer_ids", {0, 1.5}, "1.5");
}

TEST_F(Zlab, CutFilesSayWhatToDo) {
  write();
  const auto cut = [](const std::string& path) { fs::resize_file(path, fs::file_size(path) / 2); };
  cut(folder / "out/model.safetensors");
  EXPECT_CONTAINS(error(), "model.safetensors");
  EXPECT_CONTAINS(error(), "draftsmith export");

  save_drafter(*drafter, {target->weight_hash(), "", ""}, folder / "checkpoint");
  cut(folder / "checkpoint/drafter.safetensors");
  const std::string said = testing::message_of([&] { open_drafter(folder / "checkpoint", *target); });
  EXPECT_CONTAINS(said, "drafter.safetensors");
  EXPECT_CONTAINS(said, "another checkpoint");
}

TEST_F(Zlab, HashOfACheckpointIsThatOfTheDrafterInIt) {
  std::vector<int64_t> ids{3, 7, 40, 41, 200};
  DrafterConfig small = testing::tiny_drafter_config();
  small.vocabulary = 5;
  for (const bool reduced : {false, true}) {
    const auto one = reduced
                         ? testing::tiny_drafter(*target, small, make_draft_vocabulary(ids, testing::kTinyVocabulary))
                         : testing::tiny_drafter(*target, testing::tiny_drafter_config());
    const std::string path = folder / (reduced ? "run/checkpoints/step-20" : "run/checkpoints/step-3");
    save_drafter(*one, {target->weight_hash(), "", ""}, path);
    EXPECT_EQ(drafter_hash(path), drafter_hash(*one));
    EXPECT_EQ(drafter_hash(path), open_drafter(path, *target).hash);
  }
  fs::create_directories(folder / "run/checkpoints/step-30.part");
  EXPECT_EQ(checkpoint_folders(folder / "run"),
            (std::vector<std::string>{folder / "run/checkpoints/step-20", folder / "run/checkpoints/step-3"}));
  EXPECT_TRUE(checkpoint_folders(folder / "nowhere").empty());
}

TEST_F(Zlab, DrafterOfAnotherTargetIsRefusedWithBothHashes) {
  write_zlab(*drafter, {"0123abc", "", ""}, target->config(), FloatType::kFloat32, folder / "out");
  try {
    open_drafter(folder / "out", *target);
    FAIL() << "was opened";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("0123abc"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find(target->weight_hash()), std::string::npos);
  }
}

TEST_F(Zlab, FolderThatHoldsNoDrafterSaysWhatWasLookedFor) {
  try {
    open_drafter(folder / "target", *target);
    FAIL() << "was opened";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("drafter.json"), std::string::npos) << error.what();
  }
}

TEST_F(Zlab, NaNAndMissingWeightsAreNamed) {
  write();
  NamedTensors named;
  for (const auto& [name, tensor] : drafter->parameters()) named.emplace_back(name, tensor.detach().clone());
  named[5].second.view(-1)[0] = std::nan("");
  write_safetensors(folder / "out/model.safetensors", named);
  EXPECT_NE(error().find(named[5].first), std::string::npos) << error();
  EXPECT_CONTAINS(error(), "export anew");
  const std::string lost = named[5].first;
  named.erase(named.begin() + 5);
  write_safetensors(folder / "out/model.safetensors", named);
  EXPECT_NE(error().find(lost), std::string::npos) << error();
  EXPECT_CONTAINS(error(), "export anew");
}

}  // namespace
}  // namespace draftsmith
