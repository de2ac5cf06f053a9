#include "train/report.h"

#include <gtest/gtest.h>

#include <filesystem>

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
