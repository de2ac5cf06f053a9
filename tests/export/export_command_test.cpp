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
            "evaluate --target {} --drafter {} --prompts {} --max-new-tokens 12 --output {} --json {}",
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

TEST_F(ExportCommand, SpeculativeRuleWithoutTemperatureIsRefused) {
  EXPECT_NE(draftsmith(fmt::format("evaluate --target {} --drafter {} --prompts {} --rule speculative --output {}",
                                   folder / "target", folder / "drafter", folder / "prompts.jsonl", folder / "e.json")),
            0);
  EXPECT_NE(said().find("--temperature"), std::string::npos) << said();
}

}  // namespace
}  // namespace draftsmith
