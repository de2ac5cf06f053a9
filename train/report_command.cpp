#include "train/report_command.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "export/evaluation_file.h"
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

// Before anything is read or written.
void check_arguments(const Arguments& arguments) {
  DS_CHECK(!arguments.runs.empty() || !arguments.evaluation.empty(), "report: give a run folder or --evaluation");
  std::vector<fs::path> inputs;
  for (const auto& [path, option] :
       {std::pair(arguments.evaluation, "--evaluation"), std::pair(arguments.served, "--served")}) {
    if (path.empty()) continue;
    DS_CHECK(fs::exists(path), "{} {}: is not there; without the option the page says that nothing was given", option,
             path);
    inputs.emplace_back(path);
  }
  check_output(arguments.output, inputs, "--output");
  check_replaces_page(arguments.output);
  if (arguments.json.empty()) return;
  inputs.emplace_back(arguments.output);
  check_output(arguments.json, inputs, "--json");
}

void run(const Arguments& arguments) {
  require_single_rank("report");
  check_arguments(arguments);
  ReportInput input;
  for (const std::string& folder : arguments.runs) input.runs.push_back(read_metrics(folder));
  if (!arguments.evaluation.empty()) {
    input.evaluation = read_evaluation(arguments.evaluation);
    if (!arguments.runs.empty()) check_evaluation_of(input.evaluation, arguments.evaluation, arguments.runs);
  }
  if (!arguments.served.empty()) input.served = read_served(arguments.served);
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
