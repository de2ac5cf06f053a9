#include "export/llama_cpp.h"

#include <gtest/gtest.h>

#include "data/gguf.h"
#include "export/format.h"
#include "export/gguf_vocabulary.h"
#include "export/llama_cpp_target.h"
#include "export/proof.h"
#include "export/shell.h"
#include "tests/export/tiny_model.h"

namespace draftsmith {

namespace fs = std::filesystem;

namespace {

class LlamaCpp : public ::testing::Test {
 protected:
  LlamaCpp()
      : target(load_target(testing::write_tiny_target(folder / "target"))), ends{target->embedding(), target->head()} {}

  std::unique_ptr<Drafter> reduced() const {
    std::vector<int64_t> ids;
    for (int64_t id = 1; id < testing::kTinyVocabulary; id += 3) ids.push_back(id);
    DrafterConfig config = testing::tiny_drafter_config();
    config.vocabulary = static_cast<int64_t>(ids.size());
    return testing::tiny_drafter(*target, config, make_draft_vocabulary(ids, testing::kTinyVocabulary));
  }
  GgufFile write(const Drafter& drafter, FloatType type = FloatType::kFloat32) const {
    write_llama_cpp_drafter(drafter, {target->weight_hash(), "corpus", ""}, target->config(), target->folder(), type,
                            folder / "draft.gguf");
    return GgufFile::open(folder / "draft.gguf");
  }

