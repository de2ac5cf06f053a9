// Rows of JSON files: every shape that data sets come in, every way they are broken.
#include "data/conversations.h"

#include <map>

#include "tests/data/text_fixture.h"

namespace draftsmith {
namespace {

using nlohmann::ordered_json;
using testing::message_of;
using testing::TemporaryFolder;

struct Account {
  std::vector<Conversation> kept;
  std::map<std::string, int64_t> dropped;
  std::vector<std::string> places;  // of dropped rows
  int64_t rows = 0;
};

Account read(const std::vector<std::string>& files, const ReadOptions& options = {}) {
  Account account;
  ConversationReader reader(files, options);
  ConversationRow row;
  while (reader.next(row)) {
    ++account.rows;
    EXPECT_NE(row.conversation.has_value(), !row.dropped.empty());
    if (row.conversation) {
      account.kept.push_back(*row.conversation);
    } else {
      ++account.dropped[row.dropped];
      account.places.push_back(row.where);
    }
  }
  return account;
}

Account read_text(const std::string& text, const ReadOptions& options = {}) {
  const TemporaryFolder folder;
  return read({folder.write("rows.jsonl", text)}, options);
}

using Counts = std::map<std::string, int64_t>;

const std::string kGood = R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})";

TEST(Conversations, EveryShapeOfTheSameConversationHasTheSameId) {
  const std::vector<std::string> rows = {
      kGood,
      R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})",
      R"({"conversations": [{"role": "User", "content": "q"}, {"role": "MODEL", "content": "a"}], "id": 7})",
      R"({"messages": [{"content": "q", "role": "prompter", "name": null}, {"role": "bot", "content": "a", "tool_calls": null}], "tools": null})",
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}, {"role": "assistant", "content": ["a"]}], "tools": []})",
  };
  for (const std::string& row : rows) {
    const Account account = read_text(row + "\n");
    ASSERT_EQ(account.kept.size(), 1u) << row;
    EXPECT_EQ(account.kept[0].id, read_text(kGood).kept[0].id) << row;
    EXPECT_EQ(account.kept[0].messages[1]["role"], "assistant");
  }
  std::string all;
  for (const std::string& row : rows) all += row + "\n";
  const Account account = read_text(all);
  EXPECT_EQ(account.kept.size(), 1u);
  EXPECT_EQ(account.dropped, (Counts{{"duplicate", 4}}));
}

TEST(Conversations, DuplicatesAreFoundAcrossFiles) {
  const TemporaryFolder folder;
  const Account account = read({folder.write("a.jsonl", kGood), folder.write("b.json", "[" + kGood + "]")});
  EXPECT_EQ(account.kept.size(), 1u);
  EXPECT_EQ(account.dropped, (Counts{{"duplicate", 1}}));
}

TEST(Conversations, MetadataIsKeptAndDoesNotChangeTheId) {
  const std::string row =
      R"({"id": "r1", "source": "shop", "category": "math", "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})";
  const Conversation got = read_text(row).kept.at(0);
  EXPECT_EQ(got.original_id, "r1");
  EXPECT_EQ(got.source, "shop");
  EXPECT_EQ(got.category, "math");
  EXPECT_EQ(got.id, read_text(kGood).kept.at(0).id);
  EXPECT_EQ(read_text(kGood).kept.at(0).source, "rows");  // the file's stem
  EXPECT_EQ(got.id.size(), 32u);
}

TEST(Conversations, TextPartsToolsAndSystemKeysAreUnderstood) {
  const Conversation got =
      read_text(
          R"({"system": "S", "tools": "[{\"type\": \"function\"}]", "messages": [{"role": "human", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},)"
          R"( {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{\"z\": 1, \"a\": 2}"}}]}, {"role": "observation", "content": "r"}]})")
          .kept.at(0);
  EXPECT_EQ(got.messages[0], (ordered_json{{"role", "system"}, {"content", "S"}}));
  EXPECT_EQ(got.messages[1]["content"], "one\ntwo");
  EXPECT_EQ(got.messages[2]["tool_calls"][0]["function"]["arguments"].dump(), R"({"z":1,"a":2})");
  EXPECT_FALSE(got.messages[2].contains("content"));
  EXPECT_EQ(got.messages[3]["role"], "tool");
  EXPECT_EQ(got.tools.dump(), R"([{"type":"function"}])");
}

