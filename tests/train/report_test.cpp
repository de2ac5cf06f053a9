#include "train/report.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "export/evaluation_file.h"
#include "export/open_drafter.h"
#include "launch/check.h"
#include "launch/file.h"
#include "tests/export/tiny_model.h"
#include "train/chart.h"

namespace draftsmith {
namespace {

using nlohmann::ordered_json;

ordered_json evaluation() {
  ordered_json out = ordered_json::parse(
      R"({"tau": 2.5, "speedup": 1.61, "outputs_total": 3, "outputs_identical": 3, "break_even_tau": 1.4,
    "acceptance_by_position": [0.75, 0.5], "accepted_length_histogram": [1, 1, 2], "by_category": {"sums": {"tau": 2.5, "outputs_total": 3}}})");
  for (const auto& [id, tau] : {std::pair{"low", 1.0}, {"high", 3.0}, {"middle", 2.0}}) {
    out["rows"].push_back({{"id", id},
                           {"category", "sums"},
                           {"prompt", "<b>&"},
                           {"tau", tau},
                           {"pieces", ordered_json::parse(R"([["one <two>", 1], [" three", 2]])")}});
  }
  return out;
}

TEST(Report, PageIsSelfContained) {
  const std::string page = report_page({{}, evaluation(), nullptr});
  for (const char* outside : {"<script", "http:", "https:", "<link", "@import", "url("}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  EXPECT_NE(page.find("<svg"), std::string::npos);
}

TEST(Report, ShowsTheFiguresItWasGivenAndSaysWhatIsMissing) {
  const std::string page = report_page({{}, evaluation(), nullptr});
  for (const char* text : {"1.61x", "3 of 3", "75 %", "Not served"})
    EXPECT_NE(page.find(text), std::string::npos) << text;
  EXPECT_NE(report_page({{}, nullptr, ordered_json{{"tau", 2.0}}}).find("Not evaluated"), std::string::npos);
}

TEST(Report, TextOfTheModelCannotBecomeMarkup) {
  const std::string page = report_page({{}, evaluation(), nullptr});
  EXPECT_EQ(page.find("<two>"), std::string::npos);
  EXPECT_NE(page.find("one &lt;two&gt;"), std::string::npos);
  EXPECT_NE(page.find("&lt;b&gt;&amp;"), std::string::npos);
}

TEST(Report, ExampleOfAKindIsTheOneWithTheMiddleTau) {
  const std::string page = report_page({{}, evaluation(), nullptr});
  EXPECT_NE(page.find("<header>middle"), std::string::npos);
  EXPECT_EQ(page.find("<header>high"), std::string::npos);
}

TEST(Report, TornLastLineOfAKilledRunIsPassedOverAndAnyOtherIsAnError) {
  testing::TemporaryFolder folder;
  const std::string whole = "{\"step\": 1, \"loss\": 3.0}\n{\"step\": 1, \"validation\": true, \"tau\": 1.2}\n";
  write_file(folder / "metrics.jsonl", whole + "{\"step\": 2, \"lo");
  const RunMetrics metrics = read_metrics(folder / "");
  EXPECT_EQ(metrics.steps.size(), 1U);
  EXPECT_EQ(metrics.validations.size(), 1U);
  write_file(folder / "metrics.jsonl", "{\"step\": 2, \"lo\n" + whole);
  EXPECT_THROW(read_metrics(folder / ""), Error);
  write_file(folder / "metrics.jsonl", "");
  EXPECT_THROW(read_metrics(folder / ""), Error);
  EXPECT_THROW(read_metrics(folder / "nowhere"), Error);
}

ordered_json served() {
  return ordered_json::parse(
      R"({"tau": 2.0, "tau_draftsmith": 2.0, "tokens_per_second_plain": 10, "tokens_per_second_speculative": 20.5,
    "identical": 3, "identical_to_draftsmith": 3, "outputs_total": 3, "threads": 1, "target": "target-f16.gguf"})");
}

// A run with a checkpoint, and an evaluation of it.
class ReportOfRun : public ::testing::Test {
 protected:
  ReportOfRun() : target(load_target(testing::write_tiny_target(folder / "target"))) {
    const std::string checkpoint = folder / "run/checkpoints/step-4";
    save_drafter(*testing::tiny_drafter(*target, testing::tiny_drafter_config()), {target->weight_hash(), "", ""},
                 checkpoint);
    write_file(folder / "run/metrics.jsonl", "{\"step\": 1, \"loss\": 3.0}\n");
    measured = evaluation();
    measured["settings"] = {{"drafter", checkpoint}, {"drafter_hash", drafter_hash(checkpoint)}, {"target_hash", "t"}};
    write("e.json", measured);
    write("served.json", served());
  }
  void write(const std::string& name, const ordered_json& json) const { write_file(folder / name, json.dump()); }
  // Exit status of the command; what it said is in said().
  int report(const std::string& words) const {
    return std::system(fmt::format("cd {} && {} report {} >said 2>&1", folder / "", DRAFTSMITH_PROGRAM, words).c_str());
  }
  std::string said() const { return read_file(folder / "said"); }
  void refused(const std::string& words, const std::string& reason) const {
    EXPECT_NE(report(words), 0) << words;
    EXPECT_NE(said().find(reason), std::string::npos) << words << ": " << said();
  }

