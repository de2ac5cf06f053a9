// The command as a whole: the corpus it writes, the account it gives, and every way its input can be bad.
#include "data/prepare_command.h"

#include "data/corpus.h"
#include "tests/data/text_fixture.h"

namespace draftsmith {
namespace {

using nlohmann::ordered_json;
using testing::golden;
using testing::message_of;
using testing::named_template;
using testing::TemporaryFolder;
using testing::TinyTarget;

std::string chat(const std::string& question, const std::string& answer) {
  return ordered_json{
             {"messages", {{{"role", "user"}, {"content", question}}, {{"role", "assistant"}, {"content", answer}}}}}
             .dump() +
         "\n";
}

// Runs `prepare` on `rows` in a folder of its own.
class Prepare : public ::testing::Test {
 protected:
  Summary run(const std::string& rows) {
    options.inputs = {folder.write("rows.jsonl", rows)};
    options.output = folder.file("out/corpus.h5");
    if (options.target.empty()) options.target = golden("text_tiny");
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    try {
      const Summary summary = prepare(options);
      summary.finish();
      output = ::testing::internal::GetCapturedStdout();
      warnings = ::testing::internal::GetCapturedStderr();
      return summary;
    } catch (...) {
      output = ::testing::internal::GetCapturedStdout();
      warnings = ::testing::internal::GetCapturedStderr();
      throw;
    }
  }
  bool written() const { return std::filesystem::exists(options.output); }