TEST(Conversations, AThousandRowsInAreAThousandRowsOut) {
  std::string lines, array;
  for (int i = 0; i < 1000; ++i) {
    const std::string row = R"({"messages": [{"role": "user", "content": "q)" + std::to_string(i) +
                            R"("}, {"role": "assistant", "content": "a \"]},{ \\"}]})";
    lines += row + "\n";
    array += (i ? ",\n" : "") + row;
  }
  EXPECT_EQ(read_text(lines).kept.size(), 1000u);
  EXPECT_EQ(read_text("\xef\xbb\xbf \n" + lines).kept.size(), 1000u);
  EXPECT_EQ(read_text(" [" + array + "]\n").kept.size(), 1000u);
  EXPECT_EQ(read_text(lines + "\n\n").rows, 1000);
}

TEST(Conversations, AFaultIsToldInPlainWords) {
  const TemporaryFolder folder;
  ConversationReader reader({folder.write("rows.jsonl", "broken\n")}, {});
  ConversationRow row;
  ASSERT_TRUE(reader.next(row));
  EXPECT_TRUE(row.detail.starts_with("parse error at line 1, column 1: ")) << row.detail;
}

TEST(Conversations, EachBrokenRowIsCountedUnderItsReason) {
  const auto dropped = [](const std::string& row) { return read_text(row + "\n" + kGood + "\n").dropped; };
  EXPECT_EQ(dropped("not json at all"), (Counts{{"not JSON", 1}}));
  EXPECT_EQ(dropped("{\"messages\": "), (Counts{{"not JSON", 1}}));
  EXPECT_EQ(dropped("{\"messages\": \"\xff\"}"), (Counts{{"not JSON", 1}}));
  EXPECT_EQ(dropped("17"), (Counts{{"no messages", 1}}));
  EXPECT_EQ(dropped("{}"), (Counts{{"no messages", 1}}));
  EXPECT_EQ(dropped(R"({"messages": []})"), (Counts{{"no messages", 1}}));
  EXPECT_EQ(dropped(R"({"messages": "x"})"), (Counts{{"no messages", 1}}));
  EXPECT_EQ(dropped(R"({"messages": [{"role": "user", "content": "q"}]})"), (Counts{{"no assistant answer", 1}}));
  EXPECT_EQ(dropped(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": ""}]})"),
            (Counts{{"no assistant answer", 1}}));
  EXPECT_EQ(dropped(R"({"messages": [{"role": "system", "content": "s"}, {"role": "assistant", "content": "a"}]})"),
            (Counts{{"assistant turn first", 1}}));
  EXPECT_EQ(
      dropped(
          R"({"conversations": [{"from": "gpt", "value": "a"}, {"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})"),
      (Counts{{"assistant turn first", 1}}));
  EXPECT_EQ(dropped(R"({"messages": [{"role": "system", "content": "s"}]})"), (Counts{{"no user turn", 1}}));
  EXPECT_EQ(dropped(R"({"messages": [{"content": "q"}]})"), (Counts{{"message without role", 1}}));
  EXPECT_EQ(dropped(R"({"messages": [{"role": "user"}, {"role": "assistant", "content": "a"}]})"),
            (Counts{{"message without content", 1}}));
  EXPECT_EQ(dropped(R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]})"),
            (Counts{{"content is not text", 1}}));
  EXPECT_EQ(dropped(R"({"messages": [{"role": "user", "content": 5}]})"), (Counts{{"content is not text", 1}}));
}