  testing::TemporaryFolder folder;
  std::unique_ptr<Target> target;
  ordered_json measured;
};

TEST_F(ReportOfRun, IsWrittenAndMayReplaceItself) {
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(report("run --evaluation e.json --served served.json --output page.html --json summary.json"), 0)
        << said();
  EXPECT_CONTAINS(read_file(folder / "page.html"), "target-f16.gguf");
}

TEST_F(ReportOfRun, EvaluationOfAnotherDrafterIsRefused) {
  measured["settings"]["drafter_hash"] = "0123abc";
  write("e.json", measured);
  refused("run --evaluation e.json", "0123abc");
  EXPECT_CONTAINS(said(), "no checkpoint of run");
  EXPECT_FALSE(std::filesystem::exists(folder / "report.html"));
  EXPECT_EQ(report("--evaluation e.json"), 0) << said();  // without a run there is nothing to compare with
  measured["settings"]["exported_from"] = drafter_hash(folder / "run/checkpoints/step-4");
  write("e.json", measured);
  EXPECT_EQ(report("run --evaluation e.json"), 0) << said();
}

TEST_F(ReportOfRun, WhatIsNoEvaluationOrNotThereIsRefusedWithTheKey) {
  refused("run --evaluation served.json", "is no evaluation.json: `");
  refused("run --evaluation e.json --served e.json", "is no served.json: `");
  refused("run --evaluation run/metrics.jsonl", "is no evaluation.json: `tau`");
  refused("run --evaluation nowhere.json", "--evaluation nowhere.json: is not there");
  refused("run --evaluation e.json --served nowhere.json", "--served nowhere.json: is not there");
}

TEST_F(ReportOfRun, OutputsNeverReplaceInputsOrWhatIsNoPage) {
  write_file(folder / "notes.html", "<html>mine</html>");
  refused("run --evaluation e.json --output e.json", "--output");
  refused("run --evaluation e.json --output notes.html", "no page of draftsmith report");
  refused("run --evaluation e.json --output run", "--output");
  refused("run --evaluation e.json --output new.html --json e.json", "--json");
  refused("run --evaluation e.json --output new.html --json new.html", "--json");
  EXPECT_EQ(read_file(folder / "notes.html"), "<html>mine</html>");
  EXPECT_EQ(ordered_json::parse(read_file(folder / "e.json")), measured);
}

TEST(Chart, LongRunsAreDrawnWithFewPoints) {
  Series series{"loss", {}, false};
  for (int i = 0; i < 100000; ++i) series.points.emplace_back(i, 1.0 / (1 + i));
  EXPECT_LT(line_chart({"t", "x", "y"}, {series}).size(), 40000U);
}

TEST(Chart, ConstantSeriesHasARange) {
  const std::string chart = line_chart({"t", "x", "y"}, {{"flat", {{1, 2}, {2, 2}}, true}});
  EXPECT_EQ(chart.find("nan"), std::string::npos);
  EXPECT_EQ(chart.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace draftsmith
