#include "configs/hf_config.h"

#include <cmath>
#include <filesystem>
#include <optional>

#include "launch/check.h"
#include "launch/file.h"

namespace draftsmith {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json read_json(const fs::path& path) {
  const json parsed = json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  DS_CHECK(parsed.is_object(), "{}: is not a JSON object", path.string());
  return parsed;
}

bool stated(const json& object, const char* key) {
  return object.contains(key) && !object[key].is_null();
}

double number(const json& object, const char* key, const std::string& where) {
  DS_CHECK(object[key].is_number(), "{}: {} is {}, a number is needed", where, key, object[key].dump());
  return object[key].get<double>();
}

int64_t whole(const json& object, const char* key, const std::string& where) {
  DS_CHECK(object[key].is_number_integer(), "{}: {} is {}, a whole number is needed", where, key, object[key].dump());
  return object[key].get<int64_t>();
}

int64_t needed_whole(const json& config, const char* key, const std::string& where) {
  DS_CHECK(stated(config, key), "{}: {} is missing", where, key);
  const int64_t value = whole(config, key, where);
  DS_CHECK(value > 0, "{}: {} is {}, must be positive", where, key, value);
  return value;
}

std::string text_or(const json& config, const char* key, const std::string& otherwise, const std::string& where) {
  if (!stated(config, key)) return otherwise;
  DS_CHECK(config[key].is_string(), "{}: {} is {}, text is needed", where, key, config[key].dump());
  return config[key].get<std::string>();
}

bool flag_or(const json& config, const char* key, bool otherwise, const std::string& where) {
  if (!stated(config, key)) return otherwise;
  DS_CHECK(config[key].is_boolean(), "{}: {} is {}, true or false is needed", where, key, config[key].dump());
  return config[key].get<bool>();
}

// One place of a config that speaks of rotary embedding: what it states, and nothing it leaves out.
struct Spelling {
  std::string name;
  std::optional<double> theta;
  std::optional<RopeConfig> scaling;  // theta unused
};

RopeConfig parse_scaling(const json& object, const json& config, const std::string& where) {
  RopeConfig out;
  const std::string type = text_or(object, "rope_type", "", where), old = text_or(object, "type", "", where);
  DS_CHECK(type.empty() || old.empty() || type == old, "{}: rope_type {} contradicts type {}", where, type, old);
  out.type = !type.empty() ? type : !old.empty() ? old : "default";
  DS_CHECK(out.type == "default" || out.type == "linear" || out.type == "llama3" || out.type == "yarn",
           "{}: RoPE scaling \"{}\" is not one that draftsmith computes (default, linear, llama3, yarn)", where,
           out.type);
  if (out.type == "default") return out;

  DS_CHECK(stated(object, "factor"), "{}: RoPE scaling {} states no factor", where, out.type);
  out.factor = number(object, "factor", where);
  DS_CHECK(std::isfinite(out.factor) && out.factor >= 1, "{}: RoPE factor {} is below 1", where, out.factor);
  if (out.type == "linear") return out;

  // The length before scaling: in the scaling itself, or beside it at the top (Phi, gpt-oss); yarn falls back to the
  // model's own length as the published definition does.
  const char* original = "original_max_position_embeddings";
  if (stated(object, original)) {
    out.original_max_position_embeddings = whole(object, original, where);
  } else if (stated(config, original)) {
    out.original_max_position_embeddings = whole(config, original, where);
  } else if (out.type == "yarn" && stated(config, "max_position_embeddings")) {
    out.original_max_position_embeddings = whole(config, "max_position_embeddings", where);
  }
  DS_CHECK(out.original_max_position_embeddings > 0, "{}: RoPE scaling {} states no {}", where, out.type, original);
  if (out.type == "llama3") {
    DS_CHECK(stated(object, "low_freq_factor") && stated(object, "high_freq_factor"),
             "{}: RoPE scaling llama3 states no low_freq_factor or high_freq_factor", where);
    out.low_freq_factor = number(object, "low_freq_factor", where);
    out.high_freq_factor = number(object, "high_freq_factor", where);
    DS_CHECK(out.low_freq_factor > 0 && out.high_freq_factor > out.low_freq_factor,
             "{}: RoPE low_freq_factor {} and high_freq_factor {} do not ascend", where, out.low_freq_factor,
             out.high_freq_factor);
  } else {
    for (const char* key : {"mscale", "mscale_all_dim"}) {
      DS_CHECK(!stated(object, key), "{}: RoPE scaling yarn with {} is not computed by draftsmith", where, key);
    }
    DS_CHECK(flag_or(object, "truncate", true, where),
             "{}: RoPE scaling yarn with truncate false is not computed by draftsmith", where);
    if (stated(object, "beta_fast")) out.beta_fast = number(object, "beta_fast", where);
    if (stated(object, "beta_slow")) out.beta_slow = number(object, "beta_slow", where);
    if (stated(object, "attention_factor")) out.attention_factor = number(object, "attention_factor", where);
  }
  return out;
}

bool same_scaling(const RopeConfig& a, const RopeConfig& b) {
  return a.type == b.type && a.factor == b.factor && a.low_freq_factor == b.low_freq_factor &&
         a.high_freq_factor == b.high_freq_factor && a.beta_fast == b.beta_fast && a.beta_slow == b.beta_slow &&
         a.original_max_position_embeddings == b.original_max_position_embeddings &&
         a.attention_factor == b.attention_factor;
}

void check_whole_rotary(const json& object, const std::string& where) {
  for (const char* key : {"partial_rotary_factor", "rotary_pct"}) {
    DS_CHECK(!stated(object, key) || number(object, key, where) == 1.0,
             "{}: {} is {}: rotation of a part of the head is not computed by draftsmith", where, key,
             object[key].dump());
  }
}

Spelling parse_object(const char* key, const json& object, const json& config, const std::string& where) {
  DS_CHECK(object.is_object(), "{}: {} is {}, an object is needed", where, key, object.dump());
  const std::string inside = where + ": " + key;
  check_whole_rotary(object, inside);
  Spelling out{key, std::nullopt, parse_scaling(object, config, inside)};
  if (stated(object, "rope_theta")) out.theta = number(object, "rope_theta", inside);
  return out;
}

// Everything a config says about RoPE, one entry per place.
std::vector<Spelling> spellings(const json& config, const std::string& where) {
  std::vector<Spelling> out;
  for (const char* key : {"rope_theta", "rotary_emb_base", "rope_base"}) {
    if (stated(config, key)) out.push_back({key, number(config, key, where), std::nullopt});
  }
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!stated(config, key)) continue;
    const json& object = config[key];
    bool by_layer_type = object.is_object() && !object.empty();
    if (by_layer_type) {
      for (const auto& [type, inner] : object.items()) by_layer_type &= inner.is_object();
    }
    if (!by_layer_type) {
      out.push_back(parse_object(key, object, config, where));
      continue;
    }
    // One set per layer type: fine when all say the same, which the comparison below finds out.
    for (const auto& [type, inner] : object.items()) {
      out.push_back(parse_object(fmt::format("{}.{}", key, type).c_str(), inner, config, where));
    }
  }
  return out;
}

