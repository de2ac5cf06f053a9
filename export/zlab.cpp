#include "export/zlab.h"

#include <filesystem>

#include "export/in_file.h"
#include "launch/check.h"
#include "launch/file.h"

namespace draftsmith {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

namespace {

json read_json(const std::string& path) {
  const json parsed = json::parse(read_file(path), nullptr, false);
  DS_CHECK(!parsed.is_discarded() && parsed.is_object(), "{}: is not a JSON object", path);
  return parsed;
}

bool stated(const json& config, const char* key) {
  return config.contains(key) && !config[key].is_null();
}

// Servers look inside dflash_config first, then at the top level (dflash.md 1.9).
const json* find(const json& config, const char* key) {
  if (stated(config, "dflash_config") && stated(config["dflash_config"], key)) return &config["dflash_config"][key];
  return stated(config, key) ? &config[key] : nullptr;
}

int64_t whole(const json& config, const char* key, const std::string& where) {
  const json* value = find(config, key);
  DS_CHECK(value != nullptr, "{}: {} is missing", where, key);
  DS_CHECK(value->is_number_integer(), "{}: {} is {}, not a whole number", where, key, value->dump());
  return value->get<int64_t>();
}

// What this program computes: full bidirectional attention in blocks, no biases, the plain projector.
void check_supported(const json& config, const std::string& where) {
  const json* projector = find(config, "projector_type");
  DS_CHECK(projector == nullptr || *projector == "dflash", "{}: projector_type {} is another drafter than DFlash",
           where, projector->dump());
  DS_CHECK(!stated(config, "attention_bias") || config["attention_bias"] == false,
           "{}: attention_bias is set; drafters with attention biases are not read", where);
  const json* causal = find(config, "causal");
  if (causal == nullptr) causal = find(config, "is_causal");
  DS_CHECK(causal == nullptr || *causal == false, "{}: blocks are causal; DFlash blocks see both ways here", where);
  const json* sliding = find(config, "use_swa");
  DS_CHECK(sliding == nullptr || *sliding == false, "{}: use_swa is set; sliding windows are not read", where);
  if (!stated(config, "layer_types")) return;
  for (const json& layer : config["layer_types"]) {
    DS_CHECK(layer == "full_attention", "{}: layer type {} is not full_attention", where, layer.dump());
  }
}

DrafterConfig zlab_drafter_config(const json& config, const HfConfig& target, const std::string& where) {
  check_supported(config, where);
  DrafterConfig out;
  out.layers = whole(config, "num_hidden_layers", where);
  out.block = whole(config, "block_size", where);
  out.mask_token = whole(config, "mask_token_id", where);
  const json* taps = find(config, "target_layer_ids");
  DS_CHECK(taps != nullptr && taps->is_array(), "{}: dflash_config.target_layer_ids is missing", where);
  for (const json& tap : *taps)
    DS_CHECK(tap.is_number_integer(), "{}: target_layer_ids holds {}, not a whole number", where, tap.dump());
  out.taps = taps->get<std::vector<int64_t>>();
  out.hidden_size = whole(config, "hidden_size", where);
  out.intermediate_size = whole(config, "intermediate_size", where);
  out.num_attention_heads = whole(config, "num_attention_heads", where);
  out.num_key_value_heads = whole(config, "num_key_value_heads", where);
  out.head_dim = whole(config, "head_dim", where);
  out.max_position_embeddings = whole(config, "max_position_embeddings", where);
  DS_CHECK(stated(config, "rms_norm_eps") && config["rms_norm_eps"].is_number(), "{}: rms_norm_eps is missing", where);
  out.rms_norm_eps = config["rms_norm_eps"].get<double>();
  out.rope = parse_rope(config, where);
  if (find(config, "num_target_layers") != nullptr) {
    const int64_t layers = whole(config, "num_target_layers", where);
    DS_CHECK(layers == target.num_hidden_layers, "{}: was made for a target of {} layers, this one has {}", where,
             layers, target.num_hidden_layers);
  }
  DS_CHECK(!stated(config, "vocab_size") || config["vocab_size"] == target.vocab_size,
           "{}: was made for a vocabulary of {}, the target has {}", where, config["vocab_size"].dump(),
           target.vocab_size);
  return out;
}

}  // namespace

const char* name_of(FloatType type) {
  switch (type) {
    case FloatType::kFloat32:
      return "float32";
    case FloatType::kBFloat16:
      return "bfloat16";
    case FloatType::kFloat16:
      return "float16";
  }
  DS_FAIL("unknown float type {}", static_cast<int>(type));
}

FloatType float_type(const std::string& name) {
  for (FloatType type : {FloatType::kFloat32, FloatType::kBFloat16, FloatType::kFloat16}) {
    if (name == name_of(type)) return type;
  }
  DS_FAIL("dtype {} is unknown; known are float32, bfloat16, float16", name);
}

at::ScalarType scalar_type(FloatType type) {
  return type == FloatType::kFloat32 ? at::kFloat : type == FloatType::kBFloat16 ? at::kBFloat16 : at::kHalf;
}

ordered_json zlab_config(const DrafterConfig& drafter, const HfConfig& target, FloatType type) {
  ordered_json out;
  out["architectures"] = {"DFlashDraftModel"};
  out["model_type"] = "qwen3";  // the layers are Qwen3's, whatever the target is
  out["dtype"] = name_of(type);
  out["block_size"] = drafter.block;
  out["num_target_layers"] = target.num_hidden_layers;
  out["num_hidden_layers"] = drafter.layers;
  out["hidden_size"] = drafter.hidden_size;
  out["intermediate_size"] = drafter.intermediate_size;
  out["num_attention_heads"] = drafter.num_attention_heads;
  out["num_key_value_heads"] = drafter.num_key_value_heads;
  out["head_dim"] = drafter.head_dim;
  out["hidden_act"] = "silu";
  out["rms_norm_eps"] = drafter.rms_norm_eps;
  write_rope(drafter.rope, out);
  out["max_position_embeddings"] = drafter.max_position_embeddings;
  out["attention_bias"] = false;
  out["attention_dropout"] = 0.0;
  out["initializer_range"] = drafter.initializer_range;
  out["layer_types"] = std::vector<std::string>(static_cast<size_t>(drafter.layers), "full_attention");
  out["use_sliding_window"] = false;
  out["sliding_window"] = nullptr;
  out["max_window_layers"] = drafter.layers;
  out["vocab_size"] = target.vocab_size;
  out["tie_word_embeddings"] = target.tie_word_embeddings;
  out["use_cache"] = true;
  if (target.bos_token_id >= 0) out["bos_token_id"] = target.bos_token_id;
  if (target.eos_token_ids.size() == 1) out["eos_token_id"] = target.eos_token_ids.front();
  if (target.eos_token_ids.size() > 1) out["eos_token_id"] = target.eos_token_ids;
  if (target.pad_token_id >= 0) out["pad_token_id"] = target.pad_token_id;
  out["transformers_version"] = "4.57.1";  // whose spelling of the keys this is; the new RoPE spelling stands beside it
  out["dflash_config"] = {{"mask_token_id", drafter.mask_token},
                          {"target_layer_ids", drafter.taps},
                          {"block_size", drafter.block},
                          {"num_target_layers", target.num_hidden_layers},
                          {"causal", false}};
  return out;
}

void check_zlab(const DrafterConfig& drafter, FloatType type) {
  DS_CHECK(drafter.kind == "dflash", "zlab holds DFlash drafters; this one is {}", drafter.kind);
  DS_CHECK(
      drafter.vocabulary == 0,
      "zlab has no place for a reduced draft vocabulary ({} tokens here): its readers use the target's whole head;\n"
      "       export it with --for llama.cpp, which takes the mapping, or train with drafter.vocabulary 0",
      drafter.vocabulary);
  DS_CHECK(type != FloatType::kFloat16, "zlab is written as bfloat16 or float32, not as float16");
}

void write_zlab(const Drafter& drafter, const DrafterIdentity& identity, const HfConfig& target, FloatType type,
                const std::string& folder) {
  check_zlab(drafter.config(), type);
  NamedTensors tensors;
  for (const auto& [name, tensor] : drafter.parameters()) {
    tensors.emplace_back(name, tensor.detach().to(at::kCPU, scalar_type(type)));
  }
  const ordered_json config = zlab_config(drafter.config(), target, type);
  write_safetensors((fs::path(folder) / "model.safetensors").string(), tensors,
                    {{"target_hash", identity.target_hash},
                     {"corpus_id", identity.corpus_id},
                     {"chat_template_hash", identity.chat_template_hash}});
  write_file(fs::path(folder) / "config.json", config.dump(2) + "\n");
}

bool is_zlab(const std::string& folder) {
  const fs::path path = fs::path(folder) / "config.json";
  if (!fs::exists(path)) return false;
  const json config = json::parse(read_file(path), nullptr, false);
  return config.is_object() && (config.contains("dflash_config") ||
                                (config.contains("architectures") && config["architectures"].is_array() &&
                                 !config["architectures"].empty() && config["architectures"][0] == "DFlashDraftModel"));
}

std::unique_ptr<Drafter> read_zlab(const std::string& folder, const HfConfig& target, const TargetEnds& ends,
                                   DrafterIdentity* identity) {
  const std::string where = (fs::path(folder) / "config.json").string();
  auto drafter =
      in_file(where, "give the target that it was made for, or export the run again with `draftsmith export`", [&] {
        const DrafterConfig config = resolve_drafter(zlab_drafter_config(read_json(where), target, where), target);
        return make_drafter(config, target, ends, {}, 0);
      });
  const std::string path = (fs::path(folder) / "model.safetensors").string();
  const SafetensorsFile file =
      in_file(path, "export the run again with `draftsmith export`, or fetch the folder again", [&] {
        const SafetensorsFile opened = SafetensorsFile::open(path);
        NamedTensors named;
        for (const auto& [name, entry] : opened.entries()) named.emplace_back(name, opened.tensor(name));
        assign_parameters(*drafter, named, path);
        return opened;
      });
  if (identity != nullptr) {
    auto noted = [&](const char* key) {
      const auto at = file.metadata().find(key);
      return at == file.metadata().end() ? std::string() : at->second;
    };
    *identity = {noted("target_hash"), noted("corpus_id"), noted("chat_template_hash")};
  }
  return drafter;
}

}  // namespace draftsmith
