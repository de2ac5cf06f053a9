#include "train/report_command.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "launch/check.h"
#include "launch/file.h"
#include "launch/log.h"
#include "launch/ranks.h"
#include "launch/summary.h"
#include "train/report.h"

namespace draftsmith {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

struct Arguments {
  std::vector<std::string> runs;
  std::string evaluation, served, output = "report.html", json;
};

// A step that was left out (no runtime could be installed) leaves no file: the page says so, and so does a warning.
ordered_json optional_json(const std::string& path, const char* option) {
  if (path.empty()) return nullptr;
  if (!fs::exists(path)) {
    warn("{} {}: is not there; the page says that it was not given", option, path);
    return nullptr;
  }
  ordered_json json = ordered_json::parse(read_file(path), nullptr, false);
  DS_CHECK(json.is_object(), "{} {}: is not a JSON object", option, path);
  return json;
}

void run(const Arguments& arguments) {
  require_single_rank("report");
  DS_CHECK(!arguments.runs.empty() || !arguments.evaluation.empty(), "report: give a run folder or --evaluation");
  ReportInput input;
  for (const std::string& folder : arguments.runs) input.runs.push_back(read_metrics(folder));
  input.evaluation = optional_json(arguments.evaluation, "--evaluation");
  input.served = optional_json(arguments.served, "--served");
  const std::string page = report_page(input);
  write_file(arguments.output, page);
  say("wrote", "{}  {}", arguments.output, short_bytes(static_cast<double>(page.size())));
  Summary summary;
  summary.command = "report";
  summary.json_file = arguments.json;
  summary.facts["output"] = arguments.output;
  summary.facts["runs"] = arguments.runs;
  summary.facts["with_evaluation"] = !input.evaluation.is_null();
  summary.facts["with_served"] = !input.served.is_null();
  summary.finish();
}

}  // namespace

void add_report_command(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("report", "runs, an evaluation and what a runtime served -> one self-contained HTML page");
  command->footer("Example:\n  draftsmith report runs/first --evaluation evaluation.json --output report.html");
  command->add_option("runs", arguments->runs, "run folders of draftsmith train");
  command->add_option("--evaluation", arguments->evaluation, "evaluation.json of draftsmith evaluate");
  command->add_option("--served", arguments->served, "served.json of tests/clients/serve_llama_cpp.py");
  command->add_option("--output", arguments->output, "page to write")->capture_default_str();
  command->add_option("--json", arguments->json, "summary as JSON");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace draftsmith