  testing::TemporaryFolder folder;
  std::unique_ptr<Target> target;
  TargetEnds ends;
};

// Key by key as shared/spec/clients.md has it.
TEST_F(LlamaCpp, DraftFileHasTheKeysOfTheArchitecture) {
  const GgufFile file = write(*testing::tiny_drafter(*target, testing::tiny_drafter_config()));
  EXPECT_EQ(file.text("general.architecture"), "dflash");
  const std::pair<const char*, int64_t> sizes[] = {
      {"block_count", 2},           {"context_length", 512},        {"embedding_length", 64},
      {"feed_forward_length", 96},  {"attention.head_count", 4},    {"attention.head_count_kv", 2},
      {"attention.key_length", 16}, {"attention.value_length", 16}, {"block_size", 5}};
  for (const auto& [key, value] : sizes) EXPECT_EQ(file.integer(std::string("dflash.") + key), value) << key;
  EXPECT_FLOAT_EQ(static_cast<float>(file.number("dflash.rope.freq_base")), 10000.F);
  EXPECT_FLOAT_EQ(static_cast<float>(file.number("dflash.attention.layer_norm_rms_epsilon")), 1e-5F);
  EXPECT_EQ(file.integers("dflash.target_layers"), (std::vector<int64_t>{1, 3}));  // taps 0 and 2
  EXPECT_EQ(file.integer("tokenizer.ggml.mask_token_id"), testing::kTinyMask);
  EXPECT_EQ(file.texts("tokenizer.ggml.tokens").size(), static_cast<size_t>(testing::kTinyVocabulary));
}

TEST_F(LlamaCpp, DraftFileReadBackIsTheDrafter) {
  for (FloatType type : {FloatType::kFloat32, FloatType::kFloat16, FloatType::kBFloat16}) {
    for (const bool small : {false, true}) {
      const auto drafter = small ? reduced() : testing::tiny_drafter(*target, testing::tiny_drafter_config());
      write(*drafter, type);
      DrafterIdentity identity;
      const auto read = read_llama_cpp_drafter(folder / "draft.gguf", target->config(), ends, &identity);
      EXPECT_EQ(identity.target_hash, target->weight_hash());
      EXPECT_NO_THROW(prove_export(*drafter, *read, {type, true}, target->config(), ends)) << name_of(type);
    }
  }
}

TEST_F(LlamaCpp, ReducedVocabularyIsAbsoluteIdsWithTheirHeadRows) {
  const auto drafter = reduced();
  const GgufFile file = write(*drafter);
  const at::Tensor ids = file.tensor("d2t");
  EXPECT_EQ(ids.scalar_type(), at::kLong);
  EXPECT_EQ(ids[1].item<int64_t>(), 4);
  EXPECT_TRUE(file.tensor("output.weight").equal(target->head().index_select(0, ids)));
}

TEST_F(LlamaCpp, VocabularyHasTypesMergesAndPaddingRows) {
  const GgufVocabulary vocabulary = read_gguf_vocabulary(target->folder(), target->config());
  EXPECT_EQ(vocabulary.pre, "smollm");
  EXPECT_EQ(vocabulary.merges, (std::vector<std::string>{"h e", "he l"}));
  EXPECT_EQ(vocabulary.tokens[1], "<|im_start|>");
  EXPECT_EQ(vocabulary.types[1], 3);
  EXPECT_EQ(vocabulary.tokens[static_cast<size_t>(testing::kTinySpecials) + ' '], "\xC4\xA0");  // G with dot: the space
  EXPECT_EQ(vocabulary.types[static_cast<size_t>(testing::kTinySpecials) + ' '], 1);
  EXPECT_EQ(vocabulary.tokens.back(), "[PAD287]");
  EXPECT_EQ(vocabulary.types.back(), 5);
  EXPECT_EQ(vocabulary.bos, 1);
  EXPECT_EQ(vocabulary.eos, 2);
  EXPECT_FALSE(vocabulary.add_bos);
}

TEST_F(LlamaCpp, UnknownSplitIsAnErrorNotAGuess) {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(read_file(target->folder() + "/tokenizer.json"));
  json["pre_tokenizer"]["pretokenizers"][0]["individual_digits"] = false;
  write_file(target->folder() + "/tokenizer.json", json.dump());
  EXPECT_THROW(read_gguf_vocabulary(target->folder(), target->config()), Error);
}

TEST_F(LlamaCpp, ServeCommandStatesTheDraftLength) {
  EXPECT_EQ(llama_cpp_serve_command("t.gguf", "d.gguf", 8),
            "llama-server -m t.gguf -md d.gguf --spec-type draft-dflash --spec-draft-n-max 7");
}

TEST_F(LlamaCpp, ServeCommandsQuotePathsThatAShellWouldSplit) {
  EXPECT_EQ(shell_word("plain/path-1.gguf"), "plain/path-1.gguf");
  EXPECT_EQ(shell_word("it's a $path"), "'it'\\''s a $path'");
  EXPECT_EQ(llama_cpp_serve_command("my target.gguf", "d.gguf", 8),
            "llama-server -m 'my target.gguf' -md d.gguf --spec-type draft-dflash --spec-draft-n-max 7");
  const auto drafter = testing::tiny_drafter(*target, testing::tiny_drafter_config());
  const ExportInput input{*drafter, {}, target->config(), "my target", "my drafter", FloatType::kFloat32, ""};
  const std::vector<std::string> lines = format("zlab").serve(input);
  EXPECT_EQ(lines[0],
            "vllm serve 'my target' --speculative-config '{\"method\": \"dflash\", \"model\": \"my drafter\", "
            "\"num_speculative_tokens\": 4}'");
  EXPECT_CONTAINS(lines[1], "--model-path 'my target'");
  EXPECT_CONTAINS(lines[1], "--speculative-draft-model-path 'my drafter'");
}

TEST_F(LlamaCpp, FaultsOfADraftFileNameItAndSayWhatToDo) {
  write(*testing::tiny_drafter(*target, testing::tiny_drafter_config()));
  fs::resize_file(folder / "draft.gguf", fs::file_size(folder / "draft.gguf") / 2);
  const std::string said =
      testing::message_of([&] { read_llama_cpp_drafter(folder / "draft.gguf", target->config(), ends); });
  EXPECT_CONTAINS(said, "draft.gguf");
  EXPECT_CONTAINS(said, "draftsmith export");
}

TEST_F(LlamaCpp, ScaledRopeIsRefused) {
  DrafterConfig config = resolve_drafter(testing::tiny_drafter_config(), target->config());
  config.rope.type = "yarn";
  EXPECT_THROW(check_llama_cpp(config, target->config()), Error);
}

struct TargetCase {
  testing::TinyShape shape;
  const char* name;
};

class LlamaCppTarget : public ::testing::TestWithParam<TargetCase> {};

// The importer is the independent reader: what it makes of the GGUF must be the folder the GGUF was made from.
TEST_P(LlamaCppTarget, FileImportedAgainIsTheTarget) {
  testing::TemporaryFolder folder;
  const std::string source = testing::write_tiny_target(folder / "target", GetParam().shape);
  const HfConfig config = read_hf_config(source);
  for (const char* type : {"f32", "f16", "q8_0"}) {
    const std::string path = folder / (std::string(type) + ".gguf");
    write_llama_cpp_target(source, config, target_gguf_type(type), path);
    const int64_t tensors = prove_llama_cpp_target(source, path);
    EXPECT_EQ(tensors, static_cast<int64_t>(WeightFolder::open(source).names().size())) << type;
  }
  const GgufFile file = GgufFile::open(folder / "f32.gguf");
  EXPECT_EQ(file.text("tokenizer.chat_template"), read_file(source + "/chat_template.jinja"));
  // Row 1 of llama.cpp's q is row head_dim / 2 of ours for architecture llama; Qwen3's rows stay.
  const at::Tensor ours = WeightFolder::open(source).tensor("model.layers.1.self_attn.q_proj.weight");
  const int64_t second = GetParam().shape.qwen3 ? 1 : GetParam().shape.head_dim / 2;
  EXPECT_TRUE(file.tensor("blk.1.attn_q.weight")[1].equal(ours[second]));
}

INSTANTIATE_TEST_SUITE_P(Architectures, LlamaCppTarget,
                         ::testing::Values(TargetCase{{}, "LlamaTied"}, TargetCase{{.tied = false}, "LlamaUntied"},
                                           TargetCase{{.qwen3 = true, .head_dim = 32}, "Qwen3"}),
                         [](const auto& info) { return info.param.name; });

TEST(LlamaCppTargetTypes, CoarserOnesAreNotOffered) {
  EXPECT_THROW(target_gguf_type("q4_0"), Error);
}

TEST(Formats, AreFoundByNameAndListedInTheError) {
  EXPECT_STREQ(format("zlab").name, "zlab");
  EXPECT_STREQ(format("llama.cpp").name, "llama.cpp");
  try {
    format("ollama");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("zlab, llama.cpp"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace draftsmith
