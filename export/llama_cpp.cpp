#include "export/llama_cpp.h"

#include <map>

#include "data/gguf.h"
#include "export/gguf_sizes.h"
#include "export/gguf_vocabulary.h"
#include "export/in_file.h"
#include "export/shell.h"
#include "launch/check.h"

namespace draftsmith {

namespace {

// Our names of a layer's tensors and llama.cpp's.
constexpr std::pair<const char*, const char*> kLayerNames[] = {
    {"input_layernorm.weight", "attn_norm.weight"},    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.k_proj.weight", "attn_k.weight"},      {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"}, {"self_attn.q_norm.weight", "attn_q_norm.weight"},
    {"self_attn.k_norm.weight", "attn_k_norm.weight"}, {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},       {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
};

// Ours -> llama.cpp's, for a drafter of so many layers.
std::map<std::string, std::string> tensor_names(int64_t layers) {
  std::map<std::string, std::string> names = {{"fc.weight", "fc.weight"},
                                              {"hidden_norm.weight", "enc.output_norm.weight"},
                                              {"norm.weight", "output_norm.weight"}};
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (const auto& [ours, theirs] : kLayerNames) {
      names[fmt::format("layers.{}.{}", layer, ours)] = fmt::format("blk.{}.{}", layer, theirs);
    }
  }
  return names;
}

GgufType matrix_type(FloatType type) {
  return type == FloatType::kFloat32 ? GgufType::kF32 : type == FloatType::kBFloat16 ? GgufType::kBF16 : GgufType::kF16;
}

void write_sizes(GgufWriter& writer, const DrafterConfig& config) {
  write_gguf_sizes(writer, "dflash", config.layers, config);
  writer.u32("dflash.block_size", static_cast<uint32_t>(config.block));
  std::vector<int32_t> layers;
  for (int64_t tap : config.taps)
    layers.push_back(static_cast<int32_t>(tap + 1));  // after layer l = before layer l + 1
  writer.i32s("dflash.target_layers", layers);
}

DrafterConfig read_sizes(const GgufFile& file) {
  auto whole = [&](const char* key) { return file.integer(std::string("dflash.") + key); };
  DrafterConfig config;
  config.layers = whole("block_count");
  config.max_position_embeddings = whole("context_length");
  config.hidden_size = whole("embedding_length");
  config.intermediate_size = whole("feed_forward_length");
  config.num_attention_heads = whole("attention.head_count");
  config.num_key_value_heads = whole("attention.head_count_kv");
  config.head_dim = whole("attention.key_length");
  config.rope.theta = file.number("dflash.rope.freq_base");
  config.rms_norm_eps = file.number("dflash.attention.layer_norm_rms_epsilon");
  config.block = whole("block_size");
  config.mask_token = file.integer("tokenizer.ggml.mask_token_id");
  for (int64_t layer : file.integers("dflash.target_layers")) config.taps.push_back(layer - 1);
  return config;
}

std::unique_ptr<Drafter> read_drafter(const GgufFile& file, const HfConfig& target, const TargetEnds& ends,
                                      DrafterIdentity* identity) {
  const std::string& path = file.path();
  DS_CHECK(file.text("general.architecture") == "dflash", "{}: holds architecture {}, not a DFlash drafter", path,
           file.text("general.architecture"));
  DrafterConfig config = read_sizes(file);
  std::map<std::string, const GgufTensor*> stored;
  for (const GgufTensor& tensor : file.tensors()) stored[tensor.name] = &tensor;

  DraftVocabulary vocabulary;
  if (stored.contains("d2t")) {
    const at::Tensor ids = file.tensor("d2t").to(at::kLong).contiguous();
    const int64_t* first = ids.const_data_ptr<int64_t>();
    vocabulary = make_draft_vocabulary({first, first + ids.numel()}, target.vocab_size);
    DS_CHECK(vocabulary.to_target.equal(ids), "{}: d2t does not ascend", path);
    config.vocabulary = ids.numel();
    DS_CHECK(stored.contains("output.weight"), "{}: d2t stands there without output.weight", path);
    const at::Tensor own = file.tensor("output.weight"), head = ends.head.index_select(0, ids).to(at::kCPU, at::kFloat);
    // Written from the target's rows, perhaps in half precision: 2^-8 is bfloat16's rounding.
    DS_CHECK(own.sizes() == head.sizes() && at::allclose(own, head, 1.0 / 256, 1e-6),
             "{}: output.weight is not the target's head at the ids of d2t", path);
  }
  auto drafter = make_drafter(resolve_drafter(config, target), target, ends, vocabulary, 0);
  NamedTensors named;
  for (const auto& [ours, theirs] : tensor_names(config.layers)) {
    DS_CHECK(stored.contains(theirs), "{}: tensor {} is missing", path, theirs);
    named.emplace_back(ours, file.tensor(theirs));
    DS_CHECK(named.back().second.isfinite().all().item<bool>(), "{}: {} holds values that are not finite", path,
             theirs);
  }
  assign_parameters(*drafter, named, path);
  if (identity != nullptr) {
    auto noted = [&](const char* key) { return file.has(key) ? file.text(key) : std::string(); };
    *identity = {noted("draftsmith.target_hash"), noted("draftsmith.corpus_id"),
                 noted("draftsmith.chat_template_hash")};
  }
  return drafter;
}

}  // namespace