void parse_token_ids(const json& config, const json& generation, const std::string& where, HfConfig& out) {
  const auto single = [&](const char* key) -> int64_t {
    const json& source = stated(generation, key) ? generation : config;
    if (!stated(source, key)) return -1;
    const int64_t id = whole(source, key, where);
    // Some publishers write pad -1 for "none" (Llama 3.2); above the vocabulary no id can be meant.
    DS_CHECK(id < out.vocab_size, "{}: {} {} is outside the vocabulary of {}", where, key, id, out.vocab_size);
    return id < 0 ? -1 : id;
  };
  out.bos_token_id = single("bos_token_id");
  out.pad_token_id = single("pad_token_id");
  const json& source = stated(generation, "eos_token_id") ? generation : config;
  if (!stated(source, "eos_token_id")) return;
  const json& eos = source["eos_token_id"];
  for (const json& id : eos.is_array() ? eos : json::array({eos})) {
    DS_CHECK(id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < out.vocab_size,
             "{}: eos_token_id {} is not an id (or a list of ids) in the vocabulary of {}", where, eos.dump(),
             out.vocab_size);
    out.eos_token_ids.push_back(id.get<int64_t>());
  }
}

void check_full_attention(const json& config, const std::string& where) {
  if (stated(config, "layer_types")) {
    DS_CHECK(config["layer_types"].is_array(), "{}: layer_types is not a list", where);
    for (const json& type : config["layer_types"]) {
      DS_CHECK(type == "full_attention", "{}: layer_types holds {}: only full attention is computed for targets", where,
               type.dump());
    }
  }
  // Qwen configs carry a window that use_sliding_window switches off.
  const bool window = stated(config, "sliding_window");
  DS_CHECK(!window || (config.contains("use_sliding_window") && !flag_or(config, "use_sliding_window", true, where)),
           "{}: sliding_window {} is in use: only full attention is computed for targets", where,
           config["sliding_window"].dump());
  DS_CHECK(!flag_or(config, "use_sliding_window", false, where) || stated(config, "layer_types"),
           "{}: use_sliding_window is true: only full attention is computed for targets", where);
}

}  // namespace

