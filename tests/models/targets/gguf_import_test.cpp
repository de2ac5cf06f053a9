#include "models/targets/gguf_import.h"

#include <ATen/ATen.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "data/gguf.h"
#include "data/safetensors.h"
#include "data/text.h"
#include "launch/file.h"
#include "tests/data/text_fixture.h"

namespace draftsmith {
namespace {

namespace fs = std::filesystem;
using testing::message_of;
using testing::TemporaryFolder;

constexpr int64_t kHidden = 16, kInner = 24, kHeads = 4, kKvHeads = 2, kLayers = 2;

struct TinyGguf {
  std::string architecture = "llama", pre = "smollm", base = "gpt2";
  int64_t head = 4;
  bool tied = true, permuted = true;
  float theta = 5e5f;
  bool add_bos = false;
  std::string without, extra;               // a tensor to leave out, one to add
  at::Tensor divisors;                      // rope_freqs.weight
  std::map<std::string, at::Tensor> truth;  // by Hugging Face name, filled by write()
  std::vector<std::string> tokens;
  std::vector<std::string> merges{"1 2", "h i", "Ġ hi"};

  void write(const std::string& path);
};

// The bytes of byte-level BPE as the letters that stand for them (GPT-2's table), restated.
std::vector<std::string> byte_letters() {
  std::vector<std::string> out(256);
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const int code = printable ? byte : next++;
    if (code < 128)
      out[byte] = std::string(1, static_cast<char>(code));
    else
      out[byte] = {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 63))};
  }
  return out;
}

void TinyGguf::write(const std::string& path) {
  at::manual_seed(5);
  tokens = {"<|end|>", "<|start|>", "<think>"};
  for (const std::string& letter : byte_letters()) tokens.push_back(letter);
  for (const char* merged : {"12", "hi", "Ġhi"}) tokens.push_back(merged);
  tokens.push_back("[PAD0]");
  const int64_t vocabulary = static_cast<int64_t>(tokens.size());

  GgufWriter writer;
  const std::string p = architecture + ".";
  writer.text("general.architecture", architecture);
  writer.u32(p + "block_count", kLayers);
  writer.u32(p + "context_length", 128);
  writer.u32(p + "embedding_length", kHidden);
  writer.u32(p + "feed_forward_length", kInner);
  writer.u32(p + "attention.head_count", kHeads);
  writer.u32(p + "attention.head_count_kv", kKvHeads);
  writer.u32(p + "attention.key_length", static_cast<uint32_t>(head));
  writer.u32(p + "attention.value_length", static_cast<uint32_t>(head));
  writer.f32(p + "attention.layer_norm_rms_epsilon", 1e-6f);
  if (theta > 0) writer.f32(p + "rope.freq_base", theta);
  writer.text("tokenizer.ggml.model", base);
  writer.text("tokenizer.ggml.pre", pre);
  writer.texts("tokenizer.ggml.tokens", tokens);
  std::vector<int32_t> types(tokens.size(), 1);
  types[0] = types[1] = 3;
  types[2] = 4;
  types.back() = 5;
  writer.i32s("tokenizer.ggml.token_type", types);
  writer.texts("tokenizer.ggml.merges", merges);
  writer.u32("tokenizer.ggml.bos_token_id", 1);
  writer.u32("tokenizer.ggml.eos_token_id", 0);
  writer.boolean("tokenizer.ggml.add_bos_token", add_bos);
  writer.text("tokenizer.chat_template", "{{ messages[0].content }}");

  const auto add = [&](const std::string& hf, const std::string& name, at::IntArrayRef shape, int64_t heads = 0) {
    const at::Tensor value = at::randn(shape);
    truth[hf + ".weight"] = value;
    at::Tensor stored = value.clone();
    // llama.cpp's order, row by row: HF row h*hd + half*(hd/2) + i stands at h*hd + 2*i + half
    for (int64_t h = 0; permuted && architecture == "llama" && h < heads; ++h) {
      for (int64_t half = 0; half < 2; ++half) {
        for (int64_t i = 0; i < head / 2; ++i)
          stored[h * head + 2 * i + half] = value[h * head + half * (head / 2) + i];
      }
    }
    if (name + ".weight" != without) writer.tensor(name + ".weight", stored, GgufType::kF32);
  };
  add("model.embed_tokens", "token_embd", {vocabulary, kHidden});
  add("model.norm", "output_norm", {kHidden});
  if (!tied) add("lm_head", "output", {vocabulary, kHidden});
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string hf = "model.layers." + std::to_string(layer) + ".", gguf = "blk." + std::to_string(layer) + ".";
    add(hf + "self_attn.q_proj", gguf + "attn_q", {kHeads * head, kHidden}, kHeads);
    add(hf + "self_attn.k_proj", gguf + "attn_k", {kKvHeads * head, kHidden}, kKvHeads);
    add(hf + "self_attn.v_proj", gguf + "attn_v", {kKvHeads * head, kHidden});
    add(hf + "self_attn.o_proj", gguf + "attn_output", {kHidden, kHeads * head});
    if (architecture == "qwen3") {
      add(hf + "self_attn.q_norm", gguf + "attn_q_norm", {head});
      add(hf + "self_attn.k_norm", gguf + "attn_k_norm", {head});
    }
    add(hf + "input_layernorm", gguf + "attn_norm", {kHidden});
    add(hf + "post_attention_layernorm", gguf + "ffn_norm", {kHidden});
    add(hf + "mlp.gate_proj", gguf + "ffn_gate", {kInner, kHidden});
    add(hf + "mlp.up_proj", gguf + "ffn_up", {kInner, kHidden});
    add(hf + "mlp.down_proj", gguf + "ffn_down", {kHidden, kInner});
  }
  if (!extra.empty()) writer.tensor(extra, at::ones({3}), GgufType::kF32);
  if (divisors.defined()) writer.tensor("rope_freqs.weight", divisors, GgufType::kF32);
  writer.write(path);
}

