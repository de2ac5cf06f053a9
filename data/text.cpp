#include "data/text.h"

#include <filesystem>

#include "data/json_rows.h"
#include "data/text/text_abi.h"
#include "launch/file.h"

namespace draftsmith {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// Text out of the crate, freed with it.
struct Bytes {
  Bytes() = default;
  ~Bytes() { ds_bytes_free(bytes); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  std::string text() const { return {reinterpret_cast<const char*>(bytes.data), bytes.size}; }
  ds_bytes bytes{nullptr, 0};
};

ds_text view(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Reads JSON; a file that is none is an error with its name and place.
ordered_json read_json(const fs::path& path) {
  try {
    return ordered_json::parse(read_file(path));
  } catch (const ordered_json::parse_error& error) {
    DS_FAIL("{}: not valid JSON at byte {}: {}", path.string(), error.byte, json_words(error));
  }
}

// A special token in tokenizer_config.json is a string or an object with "content".
std::string token_text(const ordered_json& config, const std::string& name) {
  const auto found = config.find(name);
  if (found == config.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object() && found->contains("content") && found->at("content").is_string()) return found->at("content");
  return "";
}

std::string template_in_config(const ordered_json& config, const fs::path& path) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return "";
  if (found->is_string()) return found->get<std::string>();
  DS_CHECK(found->is_array(), "{}: \"chat_template\" is neither a string nor a list", path.string());
  std::string names;
  for (const ordered_json& entry : *found) {
    const std::string name = entry.value("name", "");
    if (name == "default") return entry.value("template", "");
    names += (names.empty() ? "" : ", ") + name;
  }
  DS_FAIL("{}: none of the chat templates ({}) is named \"default\"; write the wanted one to {}", path.string(), names,
          (path.parent_path() / "chat_template.jinja").string());
}

}  // namespace

// ---- tokenizer ----

struct Tokenizer::Handle {
  ~Handle() { ds_tokenizer_free(tokenizer); }
  ds_tokenizer* tokenizer = nullptr;
  std::string path, hash;
};

Tokenizer Tokenizer::load(const std::string& hf_folder) {
  const fs::path path = fs::path(hf_folder) / "tokenizer.json";
  DS_CHECK(fs::is_directory(hf_folder), "{}: no such folder; a folder with a model's tokenizer.json is needed",
           hf_folder);
  DS_CHECK(fs::exists(path), "{}: no such file; the folder of the target must hold the tokenizer it is served with",
           path.string());
  const std::string json = read_file(path);
  auto handle = std::make_shared<Handle>();
  handle->path = path.string();
  handle->hash = sha256(json);
  Bytes error;
  handle->tokenizer = ds_tokenizer_load(view(json).data, json.size(), &error.bytes);
  DS_CHECK(handle->tokenizer != nullptr, "{}: {}", handle->path, error.text());
  return Tokenizer(std::move(handle));
}

std::vector<Encoding> Tokenizer::encode_batch(const std::vector<std::string>& texts, bool add_special) const {
  std::vector<ds_text> views;
  views.reserve(texts.size());
  for (const std::string& text : texts) views.push_back(view(text));
  ds_encodings flat{};
  Bytes error;
  DS_CHECK(ds_tokenizer_encode(handle_->tokenizer, views.data(), views.size(), add_special, &flat, &error.bytes),
           "{}: cannot encode a text: {}", handle_->path, error.text());
  std::vector<Encoding> encodings(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const int64_t begin = flat.starts[i], end = flat.starts[i + 1];
    encodings[i].ids.assign(flat.ids + begin, flat.ids + end);
    encodings[i].offsets.reserve(static_cast<size_t>(end - begin));
    for (int64_t t = begin; t < end; ++t)
      encodings[i].offsets.emplace_back(flat.offsets[2 * t], flat.offsets[2 * t + 1]);
  }
  ds_encodings_free(flat);
  return encodings;
}

Encoding Tokenizer::encode(const std::string& text, bool add_special) const {
  return std::move(encode_batch({text}, add_special)[0]);
}

std::string Tokenizer::decode(const std::vector<int64_t>& ids, bool skip_special) const {
  Bytes text, error;
  DS_CHECK(ds_tokenizer_decode(handle_->tokenizer, ids.data(), ids.size(), skip_special, &text.bytes, &error.bytes),
           "{}: cannot decode: {}", handle_->path, error.text());
  return text.text();
}

std::optional<int64_t> Tokenizer::token_to_id(const std::string& token) const {
  const int64_t id = ds_tokenizer_token_to_id(handle_->tokenizer, view(token).data, token.size());
  return id < 0 ? std::nullopt : std::optional(id);
}

std::string Tokenizer::id_to_token(int64_t id) const {
  Bytes text;
  DS_CHECK(ds_tokenizer_id_to_token(handle_->tokenizer, id, &text.bytes),
           "{}: no token has id {}; the vocabulary has {} ids", handle_->path, id, size());
  return text.text();
}

int64_t Tokenizer::size() const {
  return ds_tokenizer_size(handle_->tokenizer);
}

std::vector<int64_t> Tokenizer::special_ids() const {
  std::vector<int64_t> ids(ds_tokenizer_special_ids(handle_->tokenizer, nullptr, 0));
  ds_tokenizer_special_ids(handle_->tokenizer, ids.data(), ids.size());
  return ids;
}

std::string Tokenizer::hash() const {
  return handle_->hash;
}

struct StreamDecoder::Handle {
  ~Handle() { ds_stream_free(stream); }
  ds_stream* stream = nullptr;
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(tokenizer), handle_(std::make_shared<Handle>()) {
  handle_->stream = ds_stream_new(skip_special);
}

std::string StreamDecoder::push(int64_t id) {
  Bytes text, error;
  DS_CHECK(ds_stream_push(handle_->stream, tokenizer_.handle_->tokenizer, id, &text.bytes, &error.bytes),
           "{}: cannot decode: {}", tokenizer_.handle_->path, error.text());
  return text.text();
}

std::string StreamDecoder::finish() {
  Bytes text, error;
  DS_CHECK(ds_stream_finish(handle_->stream, tokenizer_.handle_->tokenizer, &text.bytes, &error.bytes),
           "{}: cannot decode: {}", tokenizer_.handle_->path, error.text());
  return text.text();
}

// ---- chat template ----

struct ChatTemplate::Handle {
  ~Handle() { ds_template_free(compiled); }
  ds_template* compiled = nullptr;
  std::string path, source, hash, eos_token;
  ordered_json special_tokens = ordered_json::object();  // bos_token, ... as template variables
};

ChatTemplate ChatTemplate::load(const std::string& hf_folder) {
  const fs::path jinja = fs::path(hf_folder) / "chat_template.jinja";
  const fs::path config_path = fs::path(hf_folder) / "tokenizer_config.json";
  DS_CHECK(fs::is_directory(hf_folder), "{}: no such folder; a folder with a model's chat template is needed",
           hf_folder);
  const ordered_json config = fs::exists(config_path) ? read_json(config_path) : ordered_json::object();
  DS_CHECK(config.is_object(), "{}: a JSON object is expected", config_path.string());

  auto handle = std::make_shared<Handle>();
  for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    const std::string text = token_text(config, name);
    if (!text.empty()) handle->special_tokens[name] = text;
  }
  handle->eos_token = handle->special_tokens.value("eos_token", "");
  const bool own_file = fs::exists(jinja);
  const std::string source = own_file ? read_file(jinja) : template_in_config(config, config_path);
  handle->path = (own_file ? jinja : config_path).string();
  DS_CHECK(!source.empty(), "{}: the tokenizer has no chat template; write the one the target is served with to {}",
           hf_folder, jinja.string());
  handle->source = source;
  handle->hash = sha256(source);
  Bytes error;
  handle->compiled = ds_template_compile(view(source).data, source.size(), &error.bytes);
  DS_CHECK(handle->compiled != nullptr, "{}: the chat template does not compile: {}", handle->path, error.text());
  return ChatTemplate(std::move(handle));
}

Rendered ChatTemplate::render(const ordered_json& messages, const RenderOptions& options) const {
  ordered_json context = handle_->special_tokens;
  context["tools"] = options.tools;
  context["documents"] = options.documents;
  context["add_generation_prompt"] = options.add_generation_prompt;
  DS_CHECK(options.variables.is_object(), "{}: template variables must be a JSON object", handle_->path);
  for (const auto& [name, value] : options.variables.items()) context[name] = value;
  std::string messages_text, context_text;
  try {
    messages_text = messages.dump();
    context_text = context.dump();
  } catch (const ordered_json::type_error& error) {
    throw TemplateError(fmt::format("{}: a text is not valid UTF-8 ({})", handle_->path, json_words(error)));
  }
  ds_render out{};
  Bytes error;
  if (!ds_template_render(handle_->compiled, view(messages_text), view(context_text), view(options.date), &out,
                          &error.bytes)) {
    throw TemplateError(fmt::format("{}: {}", handle_->path, error.text()));
  }
  Rendered rendered;
  rendered.text.assign(reinterpret_cast<const char*>(out.text.data), out.text.size);
  for (size_t i = 0; i < out.span_count; ++i) rendered.generated.emplace_back(out.spans[2 * i], out.spans[2 * i + 1]);
  rendered.has_tags = has_tags();
  ds_render_free(out);
  return rendered;
}

const std::string& ChatTemplate::source() const {
  return handle_->source;
}

std::string ChatTemplate::hash() const {
  return handle_->hash;
}

bool ChatTemplate::has_tags() const {
  return ds_template_has_tags(handle_->compiled) != 0;
}

const std::string& ChatTemplate::eos_token() const {
  return handle_->eos_token;
}

}  // namespace draftsmith
