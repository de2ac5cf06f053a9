#include "data/chat.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "launch/check.h"
#include "launch/file.h"

namespace draftsmith {
namespace {

using nlohmann::ordered_json;

// Stands for an answer in rule 3: a private-use character first, so that no generation prompt begins alike.
constexpr const char* kProbe = "\uE0D5draftsmith probe";

bool is_blank(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c == ' ' || (c >= '\t' && c <= '\r'); });
}

size_t skip_blank(const std::string& text, size_t at) {
  while (at < text.size() && is_blank(std::string_view(text).substr(at, 1))) ++at;
  return at;
}

// Length of the common prefix, ending at a character's border.
size_t common_prefix(const std::string& a, const std::string& b) {
  size_t length = static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  while (length > 0 && length < a.size() && (static_cast<unsigned char>(a[length]) & 0xC0) == 0x80) --length;
  return length;
}

int64_t count_of(std::string_view text, std::string_view what) {
  int64_t count = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + what.size())) ++count;
  return count;
}

// The text around `at` for a message, white space made visible.
std::string excerpt(const std::string& text, size_t at) {
  size_t begin = at < 60 ? 0 : at - 60, end = std::min(text.size(), at + 60);
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
  std::string shown;
  for (const char c : text.substr(begin, end - begin)) {
    if (c == '\n')
      shown += "\\n";
    else
      shown += c;
  }
  return shown;
}

// The conversation up to its last assistant turn: what follows it trains nothing.
ordered_json up_to_last_answer(const ordered_json& messages) {
  size_t end = messages.size();
  while (end > 0 && messages[end - 1]["role"] != "assistant") --end;
  return ordered_json(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(end));
}

// True when an answer in the data itself holds an empty think block: then the model did generate it.
bool holds_empty_think(const ordered_json& messages) {
  for (const ordered_json& message : messages) {
    if (message["role"] != "assistant" || !message.contains("content")) continue;
    const std::string& text = message["content"].get_ref<const std::string&>();
    for (size_t at = text.find("<think>"); at != std::string::npos; at = text.find("<think>", at + 1)) {
      if (text.compare(skip_blank(text, at + 7), 8, "</think>") == 0) return true;
    }
  }
  return false;
}

}  // namespace

ChatEncoder::ChatEncoder(const std::string& hf_folder, ChatOptions options)
    : tokenizer_(Tokenizer::load(hf_folder)), template_(ChatTemplate::load(hf_folder)), options_(std::move(options)) {
  for (const int64_t id : tokenizer_.special_ids()) special_.insert(id);
  if (const auto id = tokenizer_.token_to_id(template_.eos_token())) ends_.insert(*id);
  const std::filesystem::path generation = std::filesystem::path(hf_folder) / "generation_config.json";
  if (std::filesystem::exists(generation)) {
    const ordered_json config = ordered_json::parse(read_file(generation), nullptr, /*allow_exceptions=*/false);
    DS_CHECK(config.is_object(), "{}: not a JSON object", generation.string());
    const ordered_json eos = config.value("eos_token_id", ordered_json());
    if (eos.is_number_integer()) ends_.insert(eos.get<int64_t>());
    if (eos.is_array()) {
      for (const ordered_json& id : eos) {
        DS_CHECK(id.is_number_integer(), "{}: eos_token_id holds {}, an id is needed", generation.string(), id.dump());
        ends_.insert(id.get<int64_t>());
      }
    }
  }
}

std::string ChatEncoder::switches() const {
  ordered_json all = {{"variables", options_.variables},
                      {"mask", options_.mask == MaskMode::generated ? "generated" : "template"}};
  if (!options_.date.empty()) all["date"] = options_.date;
  return all.dump();
}

std::string ChatEncoder::render(const ordered_json& messages, const Conversation& conversation, bool prompt) const {
  RenderOptions options{prompt, options_.variables, conversation.tools, nullptr, options_.date};
  return template_.render(messages, options).text;
}

size_t ChatEncoder::where_answer_begins(const Conversation& conversation, const ordered_json& before,
                                        const ordered_json& turn, const std::string& prompt,
                                        const std::string& whole) const {
  if (whole.starts_with(prompt)) return prompt.size();
  const std::string without = render(before, conversation, /*prompt=*/false);
  ordered_json probed = before;
  probed.push_back(turn);
  probed.back()["content"] = kProbe;
  const std::string probe = render(probed, conversation, /*prompt=*/false);
  const size_t begin = common_prefix(prompt, probe);
  const bool exact = prompt.starts_with(without) && begin >= without.size() &&
                     probe.compare(begin, std::strlen(kProbe), kProbe) == 0 &&
                     whole.compare(0, begin, prompt, 0, begin) == 0;
  const size_t parted = common_prefix(prompt, whole);
  DS_CHECK(exact,
           "row {}: turn {}: the template renders the finished answer otherwise than the prompt for it, so no exact "
           "loss mask exists\n"
           "       prompt: ...{}\n       answer: ...{}\n"
           "       use a template with generation tags, or the template variables the target is served with",
           conversation.id, before.size() + 1, excerpt(prompt, parted), excerpt(whole, parted));
  return begin;
}