void expect_same_weights(const std::string& folder, const TinyGguf& tiny, at::ScalarType dtype) {
  const WeightFolder weights = WeightFolder::open(folder);
  ASSERT_EQ(weights.names().size(), tiny.truth.size());
  for (const auto& [name, value] : tiny.truth) EXPECT_TRUE(weights.tensor(name).equal(value.to(dtype))) << name;
}

TEST(GgufImport, LlamaGetsItsOwnNamesRowsAndConfigBack) {
  const TemporaryFolder folder;
  TinyGguf tiny;
  tiny.write(folder.file("m.gguf"));
  const GgufImport done = import_gguf(folder.file("m.gguf"), folder.file("hf"), at::kFloat);
  EXPECT_FALSE(done.reused);
  expect_same_weights(folder.file("hf"), tiny, at::kFloat);
  const HfConfig config = read_hf_config(folder.file("hf"));
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.vocab_size, static_cast<int64_t>(tiny.tokens.size()));
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.rope.theta, 5e5);
  EXPECT_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.eos_token_ids, std::vector<int64_t>{0});
  EXPECT_TRUE(config.raw.contains("rope_theta") && config.raw.contains("rope_parameters"));
}

TEST(GgufImport, Qwen3KeepsItsRowsAndItsWideHeads) {
  const TemporaryFolder folder;
  TinyGguf tiny;
  tiny.architecture = "qwen3";
  tiny.pre = "qwen2";
  tiny.head = 10;
  tiny.tied = false;
  tiny.write(folder.file("m.gguf"));
  import_gguf(folder.file("m.gguf"), folder.file("hf"), at::kBFloat16);
  expect_same_weights(folder.file("hf"), tiny, at::kBFloat16);
  const HfConfig config = read_hf_config(folder.file("hf"));
  EXPECT_EQ(config.architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(config.head_dim, 10);
  EXPECT_EQ(config.dtype, "bfloat16");
  EXPECT_FALSE(config.tie_word_embeddings);
}

// Ids by hand: 3 + byte for single bytes; 259 "12", 260 "hi", 261 " hi".
TEST(GgufImport, EachPreTokenizerSplitsAsItsModelDoes) {
  const auto ids = [](const std::string& pre, bool add_bos, const std::string& text) {
    const TemporaryFolder folder;
    TinyGguf tiny;
    tiny.pre = pre;
    tiny.add_bos = add_bos;
    tiny.write(folder.file("m.gguf"));
    import_gguf(folder.file("m.gguf"), folder.file("hf"), at::kHalf);
    const Tokenizer tokenizer = Tokenizer::load(folder.file("hf"));
    EXPECT_EQ(tokenizer.special_ids(), (std::vector<int64_t>{0, 1}));
    EXPECT_FALSE(tokenizer.token_to_id("[PAD0]").has_value());
    return tokenizer.encode(text, /*add_special=*/true).ids;
  };
  const int64_t one = 3 + '1', two = 3 + '2', three = 3 + '3', bang = 3 + '!';
  // Digits one by one, and never joined; letters and a space before them are.
  EXPECT_EQ(ids("smollm", false, "hi hi123!"), (std::vector<int64_t>{260, 261, one, two, three, bang}));
  EXPECT_EQ(ids("qwen2", false, "hi hi123!"), (std::vector<int64_t>{260, 261, one, two, three, bang}));
  // Up to three digits are one word, so "12" is joined; bos where the model adds it.
  EXPECT_EQ(ids("llama-bpe", true, "hi hi123!"), (std::vector<int64_t>{1, 260, 261, 259, three, bang}));
  // Control and user-defined tokens are found inside text.
  EXPECT_EQ(ids("smollm", false, "<|start|><think>hi"), (std::vector<int64_t>{1, 2, 260}));
  // Qwen composes first: e + combining acute is one letter of two bytes.
  EXPECT_EQ(ids("qwen2", false, "e\u0301"), (std::vector<int64_t>{3 + 0xc3, 3 + 0xa9}));
  EXPECT_EQ(ids("llama-bpe", false, "e\u0301"), (std::vector<int64_t>{3 + 'e', 3 + 0xcc, 3 + 0x81}));
}

TEST(GgufImport, TheScalingOfLlama3IsRecovered) {
  const TemporaryFolder folder;
  TinyGguf tiny;
  tiny.head = 64;
  // Llama 3.2: factor 32, low 1, high 4, length 8192 (Transformers' formula, restated per pair)
  std::vector<float> divisors;
  for (int i = 0; i < 32; ++i) {
    const double wave = 2 * M_PI * std::pow(5e5, i / 32.0), ratio = 8192 / wave, smooth = (ratio - 1) / 3;
    divisors.push_back(static_cast<float>(ratio > 4 ? 1.0 : ratio < 1 ? 32.0 : 1.0 / ((1 - smooth) / 32 + smooth)));
  }
  tiny.divisors = at::tensor(divisors);
  tiny.write(folder.file("m.gguf"));
  import_gguf(folder.file("m.gguf"), folder.file("hf"), at::kFloat);
  const RopeConfig rope = read_hf_config(folder.file("hf")).rope;
  EXPECT_EQ(rope.type, "llama3");
  EXPECT_EQ(rope.factor, 32);
  EXPECT_EQ(rope.original_max_position_embeddings, 8192);
  tiny.divisors[20] = 3.0f;
  tiny.write(folder.file("n.gguf"));
  EXPECT_CONTAINS(message_of([&] { import_gguf(folder.file("n.gguf"), folder.file("hf2"), at::kFloat); }),
                  "this scaling has no translation");
}

TEST(GgufImport, WhatCannotBeTranslatedIsNamedAndNothingIsWritten) {
  const TemporaryFolder folder;
  const auto fault = [&](auto change) {
    TinyGguf tiny;
    change(tiny);
    tiny.write(folder.file("m.gguf"));
    const std::string message = message_of([&] { import_gguf(folder.file("m.gguf"), folder.file("hf"), at::kFloat); });
    EXPECT_FALSE(fs::exists(folder.file("hf")));
    EXPECT_CONTAINS(message, "m.gguf: ");
    return message;
  };
  EXPECT_CONTAINS(fault([](auto& t) { t.architecture = "mamba"; }),
                  "architecture mamba is not imported; llama and qwen3 are");
  EXPECT_CONTAINS(fault([](auto& t) { t.pre = "tekken"; }),
                  "pre-tokenizer \"tekken\" (tokenizer.ggml.pre) has no translation; smollm, llama-bpe, qwen2 have");
  EXPECT_CONTAINS(fault([](auto& t) { t.base = "llama"; }), "tokenizer model llama is not imported");
  EXPECT_CONTAINS(fault([](auto& t) { t.theta = 0; }), "key llama.rope.freq_base is missing");
  EXPECT_CONTAINS(fault([](auto& t) { t.without = "blk.1.ffn_up.weight"; }),
                  "tensor \"blk.1.ffn_up.weight\" is missing");
  EXPECT_CONTAINS(fault([](auto& t) { t.extra = "blk.0.attn_q.bias"; }),
                  "1 tensors have no place in LlamaForCausalLM, the first is \"blk.0.attn_q.bias\"");
  EXPECT_CONTAINS(fault([](auto& t) { t.extra = "blk.1.ffn_up.weight", t.without = "blk.1.ffn_up.weight"; }),
                  "has shape [3], the metadata asks for [24, 16]");
  EXPECT_CONTAINS(fault([](auto& t) { t.merges.push_back("h q"); }), "merges[3] = \"h q\" does not join two tokens");
}

TEST(GgufImport, ValuesThatAreNotFiniteAreNamed) {
  const TemporaryFolder folder;
  TinyGguf tiny;
  tiny.write(folder.file("m.gguf"));
  std::string bytes = read_file(folder.file("m.gguf"));
  const float value = tiny.truth["model.layers.1.mlp.up_proj.weight"][2][3].item<float>(), nan = NAN;
  const size_t at = bytes.find(std::string(reinterpret_cast<const char*>(&value), 4));
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 4, std::string(reinterpret_cast<const char*>(&nan), 4));
  write_file(folder.file("m.gguf"), bytes);
  EXPECT_CONTAINS(message_of([&] { import_gguf(folder.file("m.gguf"), folder.file("hf"), at::kFloat); }),
                  "tensor \"blk.1.ffn_up.weight\" holds values that are not finite in Float");
  EXPECT_FALSE(fs::exists(folder.file("hf/model.safetensors")));
}