RopeConfig parse_rope(const json& config, const std::string& where) {
  check_whole_rotary(config, where);
  const Spelling *base = nullptr, *scaling = nullptr;
  const std::vector<Spelling> all = spellings(config, where);
  for (const Spelling& spelling : all) {
    if (spelling.theta) {
      DS_CHECK(!base || *base->theta == *spelling.theta,
               "{}: two RoPE bases: {} says {}, {} says {}; remove the wrong one", where, base ? base->name : "",
               base ? *base->theta : 0, spelling.name, *spelling.theta);
      base = base ? base : &spelling;
    }
    if (spelling.scaling) {
      DS_CHECK(!scaling || same_scaling(*scaling->scaling, *spelling.scaling),
               "{}: two RoPE scalings: {} ({}, factor {}) and {} ({}, factor {}) differ; remove the wrong one", where,
               scaling ? scaling->name : "", scaling ? scaling->scaling->type : "",
               scaling ? scaling->scaling->factor : 0, spelling.name, spelling.scaling->type, spelling.scaling->factor);
      scaling = scaling ? scaling : &spelling;
    }
  }
  DS_CHECK(base, "{}: states no RoPE base (rope_theta, or rope_parameters.rope_theta); a default would be a guess",
           where);
  RopeConfig out = scaling ? *scaling->scaling : RopeConfig{};
  out.theta = *base->theta;
  DS_CHECK(std::isfinite(out.theta) && out.theta > 1, "{}: RoPE base {} ({}) is not above 1", where, out.theta,
           base->name);
  return out;
}

