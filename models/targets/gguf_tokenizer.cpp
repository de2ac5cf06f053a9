#include "models/targets/gguf_tokenizer.h"

#include <unordered_map>

#include "data/json_rows.h"
#include "launch/check.h"

namespace draftsmith {
namespace {

using nlohmann::ordered_json;

// tokenizer.ggml.token_type
enum TokenType : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct PreTokenizer {
  const char* name;    // tokenizer.ggml.pre
  bool digits;         // each digit by itself, then GPT-2's own split
  const char* split;   // else: the split, as published in the models' tokenizer.json
  bool nfc;            // text is normalised first
  bool ignore_merges;  // a word that is a token is taken whole
};

constexpr PreTokenizer kPreTokenizers[] = {
    {"smollm", true, nullptr, false, false},
    {"llama-bpe", false,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     false, true},
    {"qwen2", false,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     true, false},
};

const PreTokenizer& pre_tokenizer(const GgufFile& file) {
  const std::string name = file.text("tokenizer.ggml.pre");
  std::string known;
  for (const PreTokenizer& candidate : kPreTokenizers) {
    if (name == candidate.name) return candidate;
    known += (known.empty() ? "" : ", ") + std::string(candidate.name);
  }
  DS_FAIL(
      "{}: pre-tokenizer \"{}\" (tokenizer.ggml.pre) has no translation; {} have; take the tokenizer files of the "
      "original model",
      file.path(), name, known);
}

ordered_json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

ordered_json pre_tokenizer_json(const PreTokenizer& pre) {
  ordered_json first;
  if (pre.digits) {
    first = {{"type", "Digits"}, {"individual_digits", true}};
  } else {
    first = {{"type", "Split"}, {"pattern", {{"Regex", pre.split}}}, {"behavior", "Isolated"}, {"invert", false}};
  }
  return {{"type", "Sequence"}, {"pretokenizers", ordered_json::array({first, byte_level(pre.digits)})}};
}

// Puts bos before (and eos behind) a text, when the GGUF says that the tokenizer does so by itself.
ordered_json post_processor_json(const std::vector<std::string>& tokens, int64_t bos, int64_t eos) {
  if (bos < 0 && eos < 0) return nullptr;
  ordered_json single = ordered_json::array(), pair = ordered_json::array(), special = ordered_json::object();
  const auto add = [&](ordered_json& to, int64_t id, int type) {
    if (id < 0) return;
    const std::string& token = tokens[static_cast<size_t>(id)];
    to.push_back({{"SpecialToken", {{"id", token}, {"type_id", type}}}});
    special[token] = {{"id", token}, {"ids", {id}}, {"tokens", {token}}};
  };
  const auto text = [](ordered_json& to, const char* name, int type) {
    to.push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
  };
  add(single, bos, 0), text(single, "A", 0), add(single, eos, 0);
  add(pair, bos, 0), text(pair, "A", 0), add(pair, eos, 0), add(pair, bos, 1), text(pair, "B", 1), add(pair, eos, 1);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

// Every merge joins two tokens into a third; a list that breaks this belongs to another vocabulary.
void check_merges(const GgufFile& file, const std::unordered_map<std::string, int64_t>& vocabulary,
                  const std::vector<std::string>& merges) {
  for (size_t i = 0; i < merges.size(); ++i) {
    const size_t space = merges[i].find(' ');
    const bool pair = space != std::string::npos && merges[i].find(' ', space + 1) == std::string::npos;
    const std::string left = pair ? merges[i].substr(0, space) : "", right = pair ? merges[i].substr(space + 1) : "";
    DS_CHECK(pair && vocabulary.count(left) && vocabulary.count(right) && vocabulary.count(left + right),
             "{}: tokenizer.ggml.merges[{}] = \"{}\" does not join two tokens of the vocabulary into a third",
             file.path(), i, merges[i]);
  }
}

bool flag(const GgufFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) return false;
  const bool* value = std::get_if<bool>(&found->second);
  DS_CHECK(value, "{}: key {} is not true or false", file.path(), key);
  return *value;
}

// Text that is valid UTF-8 as a JSON document; a damaged token would otherwise end in an exception without a name.
std::string dump(const ordered_json& value, const GgufFile& file, int indent) {
  try {
    return value.dump(indent) + "\n";
  } catch (const nlohmann::json::exception& error) {
    DS_FAIL("{}: a token, merge or template is not UTF-8: {}", file.path(), json_words(error));
  }
}

}  // namespace

TokenizerFiles gguf_tokenizer(const GgufFile& file, const HfConfig& config) {
  DS_CHECK(file.text("tokenizer.ggml.model") == "gpt2",
           "{}: tokenizer model {} is not imported; gpt2 (byte-level BPE) is", file.path(),
           file.text("tokenizer.ggml.model"));
  DS_CHECK(!flag(file, "tokenizer.ggml.add_space_prefix"),
           "{}: key tokenizer.ggml.add_space_prefix is set: no translation", file.path());
  const PreTokenizer& pre = pre_tokenizer(file);
  const std::vector<std::string>& tokens = file.texts("tokenizer.ggml.tokens");
  const std::vector<int64_t> types = file.integers("tokenizer.ggml.token_type");
  DS_CHECK(types.size() == tokens.size(), "{}: {} tokens but {} token types", file.path(), tokens.size(), types.size());

  ordered_json added = ordered_json::array();
  nlohmann::json vocab = nlohmann::json::object();
  std::unordered_map<std::string, int64_t> vocabulary;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (types[id] == kUnused) continue;  // rows that only pad the embedding
    DS_CHECK(vocabulary.emplace(tokens[id], id).second, "{}: token \"{}\" stands twice, as {} and {}", file.path(),
             tokens[id], vocabulary[tokens[id]], id);
    vocab[tokens[id]] = id;
    if (types[id] == kControl || types[id] == kUserDefined || types[id] == kUnknown) {
      added.push_back({{"id", id},
                       {"content", tokens[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", types[id] != kUserDefined}});
    }
  }
  const std::vector<std::string>& merges = file.texts("tokenizer.ggml.merges");
  check_merges(file, vocabulary, merges);

  const int64_t eos = config.eos_token_ids.empty() ? -1 : config.eos_token_ids[0];
  const bool add_bos = flag(file, "tokenizer.ggml.add_bos_token"), add_eos = flag(file, "tokenizer.ggml.add_eos_token");
  DS_CHECK((!add_bos || config.bos_token_id >= 0) && (!add_eos || eos >= 0),
           "{}: adds a bos or eos token that it does not name", file.path());

  ordered_json json;
  json["version"] = "1.0";
  json["truncation"] = nullptr;
  json["padding"] = nullptr;
  json["added_tokens"] = added;
  json["normalizer"] = pre.nfc ? ordered_json{{"type", "NFC"}} : ordered_json();
  json["pre_tokenizer"] = pre_tokenizer_json(pre);
  json["post_processor"] = post_processor_json(tokens, add_bos ? config.bos_token_id : -1, add_eos ? eos : -1);
  json["decoder"] = byte_level(true);
  json["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", pre.ignore_merges}};
  json["model"]["vocab"] = vocab;
  json["model"]["merges"] = merges;

  ordered_json settings;
  settings["tokenizer_class"] = "PreTrainedTokenizerFast";
  settings["model_max_length"] = config.max_position_embeddings;
  settings["clean_up_tokenization_spaces"] = false;
  settings["add_prefix_space"] = false;
  settings["add_bos_token"] = add_bos;
  settings["add_eos_token"] = add_eos;
  const auto name = [&](const char* key, int64_t id) {
    if (id >= 0) settings[key] = tokens[static_cast<size_t>(id)];
  };
  name("bos_token", config.bos_token_id);
  name("eos_token", eos);
  name("pad_token", config.pad_token_id);
  if (file.has("tokenizer.ggml.unknown_token_id")) name("unk_token", file.integer("tokenizer.ggml.unknown_token_id"));

  TokenizerFiles out;
  if (file.has("tokenizer.chat_template")) {
    out.chat_template = file.text("tokenizer.chat_template");
    settings["chat_template"] = out.chat_template;
  }
  out.tokenizer_json = dump(json, file, -1);
  out.tokenizer_config_json = dump(settings, file, 2);
  return out;
}

}  // namespace draftsmith
