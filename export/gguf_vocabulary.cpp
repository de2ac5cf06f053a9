#include "export/gguf_vocabulary.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/text.h"
#include "launch/check.h"
#include "launch/file.h"

namespace draftsmith {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// tokenizer.ggml.token_type
enum TokenType : int32_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };

struct Split {
  const char* pre;
  const char* regex;
};

// The splits as the models' own tokenizer.json publish them.
constexpr Split kSplits[] = {
    {"llama-bpe",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

json read_json(const fs::path& path) {
  json parsed = json::parse(read_file(path), nullptr, false);
  DS_CHECK(parsed.is_object(), "{}: is not a JSON object", path.string());
  return parsed;
}

std::string type_of(const json& part) {
  return part.is_object() ? part.value("type", "") : "";
}

bool is_byte_level(const json& part, bool use_regex) {
  return type_of(part) == "ByteLevel" && part.value("use_regex", true) == use_regex &&
         !part.value("add_prefix_space", true);
}

// llama.cpp's name of a pre-tokenizer.
std::string pre_of(const json& pre, const std::string& where) {
  if (is_byte_level(pre, true)) return "gpt-2";
  const json parts = type_of(pre) == "Sequence" ? pre.value("pretokenizers", json::array()) : json::array();
  if (parts.size() == 2 && type_of(parts[0]) == "Digits" && parts[0].value("individual_digits", false) &&
      is_byte_level(parts[1], true)) {
    return "smollm";
  }
  if (parts.size() == 2 && type_of(parts[0]) == "Split" && is_byte_level(parts[1], false) &&
      parts[0].value("behavior", "") == "Isolated" && !parts[0].value("invert", true)) {
    const std::string regex = parts[0].value("pattern", json::object()).value("Regex", "");
    for (const Split& split : kSplits) {
      if (regex == split.regex) return split.pre;
    }
  }
  DS_FAIL("{}: this pre_tokenizer has no name in llama.cpp that draftsmith knows (smollm, gpt-2, llama-bpe, qwen2): {}",
          where, pre.dump());
}

std::vector<std::string> merges_of(const json& model, const std::string& where) {
  std::vector<std::string> merges;
  for (const json& merge : model.value("merges", json::array())) {
    if (merge.is_string()) {
      merges.push_back(merge.get<std::string>());
    } else {
      DS_CHECK(merge.is_array() && merge.size() == 2, "{}: merge {} is no pair", where, merges.size());
      merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    }
  }
  return merges;
}

int64_t named_token(const json& settings, const char* key, const Tokenizer& tokenizer) {
  if (!settings.contains(key) || settings[key].is_null()) return -1;
  const json& value = settings[key];
  const std::string text = value.is_object() ? value.value("content", "") : value.get<std::string>();
  return tokenizer.token_to_id(text).value_or(-1);
}

void name_special_tokens(GgufVocabulary& out, const std::string& folder, const HfConfig& config) {
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const fs::path path = fs::path(folder) / "tokenizer_config.json";
  const json settings = fs::exists(path) ? read_json(path) : json::object();
  auto pick = [&](const char* key, int64_t from_config) {
    const int64_t named = named_token(settings, key, tokenizer);
    return named >= 0 ? named : from_config;
  };
  out.bos = pick("bos_token", config.bos_token_id);
  out.eos = pick("eos_token", config.eos_token_ids.empty() ? -1 : config.eos_token_ids.front());
  out.unk = pick("unk_token", -1);
  out.pad = pick("pad_token", config.pad_token_id);
  const std::vector<int64_t> ids = tokenizer.encode("a", /*add_special=*/true).ids;
  out.add_bos = out.bos >= 0 && ids.size() > 1 && ids.front() == out.bos;
  if (fs::exists(fs::path(folder) / "chat_template.jinja") || settings.contains("chat_template")) {
    out.chat_template = ChatTemplate::load(folder).source();
  }
}

}  // namespace

GgufVocabulary read_gguf_vocabulary(const std::string& hf_folder, const HfConfig& config) {
  const fs::path path = fs::path(hf_folder) / "tokenizer.json";
  const std::string where = path.string();
  const json file = read_json(path);
  const json model = file.value("model", json::object());
  DS_CHECK(type_of(model) == "BPE" && !model.value("byte_fallback", false),
           "{}: model {} is not written as GGUF; byte-level BPE is", where, type_of(model));

  GgufVocabulary out;
  out.pre = pre_of(file.value("pre_tokenizer", json()), where);
  out.merges = merges_of(model, where);
  out.tokens.resize(static_cast<size_t>(config.vocab_size));
  out.types.assign(out.tokens.size(), kUnused);
  auto place = [&](int64_t id, const std::string& token, TokenType type) {
    DS_CHECK(id >= 0 && id < config.vocab_size, "{}: token \"{}\" has id {}, the embedding has {} rows", where, token,
             id, config.vocab_size);
    std::string& slot = out.tokens[static_cast<size_t>(id)];
    DS_CHECK(slot.empty() || slot == token, "{}: id {} is both \"{}\" and \"{}\"", where, id, slot, token);
    slot = token;
    out.types[static_cast<size_t>(id)] = type;
  };
  for (const auto& [token, id] : model.at("vocab").items()) place(id.get<int64_t>(), token, kNormal);
  for (const json& added : file.value("added_tokens", json::array())) {
    place(added.at("id").get<int64_t>(), added.at("content").get<std::string>(),
          added.value("special", false) ? kControl : kUserDefined);
  }
  for (size_t id = 0; id < out.tokens.size(); ++id) {
    if (out.types[id] == kUnused) out.tokens[id] = fmt::format("[PAD{}]", id);
  }
  name_special_tokens(out, hf_folder, config);
  return out;
}

void write_vocabulary(GgufWriter& writer, const GgufVocabulary& vocabulary, int64_t mask, bool with_template) {
  writer.text("tokenizer.ggml.model", "gpt2");
  writer.text("tokenizer.ggml.pre", vocabulary.pre);
  writer.texts("tokenizer.ggml.tokens", vocabulary.tokens);
  writer.i32s("tokenizer.ggml.token_type", vocabulary.types);
  writer.texts("tokenizer.ggml.merges", vocabulary.merges);
  auto id = [&](const char* name, int64_t value) {
    if (value >= 0) writer.u32(fmt::format("tokenizer.ggml.{}_token_id", name), static_cast<uint32_t>(value));
  };
  id("bos", vocabulary.bos);
  id("eos", vocabulary.eos);
  id("unknown", vocabulary.unk);
  id("padding", vocabulary.pad);
  id("mask", mask);
  writer.boolean("tokenizer.ggml.add_bos_token", vocabulary.add_bos);
  writer.boolean("tokenizer.ggml.add_space_prefix", false);
  if (with_template && !vocabulary.chat_template.empty()) {
    writer.text("tokenizer.chat_template", vocabulary.chat_template);
  }
}

}  // namespace draftsmith
