#include "models/generate_prompts.h"

#include <algorithm>
#include <unordered_set>

#include "data/assignments.h"
#include "launch/check.h"
#include "launch/log.h"

namespace draftsmith {

namespace {

// Makes a prompt of a conversation: system message in front, answers at its end off. False when nothing is left to
// answer.
bool make_prompt(Conversation& conversation, const std::string& system, bool& replaced) {
  nlohmann::ordered_json& messages = conversation.messages;
  replaced = false;
  while (!messages.empty() && messages.back().at("role") == "assistant") {
    messages.erase(messages.size() - 1);
    replaced = true;
  }
  const auto asks = [](const nlohmann::ordered_json& message) {
    return message.at("role") == "user" || message.at("role") == "tool";
  };
  if (messages.empty() || !asks(messages.back())) return false;
  if (!system.empty() && messages.front().at("role") != "system" && messages.front().at("role") != "developer") {
    messages.insert(messages.begin(), nlohmann::ordered_json{{"role", "system"}, {"content", system}});
  }
  conversation.id = content_id(messages, conversation.tools);
  return true;
}

}  // namespace

GeneratePrompts read_prompts(const PromptOptions& options, const Tokenizer& tokenizer, const ChatTemplate& chat,
                             const HfConfig& target, Summary& summary) {
  check_date(options.render.date);
  ReadOptions read = options.read;
  read.require_answer = false;
  RenderOptions render = options.render;
  render.add_generation_prompt = true;
  GeneratePrompts prompts;
  std::unordered_set<std::string> seen;
  std::string first_drop;
  const auto drop = [&](const std::string& reason, const std::string& where, const std::string& detail) {
    if (first_drop.empty())
      first_drop = fmt::format("{}: {}{}", where, reason, detail.empty() ? "" : " (" + detail + ")");
    summary.drop(reason);
  };
  ConversationReader reader(options.files, read);
  ConversationRow row;
  while (reader.next(row)) {
    ++summary.rows_in;
    if (!row.conversation) {
      drop(row.dropped, row.where, row.detail);
      continue;
    }
    if (options.limit > 0 && static_cast<int64_t>(prompts.rows.size()) == options.limit) {
      summary.drop("beyond --limit");
      continue;
    }
    GeneratePrompt prompt{std::move(*row.conversation), {}};
    bool replaced = false;
    if (!make_prompt(prompt.conversation, options.system, replaced)) {
      drop("no question to answer", row.where, "");
      continue;
    }
    if (!seen.insert(prompt.conversation.id).second) {
      drop("duplicate", row.where, prompt.conversation.id);
      continue;
    }
    try {
      render.tools = prompt.conversation.tools;
      prompt.tokens = tokenizer.encode(chat.render(prompt.conversation.messages, render).text).ids;
    } catch (const TemplateError& error) {
      drop("template refused", row.where, error.what());
      continue;
    }
    const auto length = static_cast<int64_t>(prompt.tokens.size());
    if (length >= target.max_position_embeddings) {
      drop("prompt too long", row.where,
           fmt::format("{} tokens, the model has {} positions", length, target.max_position_embeddings));
      continue;
    }
    DS_CHECK(!prompt.tokens.empty(), "{}: the prompt renders to no token", row.where);
    const int64_t highest = *std::max_element(prompt.tokens.begin(), prompt.tokens.end());
    DS_CHECK(
        highest < target.vocab_size,
        "{}: token {} is outside the target's vocabulary of {}: tokenizer.json and config.json are not of one model",
        row.where, highest, target.vocab_size);
    prompts.replaced += replaced ? 1 : 0;
    prompts.rows.push_back(std::move(prompt));
  }
  DS_CHECK(!prompts.rows.empty(), "no prompt is left of {} rows in {}{}\n       first of them: {}", summary.rows_in,
           options.files.front(), options.files.size() > 1 ? " and others" : "",
           first_drop.empty() ? "the files hold no row" : first_drop);
  if (!first_drop.empty()) warn("some rows are not used; the first is {}", first_drop);
  return prompts;
}

void check_drops(const Summary& summary, double max_drop_fraction) {
  DS_CHECK(static_cast<double>(summary.rows_unusable()) <= max_drop_fraction * static_cast<double>(summary.rows_in),
           "{} rows of the prompts cannot be used, more than --max-drop-fraction {} allows; kept are {}\n       mend "
           "the rows, or allow more",
           summary.rows_unusable(), max_drop_fraction, summary.rows_line());
}

void check_sampling_options(const SamplingOptions& options) {
  check_sampling(options);
  DS_CHECK(options.temperature > 0 || (options.top_k == 0 && options.top_p == 1),
           "--top-k and --top-p have no effect at temperature 0: leave them out, or give --temperature");
}

// What ends an answer: the end tokens of the target's configuration, and the end token that its template's turns carry.
std::vector<int64_t> stop_tokens(const HfConfig& config, const Tokenizer& tokenizer, const ChatTemplate& chat,
                                 const std::string& folder) {
  std::vector<int64_t> stop = config.eos_token_ids;
  if (!chat.eos_token().empty()) {
    if (const auto id = tokenizer.token_to_id(chat.eos_token())) stop.push_back(*id);
  }
  std::sort(stop.begin(), stop.end());
  stop.erase(std::unique(stop.begin(), stop.end()), stop.end());
  DS_CHECK(!stop.empty(),
           "{}: neither generation_config.json nor config.json nor tokenizer_config.json names an end token\n       "
           "set \"eos_token_id\" in {}/generation_config.json",
           folder, folder);
  return stop;
}

}  // namespace draftsmith
