// The loss mask against truth marked by hand: [...] around what the model itself would generate.
#include "data/chat.h"

#include "data/show.h"
#include "tests/data/text_fixture.h"

namespace draftsmith {
namespace {

using nlohmann::ordered_json;
using testing::golden;
using testing::message_of;
using testing::named_template;
using testing::TinyTarget;

ordered_json user(const std::string& text) {
  return {{"role", "user"}, {"content", text}};
}
ordered_json assistant(const std::string& text) {
  return {{"role", "assistant"}, {"content", text}};
}

Conversation conversation(const ordered_json& messages) {
  Conversation out;
  out.id = content_id(messages, nullptr);
  out.messages = messages;
  return out;
}

// The sample's text with supervised runs in brackets.
std::string bracketed(const Tokenizer& tokenizer, const Sample& sample) {
  std::string text;
  for (size_t begin = 0, end = 0; begin < sample.tokens.size(); begin = end) {
    while (end < sample.tokens.size() && sample.mask[end] == sample.mask[begin]) ++end;
    const std::string run = tokenizer.decode({sample.tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                              sample.tokens.begin() + static_cast<std::ptrdiff_t>(end)},
                                             /*skip_special=*/false);
    text += sample.mask[begin] != 0 ? "[" + run + "]" : run;
  }
  return text;
}

std::vector<std::string> masks(const std::string& chat_template, const ordered_json& messages,
                               const ChatOptions& options = {}) {
  const TinyTarget target(chat_template);
  const ChatEncoder encoder(target.folder(), options);
  std::vector<std::string> out;
  for (const Sample& sample : encoder.samples(conversation(messages))) {
    EXPECT_EQ(sample.mask.size(), sample.tokens.size());
    EXPECT_EQ(sample.part, static_cast<int64_t>(out.size()));
    out.push_back(bracketed(encoder.tokenizer(), sample));
  }
  return out;
}

using Masks = std::vector<std::string>;

ChatOptions as_template() {
  return {MaskMode::as_template, ordered_json::object(), ""};
}

const ordered_json kThreeTurns = {{{"role", "system"}, {"content", "system hello"}},
                                  user("is it sunny?"),
                                  assistant("it is 🦙"),
                                  user("and rain"),
                                  assistant("tomorrow\n"),
                                  user("thx"),
                                  assistant("answer")};

TEST(LossMask, ThreeTurnsWithoutTagsAreOneSampleWithThreeAnswers) {
  EXPECT_EQ(
      masks(named_template("chatml"), kThreeTurns),
      (Masks{
          "<|im_start|>system\nsystem hello<|im_end|>\n<|im_start|>user\nis it "
          "sunny?<|im_end|>\n<|im_start|>assistant\n"
          "[it is 🦙<|im_end|>]\n<|im_start|>user\nand rain<|im_end|>\n<|im_start|>assistant\n[tomorrow<|im_end|>]\n"
          "<|im_start|>user\nthx<|im_end|>\n<|im_start|>assistant\n[answer<|im_end|>]\n"}));
}

TEST(LossMask, TagsAndPrefixesGiveTheSameMask) {
  ordered_json messages = kThreeTurns;
  messages[4]["content"] = "tomorrow";  // the two templates differ in trimming
  EXPECT_EQ(masks(named_template("tagged"), messages), masks(named_template("chatml"), messages));
}

TEST(LossMask, AsTemplateKeepsTheNewlineAfterTheEndToken) {
  EXPECT_EQ(masks(named_template("chatml"), {user("a"), assistant("b")}, as_template()),
            (Masks{"<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[b<|im_end|>\n]"}));
}

TEST(LossMask, ATrailingUserTurnIsLeftOut) {
  EXPECT_EQ(masks(named_template("chatml"), {user("a"), assistant("b"), user("c")}),
            (Masks{"<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[b<|im_end|>]\n"}));
}

TEST(LossMask, RewrittenHistoryGivesOneSampleATurnAndEmptyThinkBlocksAreNotTargets) {
  const ordered_json messages = {user("a"), assistant("b"), user("c"), assistant("<think>\nhm\n</think>\n\nd")};
  EXPECT_EQ(masks(named_template("thinking"), messages),
            (Masks{"<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n[b<|im_end|>]\n",
                   "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
                   "<|im_start|>assistant\n[<think>\nhm\n</think>\n\nd<|im_end|>]\n"}));
  EXPECT_EQ(masks(named_template("thinking"), {user("a"), assistant("b")}, as_template()),
            (Masks{"<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[<think>\n\n</think>\n\nb<|im_end|>\n]"}));
}

TEST(LossMask, ThinkingSwitchedOffMovesTheEmptyBlockIntoThePrompt) {
  const ChatOptions off{MaskMode::as_template, {{"enable_thinking", false}}, ""};
  EXPECT_EQ(masks(named_template("thinking"), {user("a"), assistant("b")}, off),
            (Masks{"<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n[b<|im_end|>\n]"}));
}

TEST(LossMask, AnEmptyThinkBlockThatTheModelWroteIsATarget) {
  EXPECT_EQ(masks(named_template("chatml"), {user("a"), assistant("<think>\n\n</think>\n\nb")}),
            (Masks{"<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[<think>\n\n</think>\n\nb<|im_end|>]\n"}));
}

TEST(LossMask, APromptThatOpensThinkingIsFollowedExactly) {
  // "<table" begins like the prompt's "<think>": the border must not move into the answer.
  const ordered_json messages = {user("a"), assistant("<think>x</think><table>"), user("c"), assistant("<th")};
  EXPECT_EQ(masks(named_template("opens_think"), messages),
            (Masks{"<|endoftext|><|user|>a<|assistant|>[<table><|im_end|>]<|user|>c<|assistant|>[<th<|im_end|>]"}));
}

TEST(LossMask, AnAnswerRenderedOtherwiseThanItsPromptIsAnErrorNotAGuess) {
  const std::string odd =
      "{% for m in messages %}{{ '<|user|>' if m.role == 'user' else '<|bot|>' }}{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}";
  const std::string message = message_of([&] { masks(odd, {user("aa"), assistant("bb")}); });
  EXPECT_CONTAINS(message, conversation({user("aa"), assistant("bb")}).id);
  EXPECT_CONTAINS(message, "turn 2");
  EXPECT_CONTAINS(message, "<|user|>aa<|assistant|>");
  EXPECT_CONTAINS(message, "<|user|>aa<|bot|>bb");
}

TEST(LossMask, EverythingSupervisedIsAnError) {
  const std::string answers_only =
      "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content }}{% endif %}{% endfor %}";
  EXPECT_CONTAINS(message_of([&] { masks(answers_only, {user("a"), assistant("b")}); }), "every token");
}

TEST(LossMask, TagsThatStopShortOfTheEndTokenAreExtendedByIt) {
  const std::string short_tags =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ m.content "
      "}}{% endgeneration %}"
      "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}";
  const ordered_json messages = {user("a"), assistant("b")};
  EXPECT_EQ(masks(short_tags, messages),
            (Masks{"<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[b<|im_end|>]\n"}));
  EXPECT_EQ(masks(short_tags, messages, as_template()),
            (Masks{"<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[b]<|im_end|>\n"}));
}

TEST(LossMask, ToolCallsAreTargetsAndToolResultsAreNot) {
  Conversation row = conversation(
      {user("a"),
       {{"role", "assistant"}, {"tool_calls", {{{"function", {{"name", "f"}, {"arguments", {{"x", 1}}}}}}}}},
       {{"role", "tool"}, {"content", "r"}},
       assistant("b")});
  row.tools = {{{"type", "function"}, {"name", "f"}}};
  const TinyTarget target(named_template("tools"));
  const ChatEncoder encoder(target.folder(), {});
  const std::vector<Sample> samples = encoder.samples(row);
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].turns, 2);
  EXPECT_EQ(bracketed(encoder.tokenizer(), samples[0]),
            "<|im_start|>system\n# Tools\n{\"type\": \"function\", \"name\": "
            "\"f\"}<|im_end|>\n<|im_start|>user\na<|im_end|>\n"
            "<|im_start|>assistant\n[<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call><|im_end|>]\n"
            "<|im_start|>tool\nr<|im_end|>\n<|im_start|>assistant\n[b<|im_end|>]\n");
}

