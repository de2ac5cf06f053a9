#include "models/targets/gguf_weights.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <map>

#include "data/gguf_blocks.h"
#include "launch/check.h"

namespace draftsmith {
namespace {

struct Source {
  std::string name;  // in the GGUF
  std::vector<int64_t> shape;
  int64_t rotated_heads = 0;  // > 0: rows of so many heads stand in llama.cpp's rotary order
};

// Hugging Face name -> where it comes from.
std::map<std::string, Source> expected(const HfConfig& config) {
  const int64_t hidden = config.hidden_size, ffn = config.intermediate_size, heads = config.num_attention_heads,
                kv_heads = config.num_key_value_heads, head = config.head_dim;
  const bool llama = config.model_type == "llama";
  std::map<std::string, Source> out;
  out["model.embed_tokens.weight"] = {"token_embd.weight", {config.vocab_size, hidden}};
  out["model.norm.weight"] = {"output_norm.weight", {hidden}};
  if (!config.tie_word_embeddings) out["lm_head.weight"] = {"output.weight", {config.vocab_size, hidden}};
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string hf = fmt::format("model.layers.{}.", layer), gguf = fmt::format("blk.{}.", layer);
    const auto add = [&](const char* name, const char* source, std::vector<int64_t> shape, int64_t rotated_heads = 0) {
      out[hf + name + ".weight"] = {gguf + source + ".weight", std::move(shape), rotated_heads};
    };
    add("input_layernorm", "attn_norm", {hidden});
    add("self_attn.q_proj", "attn_q", {heads * head, hidden}, llama ? heads : 0);
    add("self_attn.k_proj", "attn_k", {kv_heads * head, hidden}, llama ? kv_heads : 0);
    add("self_attn.v_proj", "attn_v", {kv_heads * head, hidden});
    add("self_attn.o_proj", "attn_output", {hidden, heads * head});
    if (!llama) {
      add("self_attn.q_norm", "attn_q_norm", {head});
      add("self_attn.k_norm", "attn_k_norm", {head});
    }
    add("post_attention_layernorm", "ffn_norm", {hidden});
    add("mlp.gate_proj", "ffn_gate", {ffn, hidden});
    add("mlp.up_proj", "ffn_up", {ffn, hidden});
    add("mlp.down_proj", "ffn_down", {hidden, ffn});
  }
  return out;
}

at::Tensor converted(const GgufFile& file, const Source& source, at::ScalarType dtype) {
  at::Tensor value = file.tensor(source.name);
  if (source.rotated_heads > 0) {
    const int64_t columns = value.size(1);
    // GGUF row 2*i + half of a head -> row half * (head/2) + i
    value = value.view({source.rotated_heads, -1, 2, columns}).transpose(1, 2).reshape({-1, columns});
  }
  value = value.to(dtype);
  DS_CHECK(at::isfinite(value).all().item<bool>(), "{}: tensor \"{}\" holds values that are not finite in {}",
           file.path(), source.name, c10::toString(dtype));
  return value;
}

}  // namespace

std::vector<PlannedTensor> gguf_weights(const GgufFile& file, const HfConfig& config, at::ScalarType dtype) {
  std::map<std::string, const GgufTensor*> stored;
  for (const GgufTensor& tensor : file.tensors()) stored[tensor.name] = &tensor;
  stored.erase("rope_freqs.weight");  // read by gguf_config

  std::vector<PlannedTensor> out;
  for (const auto& [name, source] : expected(config)) {
    const auto found = stored.find(source.name);
    DS_CHECK(found != stored.end(), "{}: tensor \"{}\" is missing: {} needs it for {}", file.path(), source.name,
             config.architecture, name);
    const GgufTensor& tensor = *found->second;
    DS_CHECK(tensor.shape == source.shape, "{}: tensor \"{}\" has shape [{}], the metadata asks for [{}]", file.path(),
             source.name, fmt::join(tensor.shape, ", "), fmt::join(source.shape, ", "));
    const BlockFormat* format = block_format(tensor.type);
    DS_CHECK(format && format->expand, "{}: tensor \"{}\" is stored as {}, which is not read; {} are", file.path(),
             source.name, block_format_name(tensor.type), expandable_formats());
    out.push_back(
        {name, dtype, source.shape, [file, source = source, dtype] { return converted(file, source, dtype); }});
    stored.erase(found);
  }
  DS_CHECK(stored.empty(), "{}: {} tensors have no place in {}, the first is \"{}\"", file.path(), stored.size(),
           config.architecture, stored.begin()->first);
  return out;
}

}  // namespace draftsmith
