// Tokenizer and chat template against Transformers (goldens made by tests/goldens/make_text_goldens.py).
#include "data/text.h"

#include <cstdlib>

#include "tests/data/text_fixture.h"

namespace draftsmith {
namespace {

using nlohmann::ordered_json;
using testing::golden;
using testing::message_of;
using testing::named_template;
using testing::read_golden;
using testing::TemporaryFolder;
using testing::TinyTarget;

std::vector<int64_t> flat(const Encoding& encoding) {
  std::vector<int64_t> out;
  for (const auto& [begin, end] : encoding.offsets) out.insert(out.end(), {begin, end});
  return out;
}

bool is_utf8(const std::string& text) {
  return ordered_json(text).dump(-1, ' ', false, ordered_json::error_handler_t::ignore) ==
         ordered_json(text).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// Ids, byte offsets and decoded text of every string; and the streaming decoder on the same ids.
void compare_strings(const std::string& folder, const ordered_json& cases) {
  const Tokenizer tokenizer = Tokenizer::load(folder);
  std::vector<std::string> texts;
  for (const ordered_json& c : cases) texts.push_back(c["text"]);
  const std::vector<Encoding> encodings = tokenizer.encode_batch(texts);
  for (size_t i = 0; i < texts.size(); ++i) {
    SCOPED_TRACE(cases[i].dump().substr(0, 300));
    ASSERT_EQ(encodings[i].ids, cases[i]["ids"].get<std::vector<int64_t>>());
    ASSERT_EQ(flat(encodings[i]), cases[i]["offsets"].get<std::vector<int64_t>>());
    ASSERT_EQ(tokenizer.decode(encodings[i].ids, false), cases[i]["decoded"]);
    ASSERT_EQ(tokenizer.encode(texts[i]).ids, encodings[i].ids);
    StreamDecoder stream(tokenizer, false);
    std::string streamed;
    for (const int64_t id : encodings[i].ids) {
      const std::string piece = stream.push(id);
      ASSERT_TRUE(is_utf8(piece));
      streamed += piece;
    }
    ASSERT_EQ(streamed + stream.finish(), cases[i]["decoded"]);
  }
}

// Text and generation spans of one rendering, or that both refuse.
void compare_render(const ChatTemplate& chat_template, const ordered_json& messages, const ordered_json& expected,
                    const RenderOptions& options) {
  Rendered rendered;
  std::string refusal;
  try {
    rendered = chat_template.render(messages, options);
  } catch (const TemplateError& error) {
    refusal = error.what();
  }
  if (expected.contains("raises")) {
    EXPECT_FALSE(refusal.empty()) << "Jinja2 raises: " << expected["raises"] << "\nrendered: " << rendered.text;
    return;
  }
  ASSERT_EQ(refusal, "");
  ASSERT_EQ(rendered.text, expected["text"]);
  ordered_json spans = ordered_json::array();
  for (const auto& [begin, end] : rendered.generated) spans.push_back({begin, end});
  ASSERT_EQ(spans, expected["spans"]);
}

void compare_chats(const std::string& folder, const ordered_json& chats) {
  const ChatTemplate chat_template = ChatTemplate::load(folder);
  for (const ordered_json& c : chats["cases"]) {
    SCOPED_TRACE(chats["name"].get<std::string>() + ": " + c["messages"].dump().substr(0, 400));
    RenderOptions options;
    options.add_generation_prompt = c["prompt"];
    options.variables = c["variables"];
    options.tools = c["tools"];
    options.date = "2025-01-31T12:00:00";
    compare_render(chat_template, c["messages"], c, options);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(Tokenizer, IdsOffsetsAndTextEqualTheReferenceOnNastyStrings) {
  const ordered_json cases = read_golden("text_tiny.json")["strings"];
  ASSERT_GE(cases.size(), 200u);
  compare_strings(golden("text_tiny"), cases);
}

TEST(ChatTemplate, RendersConversationsAsTransformersDoes) {
  const ordered_json file = read_golden("text_tiny.json");
  ASSERT_EQ(file["chats"].size(), 5u);
  for (const ordered_json& chats : file["chats"]) {
    const TinyTarget target(chats["template"].get<std::string>());
    compare_chats(target.folder(), chats);
  }
}

TEST(ChatTemplate, EachConstructPrintsWhatJinjaPrints) {
  const ordered_json file = read_golden("text_templates.json");
  ASSERT_GE(file["cases"].size(), 80u);
  for (const ordered_json& c : file["cases"]) {
    SCOPED_TRACE(c["template"].dump());
    const TinyTarget target(c["template"].get<std::string>());
    RenderOptions options;
    options.date = file["date"];
    std::string refusal;
    try {
      const ChatTemplate chat_template = ChatTemplate::load(target.folder());
      compare_render(chat_template, file["messages"], c, options);
    } catch (const Error& error) {  // does not compile
      EXPECT_TRUE(c.contains("raises")) << error.what();
    }
  }
}

TEST(SmolLM2Text, TokensAndRenderingEqualTransformers) {
  const char* folder = std::getenv("DRAFTSMITH_SMOLLM2");
  if (folder == nullptr) GTEST_SKIP() << "DRAFTSMITH_SMOLLM2 does not name the imported SmolLM2 folder";
  const ordered_json file = read_golden("text_smollm2.json");
  ASSERT_GE(file["strings"].size(), 200u);
  compare_strings(folder, file["strings"]);
  compare_chats(folder, file["chats"][0]);
}

TEST(RealTextSlow, TokenizersAndTemplatesOfPackagesEqualTransformers) {
  const char* packages = std::getenv("DRAFTSMITH_TEXT_PACKAGES");
  if (packages == nullptr) {
    GTEST_SKIP()
        << "DRAFTSMITH_TEXT_PACKAGES does not name the folder that `make_text_goldens.py packages FOLDER` fills";
  }
  size_t folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(packages)) {
    SCOPED_TRACE(entry.path().string());
    const ordered_json file = ordered_json::parse(read_file(entry.path() / "golden.json"));
    if (!file["strings"].empty()) compare_strings(entry.path().string(), file["strings"]);
    compare_chats(entry.path().string(), file["chats"][0]);
    ++folders;
  }
  EXPECT_GE(folders, 70u);
}

TEST(Tokenizer, TruncationSavedInItsFileIsIgnored) {
  const TinyTarget target("");
  ordered_json file = ordered_json::parse(read_file(target.file("tokenizer.json")));
  file["truncation"] = {{"direction", "Right"}, {"max_length", 3}, {"strategy", "LongestFirst"}, {"stride", 0}};
  const TinyTarget cut("");
  cut.write("tokenizer.json", file.dump());
  const std::string text = "hello world question answer number two three";
  EXPECT_EQ(Tokenizer::load(cut.folder()).encode(text).ids, Tokenizer::load(target.folder()).encode(text).ids);
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer tokenizer = Tokenizer::load(golden("text_tiny"));
  EXPECT_EQ(tokenizer.special_ids(), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(tokenizer.token_to_id("<|im_end|>"), 2);
  EXPECT_EQ(tokenizer.token_to_id("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(1), "<|im_start|>");
  EXPECT_EQ(tokenizer.decode({1, 2}), "");
  EXPECT_EQ(tokenizer.decode({1, 2}, false), "<|im_start|><|im_end|>");
  EXPECT_EQ(tokenizer.hash(), sha256(read_file(golden("text_tiny/tokenizer.json"))));
  const ordered_json file = ordered_json::parse(read_file(golden("text_tiny/tokenizer.json")));
  EXPECT_EQ(tokenizer.size(), static_cast<int64_t>(file["model"]["vocab"].size()));
}

TEST(Tokenizer, RefusesIdsOutsideTheVocabularyAndBrokenText) {
  const Tokenizer tokenizer = Tokenizer::load(golden("text_tiny"));
  EXPECT_CONTAINS(message_of([&] { tokenizer.decode({0, 999999}); }), "token id 999999 is not in the vocabulary");
  EXPECT_CONTAINS(message_of([&] { tokenizer.decode({-1}); }), "token id -1");
  EXPECT_CONTAINS(message_of([&] { tokenizer.id_to_token(999999); }), "999999");
  EXPECT_CONTAINS(message_of([&] { tokenizer.encode("ab\xff"); }), "not valid UTF-8 at byte 2");
  EXPECT_CONTAINS(message_of([&] { tokenizer.encode_batch({"ok", "\xc3"}); }), "not valid UTF-8 at byte 0");
}

TEST(Tokenizer, NamesAMissingOrBrokenFile) {
  const TemporaryFolder folder;
  EXPECT_CONTAINS(message_of([&] { Tokenizer::load(folder.file("absent")); }), "no such folder");
  EXPECT_CONTAINS(message_of([&] { Tokenizer::load(folder.path().string()); }), "tokenizer.json: no such file");
  folder.write("tokenizer.json", "{\"model\": ");
  EXPECT_CONTAINS(message_of([&] { Tokenizer::load(folder.path().string()); }), "tokenizer.json: not valid JSON");
  folder.write("tokenizer.json", "{\"model\": {\"type\": \"Nonsense\"}}");
  EXPECT_CONTAINS(message_of([&] { Tokenizer::load(folder.path().string()); }), "tokenizer.json: not a tokenizer");
}

TEST(StreamDecoder, HoldsACharacterBackUntilItIsWhole) {
  const Tokenizer tokenizer = Tokenizer::load(golden("text_tiny"));
  const Encoding encoding = tokenizer.encode("🦙");
  ASSERT_EQ(encoding.ids.size(), 4u);  // four bytes, none merged
  StreamDecoder stream(tokenizer);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(stream.push(encoding.ids[i]), "");
  EXPECT_EQ(stream.push(encoding.ids[3]), "🦙");
  EXPECT_EQ(stream.push(encoding.ids[0]), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
}

TEST(ChatTemplate, IsFoundWhereTokenizersKeepIt) {
  const ordered_json messages = {{{"role", "user"}, {"content", "x"}}};
  const auto text_with = [&](const ordered_json& config, const std::string& jinja) {
    const TinyTarget target(jinja);
    target.write("tokenizer_config.json", config.dump());
    return ChatTemplate::load(target.folder()).render(messages, {}).text;
  };
  const ordered_json list = {{{"name", "tool_use"}, {"template", "T"}},
                             {{"name", "default"}, {"template", "D{{ eos_token }}"}}};
  EXPECT_EQ(text_with({{"chat_template", "C"}}, "J"), "J");
  EXPECT_EQ(text_with({{"chat_template", "C{{ bos_token }}"}, {"bos_token", {{"content", "<b>"}}}}, ""), "C<b>");
  EXPECT_EQ(text_with({{"chat_template", list}, {"eos_token", "<e>"}}, ""), "D<e>");
  EXPECT_CONTAINS(message_of([&] {
                    text_with({{"chat_template", {list[0]}}}, "");
                  }),
                  "(tool_use) is named \"default\"");
  EXPECT_CONTAINS(message_of([&] { text_with({{"eos_token", "<e>"}}, ""); }), "has no chat template");
}

TEST(ChatTemplate, SaysWhereItFails) {
  const auto load = [](const std::string& source) { return ChatTemplate::load(TinyTarget(source).folder()); };
  const ordered_json messages = {{{"role", "user"}, {"content", "x"}}};
  EXPECT_CONTAINS(message_of([&] { load("a\n{% for x in %}"); }), "does not compile");
  EXPECT_CONTAINS(message_of([&] { load("a\n{{ raise_exception('no system role') }}").render(messages, {}); }),
                  "no system role (template line 2)");
  EXPECT_CONTAINS(message_of([&] { load("{{ strftime_now('%Y') }}").render(messages, {}); }), "state a fixed one");
  EXPECT_CONTAINS(
      message_of([&] { load("{% generation %}{{ messages[0].content }}{% break %}").render(messages, {}); }),
      "compile");
}

TEST(ChatTemplate, SwitchesToolsAndOrderOfKeysReachTheText) {
  const ChatTemplate chat_template =
      ChatTemplate::load(TinyTarget("{{ enable_thinking }} {{ tools | tojson }} {{ documents }}").folder());
  RenderOptions options;
  options.variables["enable_thinking"] = false;
  options.tools = {{{"type", "function"}, {"a", 1.0}}};
  EXPECT_EQ(chat_template.render(ordered_json::array(), options).text,
            R"(False [{"type": "function", "a": 1.0}] None)");
}

TEST(ChatTemplate, MarkersNeverCollideWithTheMessages) {
  const ChatTemplate chat_template =
      ChatTemplate::load(TinyTarget("{% generation %}{{ messages[0].content }}{% endgeneration %}!").folder());
  const std::string hostile = "\uF8FE0\uF8FC and \uF8FE0\uF8FD and \uF8FE1\uF8FC";
  const Rendered rendered = chat_template.render({{{"role", "user"}, {"content", hostile}}}, {});
  EXPECT_EQ(rendered.text, hostile + "!");
  EXPECT_EQ(rendered.generated, (std::vector<std::pair<size_t, size_t>>{{0, hostile.size()}}));
}

}  // namespace
}  // namespace draftsmith
