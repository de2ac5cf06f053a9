// From a conversation to tokens with a loss mask: which tokens would the target itself have generated?
//
// The rules, in order (a mask is never guessed and never all ones):
//  1. The template carries {% generation %} tags: one rendering, its blocks are supervised.
//  2. It does not: for each assistant turn, P = rendering of the messages before it with the generation prompt, Q =
//  rendering up to
//     and with it. Where Q starts with P, [len(P), len(Q)) is supervised, in a sample of its own, since templates may
//     rewrite history. Turns whose Q continues the Q before are merged into one sample, so nothing is paid for twice.
//  3. Q does not start with P because the generation prompt opens a block (such as "<think>\n") that the finished turn
//  lacks: the
//     supervised part begins where the two part, if a probe in place of the answer is rendered exactly there. Anything
//     else throws.
//  4. A token is supervised when its bytes overlap a supervised span. With MaskMode::generated the spans are first
//  fitted to what
//     the model generates: the turn's end token belongs to it, white space after that and empty think blocks that the
//     template put in do not.
//  5. The end token of an answer that a limit cut (finish_reason "length") is not supervised.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "data/conversations.h"
#include "data/text.h"

namespace draftsmith {

struct Sample {
  std::string row_id;  // Conversation::id
  int64_t part = 0;    // several samples of one row are numbered
  std::vector<int32_t> tokens;
  std::vector<uint8_t> mask;  // 1: supervised
  std::string source, category;
  int64_t turns = 0, thinking_blocks = 0;  // supervised assistant turns, and reasoning blocks inside them
};

enum class MaskMode { generated, as_template };

struct ChatOptions {
  MaskMode mask = MaskMode::generated;
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();  // template switches such as enable_thinking
  std::string date;                                                     // for templates that print it
};

// A rendered text and the byte spans that are supervised, before tokenisation.
struct MaskedText {
  std::string text;
  std::vector<std::pair<size_t, size_t>> spans;
};

class ChatEncoder {
 public:
  // Reads tokenizer, template and, where there, the end tokens of generation_config.json.
  ChatEncoder(const std::string& hf_folder, ChatOptions options);

  // Throws TemplateError (data/text.h) when the template refuses the conversation, Error when no exact mask exists
  // (rule 3) or when everything would be supervised. Safe to call from several threads.
  std::vector<Sample> samples(const Conversation& conversation) const;

  // Rules 1 to 3 alone.
  std::vector<MaskedText> masked_texts(const Conversation& conversation) const;

  const Tokenizer& tokenizer() const { return tokenizer_; }
  const ChatTemplate& chat_template() const { return template_; }
  // What decides how rows are rendered and masked, as JSON text: template variables, date, mask rule.
  std::string switches() const;

 private:
  std::string render(const nlohmann::ordered_json& messages, const Conversation& conversation, bool prompt) const;
  size_t where_answer_begins(const Conversation& conversation, const nlohmann::ordered_json& before,
                             const nlohmann::ordered_json& turn, const std::string& prompt,
                             const std::string& whole) const;
  void fit_to_generated(const MaskedText& masked, const Encoding& encoding, bool may_cut_think,
                        std::pair<size_t, size_t>& span) const;

  void leave_out_end(const MaskedText& masked, const Encoding& encoding, Sample& sample) const;

  Tokenizer tokenizer_;
  ChatTemplate template_;
  ChatOptions options_;
  std::set<int64_t> special_, ends_;
};

}  // namespace draftsmith