  TemporaryFolder folder;
  PrepareOptions options;
  std::string output, warnings;
};

TEST_F(Prepare, AccountsForEveryRowAndWritesTheRest) {
  const Summary summary =
      run(chat("hello", "world") + chat("hello", "world") + "broken\n" + chat("is it sunny?", "it is") +
          R"({"messages": [{"role": "user", "content": "q"}]})" + "\n" + chat("a", "b"));
  EXPECT_EQ(summary.rows_in, 6);
  EXPECT_EQ(summary.rows_kept, 3);
  EXPECT_EQ(summary.dropped,
            (std::map<std::string, int64_t>{{"duplicate", 1}, {"not JSON", 1}, {"no assistant answer", 1}}));
  const Corpus corpus = Corpus::open(options.output);
  EXPECT_EQ(corpus.rows(), 3);
  EXPECT_EQ(summary.facts["corpus_id"], corpus.id());
  EXPECT_EQ(summary.facts["tokens"], corpus.tokens());
  EXPECT_EQ(summary.facts["turns"], 3);
  EXPECT_EQ(corpus.dropped()["duplicate"], 1);
  EXPECT_EQ(corpus.row(0).source, "rows");
  EXPECT_CONTAINS(warnings, "rows.jsonl:3");
  EXPECT_CONTAINS(output, "3 of 6 rows");
  const Tokenizer tokenizer = Tokenizer::load(golden("text_tiny"));
  const CorpusRow row = corpus.row(1);
  EXPECT_EQ(tokenizer.decode({row.tokens.begin(), row.tokens.end()}, false),
            "<|im_start|>user\nis it sunny?<|im_end|>\n<|im_start|>assistant\nit is<|im_end|>\n");
}

TEST_F(Prepare, TheSameInputGivesTheSameFileContent) {
  std::string rows;
  for (int i = 0; i < 700; ++i) rows += chat("question " + std::to_string(i), "answer " + std::to_string(i));
  const auto first = run(rows).facts["corpus_id"];
  EXPECT_EQ(Corpus::open(options.output).rows(), 700);
  EXPECT_EQ(run(rows).facts["corpus_id"], first);
  options.chat.mask = MaskMode::as_template;
  EXPECT_NE(run(rows).facts["corpus_id"], first);
}

TEST_F(Prepare, ALongAnswerIsCutAndCounted) {
  options.max_length = 30;
  std::string answer;
  for (int i = 0; i < 50; ++i) answer += " hello world";
  const Summary summary = run(chat("a", answer) + chat("a", "b"));
  EXPECT_EQ(summary.rows_kept, 2);
  EXPECT_EQ(summary.facts["samples_cut"], 1);
  const Corpus corpus = Corpus::open(options.output);
  EXPECT_EQ(corpus.length(0), 30);
  EXPECT_EQ(corpus.row(0).mask.back(), 1);
}

TEST_F(Prepare, ARowWithNothingSupervisedLeftAfterTheCutIsDropped) {
  options.max_length = 30;
  std::string question;
  for (int i = 0; i < 50; ++i) question += " hello world";
  const Summary summary = run(chat(question, "b") + chat("a", "b"));
  EXPECT_EQ(summary.dropped.at("no supervised token within the maximum length"), 1);
  EXPECT_EQ(summary.facts["samples_lost_to_cut"], 1);
  EXPECT_EQ(summary.rows_kept, 1);
}

TEST_F(Prepare, NothingLeftIsAnErrorThatNamesTheReasons) {
  const std::string message = message_of([&] { run("broken\n{}\n"); });
  EXPECT_CONTAINS(message, "no row of 2 is left");
  EXPECT_CONTAINS(message, "not JSON: ");
  EXPECT_CONTAINS(message, "rows.jsonl:2");
  EXPECT_FALSE(written());
}

TEST_F(Prepare, TooManyDroppedRowsFailTheCommand) {
  const std::string rows = chat("a", "b") + "broken\nbroken too\n";
  const std::string message = message_of([&] { run(rows); });
  EXPECT_CONTAINS(message, "66.7 % of the rows were dropped, at most 50.0 % may be");
  EXPECT_CONTAINS(message, "--max-drop-fraction");
  EXPECT_FALSE(written());
  options.max_drop_fraction = 0.7;
  EXPECT_EQ(run(rows).rows_kept, 1);
}

TEST_F(Prepare, AnEmptyFileIsAnErrorBeforeAnythingElse) {
  options.target = "no such target";
  EXPECT_CONTAINS(message_of([&] { run(""); }), "rows.jsonl: the file is empty");
}

TEST_F(Prepare, AnUnknownRoleIsAnErrorAndAMapHelps) {
  const std::string rows = R"({"messages": [{"role": "user", "content": "q"}, {"role": "laguna_s", "content": "a"}]})";
  EXPECT_CONTAINS(message_of([&] { run(rows); }), "--role-map laguna_s=assistant");
  EXPECT_FALSE(written());
  options.read.role_map = {{"laguna_s", "assistant"}};
  EXPECT_EQ(run(rows).rows_kept, 1);
}

TEST_F(Prepare, ATemplateThatRaisesDropsTheRowAndSaysWhy) {
  const TinyTarget target("{% if messages[0].content == 'bad' %}{{ raise_exception('no bad rows here') }}{% endif %}" +
                          named_template("chatml"));
  options.target = target.folder();
  const Summary summary = run(chat("bad", "b") + chat("good", "b"));
  EXPECT_EQ(summary.dropped.at("template raised an error"), 1);
  EXPECT_CONTAINS(warnings, "no bad rows here");
  EXPECT_CONTAINS(message_of([&] { run(chat("bad", "c")); }), "no bad rows here");
}

TEST_F(Prepare, ATokenizerWithoutTemplateIsAnError) {
  const TinyTarget target("");
  options.target = target.folder();
  EXPECT_CONTAINS(message_of([&] { run(chat("a", "b")); }),
                  "has no chat template; write the one the target is served with to");
}

TEST_F(Prepare, ATokenOutsideTheEmbeddingIsAnErrorWithBothNumbers) {
  const TinyTarget target(named_template("chatml"));
  options.target = target.folder();
  target.write("config.json", R"({"vocab_size": 20})");
  EXPECT_CONTAINS(message_of([&] { run(chat("a", "b")); }), "but config.json says vocab_size 20");
  EXPECT_FALSE(written());
  target.write("config.json", R"({"vocab_size": 1000000})");
  EXPECT_EQ(run(chat("a", "b")).rows_kept, 1);
}

TEST_F(Prepare, AMaskThatCannotBeExactNamesTheRowOfTheFile) {
  const TinyTarget target(
      "{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}{% if add_generation_prompt %}answer:{% endif "
      "%}");
  options.target = target.folder();
  EXPECT_CONTAINS(message_of([&] { run(chat("a", "b")); }), "rows.jsonl:1: row ");
  EXPECT_FALSE(written());
}

TEST_F(Prepare, RewrittenHistoryGivesSeveralSamplesOfOneRow) {
  const TinyTarget target(named_template("thinking"));
  options.target = target.folder();
  const Summary summary = run(
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})");
  EXPECT_EQ(summary.rows_kept, 1);
  EXPECT_EQ(summary.facts["samples"], 2);
  const Corpus corpus = Corpus::open(options.output);
  EXPECT_EQ(corpus.row_id(1), corpus.row_id(0) + "-1");
  EXPECT_EQ(conversation_of(corpus.row_id(1)), corpus.row_id(0));
}

TEST_F(Prepare, SwitchesOfTheTemplateChangeTheCorpus) {
  const TinyTarget target(named_template("thinking"));
  options.target = target.folder();
  const auto on = run(chat("a", "b")).facts;
  options.chat.variables["enable_thinking"] = false;
  const auto off = run(chat("a", "b")).facts;
  EXPECT_NE(on["corpus_id"], off["corpus_id"]);
  EXPECT_EQ(off["template_switches"]["variables"]["enable_thinking"], false);
  EXPECT_EQ(on["template_hash"], off["template_hash"]);
}

TEST_F(Prepare, ShowPrintsAsManySamplesAsAsked) {
  options.show = 1;
  run(chat("a", "b") + chat("c", "d"));
  EXPECT_CONTAINS(output, "【b·<|im_end|>】");
  EXPECT_EQ(output.find("【d"), std::string::npos);
}

TEST_F(Prepare, TheEndOfACutAnswerIsNotTaught) {
  const auto row = [](const std::string& question, const std::string& reason) {
    ordered_json value = ordered_json::parse(chat(question, "world"));
    value["finish_reason"] = reason;
    return value.dump() + "\n";
  };
  for (const MaskMode mode : {MaskMode::generated, MaskMode::as_template}) {
    options.chat.mask = mode;
    run(row("hello", "stop") + row("goodbye", "length"));
    const Corpus corpus = Corpus::open(options.output);
    const CorpusRow whole = corpus.row(0), cut = corpus.row(1);
    const auto ends = [](const CorpusRow& one) {
      int64_t count = 0;
      for (size_t t = 0; t < one.tokens.size(); ++t) count += one.mask[t] && one.tokens[t] == 2;  // <|im_end|>
      return count;
    };
    EXPECT_EQ(ends(whole), 1);
    EXPECT_EQ(ends(cut), 0);
    EXPECT_EQ(std::count(cut.mask.begin(), cut.mask.end(), 1),
              mode == MaskMode::generated
                  ? std::count(whole.mask.begin(), whole.mask.end(), 1) - 1
                  : std::count(whole.mask.begin(), whole.mask.end(), 1) - 2);  // and the newline behind it
    EXPECT_CONTAINS(output, "1 rows hold an answer that a limit cut");
  }
}

TEST_F(Prepare, SourcesAreCounted) {
  const Summary summary =
      run(R"({"source": "x", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"
          "\n" +
          chat("c", "d"));
  EXPECT_EQ(summary.facts["rows_by_source"]["x"], 1);
  EXPECT_EQ(summary.facts["rows_by_source"]["rows"], 1);
}

TEST_F(Prepare, OptionsOutOfRangeAreRefused) {
  options.max_length = 1;
  EXPECT_CONTAINS(message_of([&] { run(chat("a", "b")); }), "--max-length 1");
  options.max_length = 100;
  options.max_drop_fraction = 1.5;
  EXPECT_CONTAINS(message_of([&] { run(chat("a", "b")); }), "--max-drop-fraction 1.5");
}

TEST_F(Prepare, AnUnwritableFolderIsFoundBeforeTheWork) {
  options.inputs = {folder.write("rows.jsonl", chat("a", "b"))};
  options.output = folder.write("file", "x") + "/corpus.h5";
  options.target = "no such target";
  EXPECT_CONTAINS(message_of([&] { prepare(options); }), "file: cannot be made as a folder");
}

TEST_F(Prepare, AnInputOrAnotherFileIsNeverReplaced) {
  const std::string rows = folder.write("in.jsonl", chat("a", "b")), notes = folder.write("notes.txt", "mine");
  const TinyTarget target(named_template("chatml"));
  const auto refused = [&](const std::string& output, const std::string& json = "") {
    options.target = target.folder();
    options.inputs = {rows};
    options.output = output;
    options.json = json;
    return message_of([&] { prepare(options); });
  };
  EXPECT_CONTAINS(refused(rows), "--output " + rows + ": is also read");
  EXPECT_CONTAINS(refused(target.file("tokenizer.json")), "is also read");
  EXPECT_CONTAINS(refused(notes), "is no corpus that can be read, so that it is not replaced");
  EXPECT_CONTAINS(refused(folder.path().string()), "is a folder");
  EXPECT_CONTAINS(refused(folder.file("c.h5"), rows), "--json " + rows + ": is also read");
  EXPECT_CONTAINS(refused(folder.file("c.h5"), folder.file("c.h5")), "is also read");
  EXPECT_CONTAINS(refused(folder.file("c.h5"), notes + "/s.json"), "cannot be made as a folder");
  EXPECT_EQ(read_file(rows), chat("a", "b"));
  EXPECT_EQ(read_file(notes), "mine");
  EXPECT_FALSE(std::filesystem::exists(folder.file("c.h5")));
}

TEST_F(Prepare, ACorpusIsReplacedAndThatIsSaid) {
  const auto first = run(chat("a", "b")).facts["corpus_id"];
  EXPECT_EQ(output.find("replaces"), std::string::npos);
  EXPECT_NE(run(chat("c", "d")).facts["corpus_id"], first);
  EXPECT_CONTAINS(output, "replaces ");
  EXPECT_CONTAINS(message_of([&] { run("broken\n"); }), "no row of 1 is left");
  EXPECT_EQ(Corpus::open(options.output).rows(), 1);  // the former one is still there
}

TEST_F(Prepare, ADateIsADayOfTheCalendar) {
  for (const char* date : {"2025-02-30", "2025-13-01", "31.1.2025", "2025-1-3", "today", "2025-01-31T25:00:00"}) {
    options.chat.date = date;
    EXPECT_CONTAINS(message_of([&] { run(chat("a", "b")); }), std::string("--date ") + date);
  }
  for (const char* date : {"2024-02-29", "2025-01-31T12:00:00"}) {
    options.chat.date = date;
    EXPECT_EQ(run(chat("a", "b")).rows_kept, 1);
  }
}

TEST(PrepareCommand, NumbersThatOverflowOrAreNegativeAreRefused) {
  const TemporaryFolder folder;
  const TinyTarget target(named_template("chatml"));
  const std::string rows = folder.write("rows.jsonl", chat("a", "b"));
  for (const std::string option : {"--max-length 99999999999999999999", "--max-length -5", "--show -1",
                                   "--show 99999999999999999999", "--max-length 1e3"}) {
    CLI::App app;
    add_prepare_command(app);
    EXPECT_THROW(app.parse("prepare --target " + target.folder() + " --input " + rows + " --output " +
                           folder.file("c.h5") + " " + option),
                 CLI::ValidationError)
        << option;
    EXPECT_FALSE(std::filesystem::exists(folder.file("c.h5")));
  }
}

TEST(PrepareCommand, TakesItsOptionsFromTheCommandLine) {
  const TemporaryFolder folder;
  const TinyTarget target(named_template("thinking"));
  CLI::App app;
  add_prepare_command(app);
  const std::string rows = folder.write(
      "rows.jsonl", R"({"messages": [{"role": "user", "content": "a"}, {"role": "narrator", "content": "b"}]})");
  ::testing::internal::CaptureStdout();
  app.parse("prepare --target " + target.folder() + " --input " + rows + " --output " + folder.file("c.h5") +
            " --role-map narrator=assistant --template-variable enable_thinking=false --mask template --json " +
            folder.file("s.json"));
  ::testing::internal::GetCapturedStdout();
  const ordered_json summary = ordered_json::parse(read_file(folder.file("s.json")));
  EXPECT_EQ(summary["rows_kept"], 1);
  EXPECT_EQ(summary["template_switches"].dump(), R"({"variables":{"enable_thinking":false},"mask":"template"})");
  EXPECT_EQ(Corpus::open(folder.file("c.h5")).rows(), 1);
}

}  // namespace
}  // namespace draftsmith