std::vector<MaskedText> ChatEncoder::masked_texts(const Conversation& conversation) const {
  const ordered_json messages = up_to_last_answer(conversation.messages);
  std::vector<MaskedText> parts;
  if (messages.empty()) return parts;
  if (template_.has_tags()) {
    Rendered rendered =
        template_.render(messages, {false, options_.variables, conversation.tools, nullptr, options_.date});
    parts.push_back({std::move(rendered.text), std::move(rendered.generated)});
    return parts;
  }
  ordered_json before = ordered_json::array();
  for (const ordered_json& message : messages) {
    if (message["role"] == "assistant") {
      const std::string prompt = render(before, conversation, /*prompt=*/true);
      ordered_json with = before;
      with.push_back(message);
      std::string whole = render(with, conversation, /*prompt=*/false);
      const size_t begin = where_answer_begins(conversation, before, message, prompt, whole);
      const std::pair<size_t, size_t> span{begin, whole.size()};
      const bool continues =
          !parts.empty() && whole.starts_with(parts.back().text) && begin >= parts.back().text.size();
      if (!continues) parts.emplace_back();
      parts.back().text = std::move(whole);
      parts.back().spans.push_back(span);
    }
    before.push_back(message);
  }
  return parts;
}

void ChatEncoder::fit_to_generated(const MaskedText& masked, const Encoding& encoding, bool may_cut_think,
                                   std::pair<size_t, size_t>& span) const {
  const std::string& text = masked.text;
  // An empty think block that begins in the span or right before it.
  if (may_cut_think) {
    size_t open = span.first;
    while (open > 0 && is_blank(std::string_view(text).substr(open - 1, 1))) --open;
    const bool opened_before = open >= 7 && text.compare(open - 7, 7, "<think>") == 0;
    const size_t inside =
        opened_before ? span.first : (text.compare(span.first, 7, "<think>") == 0 ? span.first + 7 : 0);
    if (inside > 0) {
      const size_t close = skip_blank(text, inside);
      if (close < span.second && text.compare(close, 8, "</think>") == 0) {
        span.first = std::min(skip_blank(text, close + 8), span.second);
      }
    }
  }
  // The last special token of the span, when only white space follows it, ends the turn.
  size_t last = encoding.ids.size(), next = encoding.ids.size();
  for (size_t t = 0; t < encoding.ids.size(); ++t) {
    const auto [begin, end] = encoding.offsets[t];
    if (static_cast<size_t>(begin) >= span.second) {
      next = t;
      break;
    }
    if (static_cast<size_t>(begin) >= span.first && special_.contains(encoding.ids[t])) last = t;
  }
  if (last < encoding.ids.size()) {
    const size_t end = static_cast<size_t>(encoding.offsets[last].second);
    if (end <= span.second && is_blank(std::string_view(text).substr(end, span.second - end))) {
      span.second = end;
      return;
    }
  }
  // A span that stops short of the end token which the model has to generate.
  if (next < encoding.ids.size() && static_cast<size_t>(encoding.offsets[next].first) == span.second &&
      ends_.contains(encoding.ids[next])) {
    span.second = static_cast<size_t>(encoding.offsets[next].second);
  }
}

// The target never chose to end an answer that a limit cut: its end token, and white space behind it, is no label.
void ChatEncoder::leave_out_end(const MaskedText& masked, const Encoding& encoding, Sample& sample) const {
  size_t t = sample.mask.size();
  const auto text_of = [&](size_t token) {
    const auto [begin, end] = encoding.offsets[token];
    return std::string_view(masked.text).substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  };
  while (t > 0 && (!sample.mask[t - 1] || is_blank(text_of(t - 1)))) --t;
  if (t == 0 || !(special_.contains(encoding.ids[t - 1]) || ends_.contains(encoding.ids[t - 1]))) return;
  std::fill(sample.mask.begin() + static_cast<std::ptrdiff_t>(t) - 1, sample.mask.end(), 0);
}

std::vector<Sample> ChatEncoder::samples(const Conversation& conversation) const {
  const bool may_cut_think = !holds_empty_think(conversation.messages);
  std::vector<Sample> samples;
  const std::vector<MaskedText> whole = masked_texts(conversation);
  for (const MaskedText& masked : whole) {
    const Encoding encoding = tokenizer_.encode(masked.text);
    Sample sample;
    sample.row_id = conversation.id;
    sample.part = static_cast<int64_t>(samples.size());
    sample.source = conversation.source;
    sample.category = conversation.category;
    sample.tokens.assign(encoding.ids.begin(), encoding.ids.end());
    sample.mask.assign(encoding.ids.size(), 0);
    for (std::pair<size_t, size_t> span : masked.spans) {
      if (options_.mask == MaskMode::generated) fit_to_generated(masked, encoding, may_cut_think, span);
      for (size_t t = 0; t < encoding.ids.size(); ++t) {
        const auto [begin, end] = encoding.offsets[t];
        if (static_cast<size_t>(begin) < span.second && static_cast<size_t>(end) > span.first && begin < end)
          sample.mask[t] = 1;
      }
      const std::string_view supervised = std::string_view(masked.text).substr(span.first, span.second - span.first);
      sample.turns += supervised.empty() ? 0 : 1;
      sample.thinking_blocks += count_of(supervised, "</think>") + count_of(supervised, "<|channel|>analysis");
    }
    DS_CHECK(sample.tokens.empty() || std::find(sample.mask.begin(), sample.mask.end(), 0) != sample.mask.end(),
             "row {}: every token of the rendered text would be trained on, prompt included; the template renders the "
             "prompt as nothing",
             conversation.id);
    if (conversation.cut && &masked == &whole.back()) leave_out_end(masked, encoding, sample);
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace draftsmith