TEST(Conversations, DeepNestingIsRefusedBeforeItIsParsed) {
  const std::string deep = R"({"messages": )" + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_EQ(read_text(deep).dropped, (Counts{{"not JSON", 1}}));
}

TEST(Conversations, ACutFileEndsWithATruncatedRow) {
  for (const std::string& cut : {kGood.substr(0, 20), kGood.substr(0, kGood.size() - 1), std::string("{")}) {
    const Account lines = read_text(kGood + "\n" + cut);
    EXPECT_EQ(lines.kept.size(), 1u);
    EXPECT_EQ(lines.dropped, (Counts{{"truncated JSON", 1}})) << cut;
    const Account array = read_text("[" + kGood + ", " + cut);
    EXPECT_EQ(array.kept.size(), 1u);
    EXPECT_EQ(array.dropped, (Counts{{"truncated JSON", 1}})) << cut;
  }
  EXPECT_EQ(read_text("[" + kGood).dropped, (Counts{{"truncated JSON", 1}}));
  EXPECT_EQ(read_text("[" + kGood + "] {}").dropped, (Counts{{"not JSON", 1}}));
  EXPECT_EQ(read_text("[]").rows, 0);
}

TEST(Conversations, PlacesOfBrokenRowsAreTheirLines) {
  const Account account = read_text("\n" + kGood + "\n\nbroken\n");
  ASSERT_EQ(account.places.size(), 1u);
  EXPECT_TRUE(account.places[0].ends_with("rows.jsonl:4")) << account.places[0];
}

TEST(Conversations, AnUnknownRoleIsAnErrorThatSaysHowToMapIt) {
  const std::string row = R"({"messages": [{"role": "user", "content": "q"}, {"role": "laguna_s", "content": "a"}]})";
  const std::string message = message_of([&] { read_text(kGood + "\n" + row); });
  EXPECT_CONTAINS(message, "rows.jsonl:2: unknown role \"laguna_s\"");
  EXPECT_CONTAINS(message, "--role-map laguna_s=assistant");
  EXPECT_EQ(read_text(row, {true, {{"laguna_s", "assistant"}}}).kept.at(0).id, read_text(kGood).kept.at(0).id);
  EXPECT_EQ(read_text(row, {true, {{"laguna_s", "drop"}}}).dropped, (Counts{{"role dropped on request", 1}}));
  EXPECT_CONTAINS(message_of([&] { read_text(row, {true, {{"laguna_s", "robot"}}}); }), "cannot become \"robot\"");
}

TEST(Conversations, PromptsNeedNoAnswer) {
  const std::string row = R"({"messages": [{"role": "user", "content": "q"}]})";
  EXPECT_EQ(read_text(row, {false, {}}).kept.size(), 1u);
  EXPECT_EQ(read_text(row, {true, {}}).kept.size(), 0u);
}

TEST(Conversations, FilesThatAreNoRowsAtAllAreErrors) {
  const TemporaryFolder folder;
  EXPECT_CONTAINS(message_of([&] { read({folder.write("empty.jsonl", "")}); }), "empty.jsonl: the file is empty");
  EXPECT_CONTAINS(message_of([&] { read({folder.write("blank.jsonl", " \n\n")}); }), "blank.jsonl: the file is empty");
  EXPECT_CONTAINS(message_of([&] { read({folder.file("absent.jsonl")}); }), "absent.jsonl: no such file");
  EXPECT_CONTAINS(message_of([&] { read({folder.path().string()}); }), "is a folder");
  EXPECT_CONTAINS(message_of([&] { read({folder.write("p.parquet", "PAR1xxxxxxxx")}); }), "Parquet");
  EXPECT_CONTAINS(message_of([&] { read({folder.write("z.jsonl.gz", "\x1f\x8b\x08xxxxx")}); }), "compressed");
}

}  // namespace
}  // namespace draftsmith