TEST(LossMask, TurnsAndThinkingBlocksAreCounted) {
  const TinyTarget target(named_template("chatml"));
  const ChatEncoder encoder(target.folder(), {});
  const std::vector<Sample> samples = encoder.samples(
      conversation({user("a"), assistant("<think>x</think>b"), user("c"), assistant("d"), user("e"), assistant("f")}));
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].turns, 3);
  EXPECT_EQ(samples[0].thinking_blocks, 1);
}

TEST(LossMask, TheSwitchesArePartOfTheIdentity) {
  const TinyTarget target(named_template("thinking"));
  const std::string on = ChatEncoder(target.folder(), {}).switches();
  const std::string off =
      ChatEncoder(target.folder(), {MaskMode::generated, {{"enable_thinking", false}}, ""}).switches();
  EXPECT_NE(on, off);
  EXPECT_NE(on, ChatEncoder(target.folder(), as_template()).switches());
}

TEST(Show, MarksSupervisedTextAndSeparatesTokens) {
  const TinyTarget target(named_template("chatml"));
  const ChatEncoder encoder(target.folder(), {});
  const Sample sample = encoder.samples(conversation({user("sunny"), assistant("🦙")})).at(0);
  const std::string plain = marked_sample(encoder.tokenizer(), sample, false);
  EXPECT_CONTAINS(plain, "<|im_start|>·");
  EXPECT_CONTAINS(plain, "🦙·<|im_end|>】⏎\n");
  EXPECT_EQ(plain.find('\x1b'), std::string::npos);
  EXPECT_CONTAINS(marked_sample(encoder.tokenizer(), sample, true), "\x1b[32m");
}

}  // namespace
}  // namespace draftsmith