void check_llama_cpp(const DrafterConfig& drafter, const HfConfig& target) {
  DS_CHECK(drafter.kind == "dflash", "llama.cpp runs DFlash drafters from this program; this one is {}", drafter.kind);
  DS_CHECK(target.model_type == "llama" || target.model_type == "qwen3",
           "llama.cpp: targets of type llama and qwen3 are served with a drafter; this one is {}", target.model_type);
  DS_CHECK(drafter.rope.type == "default",
           "llama.cpp: the drafter's RoPE is scaled ({}), which its draft architecture has not been proven with; train "
           "with drafter.rope of type "
           "default",
           drafter.rope.type);
}

void write_llama_cpp_drafter(const Drafter& drafter, const DrafterIdentity& identity, const HfConfig& target,
                             const std::string& target_folder, FloatType type, const std::string& path) {
  const DrafterConfig& config = drafter.config();
  check_llama_cpp(config, target);
  GgufWriter writer;
  writer.text("general.architecture", "dflash");
  writer.text("general.type", "model");
  writer.text("general.name", "DFlash drafter");
  writer.text("draftsmith.target_hash", identity.target_hash);
  writer.text("draftsmith.corpus_id", identity.corpus_id);
  writer.text("draftsmith.chat_template_hash", identity.chat_template_hash);
  write_sizes(writer, config);
  write_vocabulary(writer, read_gguf_vocabulary(target_folder, target), config.mask_token, /*with_template=*/false);

  const std::map<std::string, std::string> names = tensor_names(config.layers);
  for (const auto& [name, tensor] : drafter.parameters()) {
    const auto theirs = names.find(name);
    DS_CHECK(theirs != names.end(), "llama.cpp has no place for the drafter's tensor {}", name);
    writer.tensor(theirs->second, tensor.detach().to(at::kCPU, at::kFloat),
                  tensor.dim() == 1 ? GgufType::kF32 : matrix_type(type));
  }
  if (drafter.vocabulary().to_target.defined()) {
    writer.tensor("output.weight", drafter.head().detach().to(at::kCPU, at::kFloat), matrix_type(type));
    writer.tensor("d2t", drafter.vocabulary().to_target.to(at::kCPU).contiguous(), GgufType::kI64);
  }
  writer.write(path);
}

std::unique_ptr<Drafter> read_llama_cpp_drafter(const std::string& path, const HfConfig& target, const TargetEnds& ends,
                                                DrafterIdentity* identity) {
  return in_file(path, "give the target it was made for, or export the run again with `draftsmith export`",
                 [&] { return read_drafter(GgufFile::open(path), target, ends, identity); });
}

std::string llama_cpp_serve_command(const std::string& target_path, const std::string& drafter_path, int64_t block) {
  return fmt::format("llama-server -m {} -md {} --spec-type draft-dflash --spec-draft-n-max {}",
                     shell_word(target_path), shell_word(drafter_path), block - 1);
}

}  // namespace draftsmith
