// The commands as a person calls them.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/export/tiny_model.h"

namespace draftsmith {

namespace fs = std::filesystem;

namespace {

class ExportCommand : public ::testing::Test {
 protected:
  ExportCommand() {
    testing::write_tiny_target(folder / "target");
    const auto target = load_target(folder / "target");
    save_drafter(*testing::tiny_drafter(*target, testing::tiny_drafter_config()), {target->weight_hash(), "", ""},
                 made("drafter"));
    DrafterConfig longer = testing::tiny_drafter_config(1, 7);
    save_drafter(*testing::tiny_drafter(*target, longer), {target->weight_hash(), "", ""}, made("other"));
    write_file(folder / "prompts.jsonl",
               "{\"id\": \"one\", \"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]}\nnot json\n"
               "{\"messages\": [{\"role\": \"user\", \"content\": \"two\"}, {\"role\": \"assistant\", \"content\": "
               "\"dropped\"}]}\n");
  }
  std::string made(const std::string& name) const {
    fs::create_directories(folder / name);
    return folder / name;
  }
  // Exit status; what the command said is in said().
  int draftsmith(const std::string& words) const {
    return std::system(fmt::format("{} {} >{} 2>&1", DRAFTSMITH_PROGRAM, words, folder / "said").c_str());
  }
  std::string said() const { return read_file(folder / "said"); }
  int evaluate(const std::string& more) const {
    return draftsmith(fmt::format("evaluate --target {} --drafter {} --prompts {} {}", folder / "target",
                                  folder / "drafter", folder / "prompts.jsonl", more));
  }
  int do_export(const std::string& drafter, const std::string& format, const std::string& more = "") const {
    return draftsmith(fmt::format("export --drafter {} --target {} --for {} --output {} {}", folder / drafter,
                                  folder / "target", format, folder / "out", more));
  }

