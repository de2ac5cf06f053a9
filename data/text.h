// Tokenizer and chat template of a target, read from its HF folder.
//
// Both are the ecosystem's own libraries (HF tokenizers, minijinja) in the crate `data/text/`; this is the C++ face
// that owns their handles. What is rendered and tokenised here equals what Transformers and the serving engines
// produce. Tokenizer and ChatTemplate are cheap to copy (shared, immutable) and may be used from several threads.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launch/check.h"

namespace draftsmith {

// A chat template refused a conversation: it raised, or met a value it cannot handle. Rows are dropped for this and
// counted.
class TemplateError : public Error {
 public:
  using Error::Error;
};

struct Encoding {
  std::vector<int64_t> ids;
  std::vector<std::pair<int64_t, int64_t>> offsets;  // byte offsets [begin, end) into the text, one per token
};

class Tokenizer {
 public:
  // Reads `tokenizer.json` in `hf_folder`. Truncation and padding settings inside it are ignored: encode() never cuts.
  static Tokenizer load(const std::string& hf_folder);

  // Throws Error when the text is not UTF-8. `add_special` adds what the post-processor adds (BOS); rendered chats
  // carry their own.
  Encoding encode(const std::string& text, bool add_special = false) const;
  std::vector<Encoding> encode_batch(const std::vector<std::string>& texts,
                                     bool add_special = false) const;  // all cores

  // Throws Error on an id that is not in the vocabulary. Incomplete characters become U+FFFD.
  std::string decode(const std::vector<int64_t>& ids, bool skip_special = true) const;

  std::optional<int64_t> token_to_id(const std::string& token) const;
  std::string id_to_token(int64_t id) const;  // throws Error when there is none
  int64_t size() const;                       // highest id + 1, added tokens included
  std::vector<int64_t> special_ids() const;   // ascending
  std::string hash() const;                   // SHA-256 of tokenizer.json, hex

 private:
  friend class StreamDecoder;
  struct Handle;
  explicit Tokenizer(std::shared_ptr<const Handle> handle) : handle_(std::move(handle)) {}
  std::shared_ptr<const Handle> handle_;
};

// Text of ids that arrive one by one: each piece ends at a character's end, and all pieces joined equal decode() of all
// ids.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true);
  std::string push(int64_t id);  // what is complete now, may be empty
  std::string finish();          // what was held back

 private:
  struct Handle;
  Tokenizer tokenizer_;
  std::shared_ptr<Handle> handle_;
};

struct RenderOptions {
  bool add_generation_prompt = false;
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();  // e.g. {"enable_thinking": false}
  nlohmann::ordered_json tools, documents;                              // null: none
  std::string
      date;  // what strftime_now sees, "2025-01-31" or "2025-01-31T12:00:00"; a template that asks without one fails
};

struct Rendered {
  std::string text;
  std::vector<std::pair<size_t, size_t>> generated;  // byte spans of the template's generation blocks
  bool has_tags = false;                             // the template marks them at all
};

class ChatTemplate {
 public:
  // `chat_template.jinja`, else "chat_template" of tokenizer_config.json (a string, or a list: the one named default).
  // The texts of bos, eos, pad and unk tokens come from tokenizer_config.json. Throws Error when there is no template
  // or it does not compile.
  static ChatTemplate load(const std::string& hf_folder);

  // Ordered JSON, because templates print tools and arguments in the order of their keys. Throws Error with the
  // template's own words and line when it raises.
  Rendered render(const nlohmann::ordered_json& messages, const RenderOptions& options) const;

  const std::string& source() const;  // as the folder holds it
  std::string hash() const;           // SHA-256 of the template's source, hex
  bool has_tags() const;
  const std::string& eos_token() const;  // empty: tokenizer_config.json names none

 private:
  struct Handle;
  explicit ChatTemplate(std::shared_ptr<const Handle> handle) : handle_(std::move(handle)) {}
  std::shared_ptr<const Handle> handle_;
};

}  // namespace draftsmith