void write_rope(const RopeConfig& rope, nlohmann::ordered_json& config) {
  nlohmann::ordered_json scaling;
  scaling["rope_type"] = rope.type;
  if (rope.type != "default") scaling["factor"] = rope.factor;
  if (rope.type == "llama3") {
    scaling["low_freq_factor"] = rope.low_freq_factor;
    scaling["high_freq_factor"] = rope.high_freq_factor;
  }
  if (rope.type == "yarn") {
    scaling["beta_fast"] = rope.beta_fast;
    scaling["beta_slow"] = rope.beta_slow;
    if (rope.attention_factor != 0) scaling["attention_factor"] = rope.attention_factor;
  }
  if (rope.original_max_position_embeddings > 0) {
    scaling["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  }
  config["rope_theta"] = rope.theta;
  config["rope_scaling"] = rope.type == "default" ? nlohmann::ordered_json() : scaling;
  scaling["rope_theta"] = rope.theta;
  config["rope_parameters"] = scaling;
}

HfConfig read_hf_config(const std::string& folder) {
  const fs::path path = fs::path(folder) / "config.json";
  DS_CHECK(fs::exists(path),
           "{}: holds no config.json; a target is a Hugging Face folder (draftsmith import makes one)", folder);
  HfConfig out;
  out.raw = read_json(path);
  const json& config = out.raw;
  const std::string where = path.string();

  DS_CHECK(stated(config, "architectures") && config["architectures"].is_array() &&
               config["architectures"].size() == 1 && config["architectures"][0].is_string(),
           "{}: architectures must be a list of one name", where);
  out.architecture = config["architectures"][0].get<std::string>();
  out.model_type = text_or(config, "model_type", "", where);
  DS_CHECK(text_or(config, "hidden_act", "silu", where) == "silu", "{}: hidden_act {} is not silu", where,
           config["hidden_act"].dump());

  out.vocab_size = needed_whole(config, "vocab_size", where);
  out.hidden_size = needed_whole(config, "hidden_size", where);
  out.intermediate_size = needed_whole(config, "intermediate_size", where);
  out.num_hidden_layers = needed_whole(config, "num_hidden_layers", where);
  out.num_attention_heads = needed_whole(config, "num_attention_heads", where);
  out.num_key_value_heads = stated(config, "num_key_value_heads") ? needed_whole(config, "num_key_value_heads", where)
                                                                  : out.num_attention_heads;
  DS_CHECK(out.num_attention_heads % out.num_key_value_heads == 0,
           "{}: {} attention heads are no multiple of {} key/value heads", where, out.num_attention_heads,
           out.num_key_value_heads);
  if (stated(config, "head_dim")) {
    out.head_dim = needed_whole(config, "head_dim", where);
  } else {
    DS_CHECK(out.hidden_size % out.num_attention_heads == 0,
             "{}: no head_dim is stated and hidden_size {} is no multiple of {} heads", where, out.hidden_size,
             out.num_attention_heads);
    out.head_dim = out.hidden_size / out.num_attention_heads;
  }
  DS_CHECK(out.head_dim % 2 == 0, "{}: head_dim {} is odd: rotary embedding needs pairs", where, out.head_dim);
  out.max_position_embeddings = needed_whole(config, "max_position_embeddings", where);
  DS_CHECK(stated(config, "rms_norm_eps"), "{}: rms_norm_eps is missing", where);
  out.rms_norm_eps = number(config, "rms_norm_eps", where);
  DS_CHECK(std::isfinite(out.rms_norm_eps) && out.rms_norm_eps >= 0, "{}: rms_norm_eps {} is negative", where,
           out.rms_norm_eps);
  out.tie_word_embeddings = flag_or(config, "tie_word_embeddings", false, where);
  out.attention_bias = flag_or(config, "attention_bias", false, where);
  out.mlp_bias = flag_or(config, "mlp_bias", false, where);
  check_full_attention(config, where);
  out.rope = parse_rope(config, where);

  const std::string now = text_or(config, "dtype", "", where), old = text_or(config, "torch_dtype", "", where);
  DS_CHECK(now.empty() || old.empty() || now == old, "{}: dtype {} contradicts torch_dtype {}", where, now, old);
  out.dtype = !now.empty() ? now : !old.empty() ? old : out.dtype;

  const fs::path generation = fs::path(folder) / "generation_config.json";
  parse_token_ids(config, fs::exists(generation) ? read_json(generation) : json::object(),
                  fs::exists(generation) ? where + " (or generation_config.json beside it)" : where, out);
  return out;
}

}  // namespace draftsmith