  testing::TemporaryFolder folder;
};

TEST_F(ExportCommand, FolderNamesItsFilesHashesProofAndServeCommand) {
  ASSERT_EQ(do_export("drafter", "llama.cpp", "--with-target q8_0"), 0) << said();
  const auto facts = nlohmann::ordered_json::parse(read_file(folder / "out/export.json"));
  EXPECT_TRUE(facts["complete"].get<bool>());
  for (const auto& file : facts["files"]) {
    EXPECT_EQ(file["sha256"], sha256_file(folder / ("out/" + file["name"].get<std::string>())));
  }
  EXPECT_NE(said().find("--spec-draft-n-max 4"), std::string::npos) << said();
  const std::string card = read_file(folder / "out/README.md");
  EXPECT_NE(card.find(facts["drafter_hash"].get<std::string>()), std::string::npos);
  EXPECT_NE(card.find("--spec-draft-n-max 4"), std::string::npos);
}

TEST_F(ExportCommand, IsRepeatableButNeverReplacesAnotherExport) {
  ASSERT_EQ(do_export("drafter", "zlab"), 0) << said();
  EXPECT_EQ(do_export("drafter", "zlab"), 0) << said();
  EXPECT_NE(do_export("other", "zlab"), 0);
  EXPECT_NE(said().find("another folder"), std::string::npos) << said();
  EXPECT_NE(do_export("drafter", "llama.cpp"), 0);
}

TEST_F(ExportCommand, FolderOfSomethingElseIsLeftAlone) {
  made("out");
  write_file(folder / "out/notes.txt", "mine");
  EXPECT_NE(do_export("drafter", "zlab"), 0);
  EXPECT_FALSE(fs::exists(folder / "out/model.safetensors"));
}

TEST_F(ExportCommand, UnknownFormatAndMisplacedOptionsAreErrors) {
  EXPECT_NE(do_export("drafter", "ollama"), 0);
  EXPECT_NE(said().find("zlab, llama.cpp"), std::string::npos) << said();
  EXPECT_NE(do_export("drafter", "zlab", "--with-target f16"), 0);
  EXPECT_NE(do_export("drafter", "zlab", "--dtype float16"), 0);
  EXPECT_NE(do_export("target", "zlab"), 0);
}

TEST_F(ExportCommand, EvaluateTakesExportsOfBothFormatsAndAccountsForEveryRow) {
  ASSERT_EQ(do_export("drafter", "zlab"), 0) << said();
  for (const char* drafter : {"drafter", "out"}) {
    ASSERT_EQ(
        draftsmith(fmt::format(
            "evaluate --target {} --drafter {} --prompts {} --max-drop-fraction 0.4 --max-new-tokens 12 --output {} "
            "--json {}",
            folder / "target", folder / drafter, folder / "prompts.jsonl", folder / "e.json", folder / "summary.json")),
        0)
        << said();
    const auto summary = nlohmann::json::parse(read_file(folder / "summary.json"));
    EXPECT_EQ(summary["rows_in"], 3);
    EXPECT_EQ(summary["rows_kept"], 2);
    EXPECT_EQ(summary["rows_dropped"]["not JSON"], 1);
    const auto evaluation = nlohmann::json::parse(read_file(folder / "e.json"));
    EXPECT_EQ(evaluation["outputs_identical"], 2);
    EXPECT_TRUE(evaluation["tau_ngram"].is_null());
    EXPECT_EQ(evaluation["settings"]["drafter_form"], drafter == std::string("out") ? "zlab" : "drafter");
  }
  // The card quotes an evaluation of the same drafter only.
  EXPECT_EQ(do_export("drafter", "zlab", "--evaluation " + (folder / "e.json")), 0) << said();
  EXPECT_NE(read_file(folder / "out/README.md").find("2 of 2"), std::string::npos);
  fs::remove_all(folder / "out");
  EXPECT_NE(do_export("other", "zlab", "--evaluation " + (folder / "e.json")), 0);
}

TEST_F(ExportCommand, OutputsNeverReplaceInputsOrWhatIsNotTheirs) {
  write_file(folder / "notes.txt", "mine");
  const std::string prompts = read_file(folder / "prompts.jsonl");
  const std::string free = folder / "e.json";
  for (const std::string& words :
       {"--output " + (folder / "prompts.jsonl"), "--output " + (folder / "notes.txt"),
        "--output " + (folder / "target"), "--output " + (folder / "target/config.json"),
        "--output " + free + " --json " + (folder / "prompts.jsonl"), "--output " + free + " --json " + free}) {
    EXPECT_NE(evaluate(words + " --max-drop-fraction 0.4"), 0) << words;
    EXPECT_NE(said().find(words.find("--json") == std::string::npos ? "--output" : "--json"), std::string::npos)
        << said();
  }
  EXPECT_EQ(read_file(folder / "prompts.jsonl"), prompts);
  EXPECT_EQ(read_file(folder / "notes.txt"), "mine");
  EXPECT_FALSE(fs::exists(folder / "e.json"));
}

TEST_F(ExportCommand, LooksAtItsPlacesBeforeItLoadsTheTarget) {
  fs::remove(folder / "target/model.safetensors");
  made("full");
  write_file(folder / "full/notes.txt", "mine");
  const auto refused = [&](const std::string& words, const std::string& reason) {
    EXPECT_NE(draftsmith(fmt::format("export --drafter {} --target {} --for zlab {}", folder / "drafter",
                                     folder / "target", words)),
              0);
    EXPECT_NE(said().find(reason), std::string::npos) << words << ": " << said();
  };
  refused("--output " + (folder / "full"), "holds no export");
  refused("--output " + (folder / "full/notes.txt"), "is a file");
  refused("--output " + (folder / "target"), "the folder of --target");
  refused("--output " + (folder / "target/../drafter"), "the folder of --drafter");
  refused("--output " + (folder / "out") + " --json " + (folder / "out/model.safetensors"), "--json");
  refused("--output " + (folder / "out") + " --json " + (folder / "full"), "--json");
  refused("--output " + (folder / "out") + " --evaluation " + (folder / "prompts.jsonl"), "is no evaluation.json");
  refused("--output " + (folder / "out"), "model.safetensors");  // now the target itself
}

TEST_F(ExportCommand, ServeCommandsOfPathsWithSpacesAreQuotedInOutputAndCard) {
  fs::rename(folder / "target", folder / "my target");
  ASSERT_EQ(draftsmith(fmt::format("export --drafter {} --target '{}' --for llama.cpp --with-target f16 --output '{}'",
                                   folder / "drafter", folder / "my target", folder / "my export")),
            0)
      << said();
  const std::string command = fmt::format("llama-server -m '{}' -md '{}'", folder / "my export/target-f16.gguf",
                                          folder / "my export/draft.gguf");
  EXPECT_NE(said().find(command), std::string::npos) << said();
  EXPECT_NE(read_file(folder / "my export/README.md").find(command), std::string::npos);
}

TEST_F(ExportCommand, EvaluationOfAnExportIsOneOfTheDrafterItWasMadeOf) {
  ASSERT_EQ(do_export("drafter", "llama.cpp", "--dtype float16"), 0) << said();
  ASSERT_EQ(draftsmith(fmt::format("evaluate --target {} --drafter {} --prompts {} --max-drop-fraction 0.4 "
                                   "--max-new-tokens 6 --output {}",
                                   folder / "target", folder / "out", folder / "prompts.jsonl", folder / "e.json")),
            0)
      << said();
  const auto settings = nlohmann::json::parse(read_file(folder / "e.json"))["settings"];
  EXPECT_EQ(settings["exported_from"], nlohmann::json::parse(read_file(folder / "out/export.json"))["drafter_hash"]);
  EXPECT_NE(settings["exported_from"], settings["drafter_hash"]);
  EXPECT_EQ(do_export("drafter", "llama.cpp", "--dtype float16 --evaluation " + (folder / "e.json")), 0) << said();
}

TEST_F(ExportCommand, TooManyUnusableRowsEndAnEvaluation) {
  EXPECT_NE(evaluate("--output " + (folder / "e.json")), 0);
  EXPECT_NE(said().find("--max-drop-fraction 0.1"), std::string::npos) << said();
  EXPECT_FALSE(fs::exists(folder / "e.json"));
  // Rows that are left out on purpose, or stand twice, are usable ones.
  std::string rows;
  for (const char* word : {"one", "two", "one", "three", "two", "four", "one"})
    rows += fmt::format("{{\"messages\": [{{\"role\": \"user\", \"content\": \"{}\"}}]}}\n", word);
  write_file(folder / "prompts.jsonl", rows);
  EXPECT_EQ(evaluate("--max-drop-fraction 0 --limit 2 --max-new-tokens 4 --output " + (folder / "e.json")), 0)
      << said();
}

TEST_F(ExportCommand, SamplingThatCannotBeOrHasNoEffectIsRefusedBeforeLoading) {
  fs::remove(folder / "target/model.safetensors");
  const auto refused = [&](const std::string& words, const std::string& reason) {
    EXPECT_NE(evaluate(words + " --output " + (folder / "e.json")), 0);
    EXPECT_NE(said().find(reason), std::string::npos) << words << ": " << said();
  };
  refused("--top-p 0.9", "have no effect at temperature 0");
  refused("--top-k 5", "have no effect at temperature 0");
  refused("--temperature nan", "--temperature");
  refused("--temperature inf", "--temperature");
  refused("--temperature=-1", "--temperature");
  refused("--temperature 1 --top-p nan", "--top-p");
  refused("--temperature 1 --top-p 0", "--top-p");
  refused("--temperature 1 --top-k=-1", "--top-k");
  refused("--max-new-tokens 1", "2 or more");
}

TEST_F(ExportCommand, HelpOfEvaluateNamesEveryExportFormat) {
  ASSERT_EQ(draftsmith("evaluate --help"), 0);
  std::string words;  // the help breaks lines where it likes
  for (const char c : said())
    if (c != ' ' && c != '\n') words += c;
  EXPECT_NE(words.find("(zlab,llama.cpp)"), std::string::npos) << said();
}

TEST_F(ExportCommand, SpeculativeRuleWithoutTemperatureIsRefused) {
  EXPECT_NE(draftsmith(fmt::format("evaluate --target {} --drafter {} --prompts {} --rule speculative --output {}",
                                   folder / "target", folder / "drafter", folder / "prompts.jsonl", folder / "e.json")),
            0);
  EXPECT_NE(said().find("--temperature"), std::string::npos) << said();
}

}  // namespace
}  // namespace draftsmith