TEST(GgufImport, AFinishedImportIsKeptAnotherRefusedAKilledOneDoneAgain) {
  const TemporaryFolder folder;
  TinyGguf tiny;
  tiny.write(folder.file("m.gguf"));
  const std::string hf = folder.file("hf");
  import_gguf(folder.file("m.gguf"), hf, at::kFloat);
  EXPECT_TRUE(import_gguf(folder.file("m.gguf"), hf, at::kFloat).reused);
  EXPECT_CONTAINS(message_of([&] { import_gguf(folder.file("m.gguf"), hf, at::kHalf); }),
                  "holds another import: dtype is \"float32\" there, \"float16\" here");
  const std::string weights = read_file(hf + "/model.safetensors");
  fs::resize_file(hf + "/model.safetensors", 100);
  EXPECT_CONTAINS(message_of([&] { import_gguf(folder.file("m.gguf"), hf, at::kFloat); }),
                  "model.safetensors is absent or has another size now");

  // Killed before its end: the record without its list of files, and a part of a process that is no more.
  auto record = nlohmann::ordered_json::parse(read_file(hf + "/import.json"));
  record.erase("files");
  write_file(hf + "/import.json", record.dump());
  write_file(hf + "/model.safetensors.part-99999999", "half");
  EXPECT_FALSE(import_gguf(folder.file("m.gguf"), hf, at::kFloat).reused);
  EXPECT_EQ(read_file(hf + "/model.safetensors"), weights);
  EXPECT_FALSE(fs::exists(hf + "/model.safetensors.part-99999999"));

  fs::create_directory(folder.file("other"));
  write_file(folder.file("other/notes.txt"), "mine");
  EXPECT_CONTAINS(message_of([&] { import_gguf(folder.file("m.gguf"), folder.file("other"), at::kFloat); }),
                  "is not empty and holds no import");
}

}  // namespace
}  // namespace draftsmith
