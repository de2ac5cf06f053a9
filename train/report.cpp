#include "train/report.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "export/evaluation_file.h"
#include "export/open_drafter.h"
#include "launch/check.h"
#include "launch/file.h"
#include "train/chart.h"
#include "train/report_style.h"

namespace draftsmith {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

// Every page begins with it, and by it a page is known.
constexpr const char* kPageStart =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
    "content=\"width=device-width, initial-scale=1\">\n<title>draftsmith: ";

double number(const ordered_json& json, const char* key) {
  return json.contains(key) && json[key].is_number() ? json[key].get<double>() : 0;
}

std::string shown(const ordered_json& json, const char* key, const char* unit = "", int digits = 2) {
  if (!json.contains(key) || !json[key].is_number()) return "-";
  return fmt::format("{:.{}f}{}", json[key].get<double>(), digits, unit);
}

std::string tile(const std::string& value, const std::string& name, const std::string& note) {
  return fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span><small>{}</small></div>", escaped(value),
                     escaped(name), escaped(note));
}

std::string identical(const ordered_json& figures) {
  if (!figures.contains("outputs_identical") || !figures["outputs_identical"].is_number()) return "-";
  return fmt::format("{} of {}", figures["outputs_identical"].get<int64_t>(),
                     figures.value("outputs_total", int64_t{0}));
}

std::string tiles(const ReportInput& input) {
  const ordered_json& e = input.evaluation;
  if (e.is_null()) return "";
  std::string out = "<div class=\"tiles\">";
  out += tile(shown(e, "speedup", "x"), "speed-up",
              "plain and speculative decoding in one engine and run, prefill included in both");
  out += tile(shown(e, "tau"), "tau",
              fmt::format("tokens per target forward, bonus included; break-even {}, n-gram table {}",
                          shown(e, "break_even_tau"), shown(e, "tau_ngram")));
  out += tile(identical(e), "outputs identical", "token by token, to plain decoding of the target");
  out += tile(shown(e, "tokens_per_second_speculative", "", 1), "tokens per second",
              "plain: " + shown(e, "tokens_per_second_plain", "", 1));
  return out + "</div>\n";
}

std::vector<std::pair<double, double>> points(const std::vector<ordered_json>& lines, const char* key) {
  std::vector<std::pair<double, double>> out;
  for (const ordered_json& line : lines) {
    if (line.contains(key) && line[key].is_number()) out.emplace_back(number(line, "step"), line[key].get<double>());
  }
  return out;
}

// A curve of the steps of every run and one of the validations, under the run's name.
std::string curves(const ReportInput& input, const ChartText& text, const char* step_key, const char* validation_key) {
  std::vector<Series> series;
  for (const RunMetrics& run : input.runs) {
    const std::string prefix = input.runs.size() > 1 ? run.name + " " : "";
    auto trained = points(run.steps, step_key), checked = points(run.validations, validation_key);
    if (!trained.empty()) series.push_back({prefix + "training", std::move(trained), false});
    if (!checked.empty()) series.push_back({prefix + "validation", std::move(checked), true});
  }
  return series.empty() ? "" : line_chart(text, series);
}

std::string training_section(const ReportInput& input) {
  if (input.runs.empty()) return "";
  std::string out = "<h2>Training</h2><div class=\"charts\">";
  out += curves(input, {"Loss", "optimizer step", "loss"}, "loss", "loss");
  out +=
      curves(input, {"Expected tau, teacher forcing", "optimizer step", "tokens per forward"}, "expected_tau", "tau");
  out += "</div>\n";
  for (const RunMetrics& run : input.runs) {
    if (run.steps.empty()) continue;
    const ordered_json& last = run.steps.back();
    const ordered_json time = last.value("time", ordered_json::object());
    out += fmt::format(
        "<p class=\"note\">{}: {:.0f} steps, {:.1f} minutes, last loss {}; {:.0f} % of the time computing, {:.0f} % "
        "reading, peak memory {:.2f} GiB.</p>\n",
        escaped(run.name), number(last, "step"), number(time, "total_seconds") / 60, shown(last, "loss", "", 3),
        100 * number(time, "compute_share"), 100 * number(time, "data_share"),
        number(time, "peak_memory_bytes") / (1 << 30));
  }
  return out;
}

std::string acceptance_section(const ordered_json& e) {
  if (e.is_null()) return "<h2>Decoding</h2><p class=\"note\">Not evaluated: no evaluation.json was given.</p>\n";
  std::vector<Bar> acceptance, lengths;
  size_t position = 0;
  for (const ordered_json& share : e.value("acceptance_by_position", ordered_json::array())) {
    acceptance.push_back(
        {fmt::format("{}", ++position), share.get<double>(), fmt::format("{:.0f} %", 100 * share.get<double>())});
  }
  double rounds = 0;
  const ordered_json histogram = e.value("accepted_length_histogram", ordered_json::array());
  for (const ordered_json& count : histogram) rounds += count.get<double>();
  for (size_t length = 0; length < histogram.size(); ++length) {
    const double share = rounds > 0 ? histogram[length].get<double>() / rounds : 0;
    lengths.push_back({fmt::format("{}", length + 1), share, fmt::format("{:.0f} %", 100 * share)});
  }
  return "<h2>Decoding</h2><div class=\"charts\">" +
         bar_chart({"Acceptance by position in the block", "drafted position", "share accepted"}, acceptance, 1) +
         bar_chart({"Tokens committed per forward", "tokens (bonus included)", "share of rounds"}, lengths) +
         "</div>\n";
}

std::string category_row(const std::string& name, const ordered_json& figures, const char* style) {
  return fmt::format(
      "<tr{}><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></"
      "tr>\n",
      style, escaped(name), figures.value("outputs_total", int64_t{0}), shown(figures, "tau"),
      shown(figures, "tau_without_bonus"), shown(figures, "tau_ngram"),
      shown(figures, "tokens_per_second_plain", "", 1), shown(figures, "tokens_per_second_speculative", "", 1),
      shown(figures, "speedup", "x"), identical(figures));
}

std::string category_section(const ordered_json& e) {
  if (e.is_null()) return "";
  std::string out =
      "<div class=\"scroll\"><table><thead><tr><th>prompts</th><th>answers</th><th>tau</th><th>without "
      "bonus</th><th>n-gram tau</th><th>plain tokens/s</th><th>with "
      "drafter</th><th>speed-up</th><th>identical</th></tr></thead><tbody>";
  const ordered_json categories = e.value("by_category", ordered_json::object());
  for (const auto& [name, figures] : categories.items()) out += category_row(name, figures, "");
  out += category_row("all", e, " class=\"all\"") + "</tbody></table></div>\n";
  out += fmt::format(
      "<p class=\"note\">tau: {}. A round costs {} ms of drafting and {} ms of verification, a plain forward {} ms: "
      "below a tau of {} a drafter "
      "would slow this machine down.</p>\n",
      escaped(e.value("tau_definition", "")), shown(e, "milliseconds_draft", "", 1),
      shown(e, "milliseconds_verification", "", 1), shown(e, "milliseconds_plain_forward", "", 1),
      shown(e, "break_even_tau"));
  return out;
}

std::string served_section(const ordered_json& s) {
  if (s.is_null()) return "<h2>Served by llama.cpp</h2><p class=\"note\">Not served: no served.json was given.</p>\n";
  std::string out = "<h2>Served by llama.cpp</h2><div class=\"tiles\">";
  out +=
      tile(shown(s, "tau"), "tau there",
           fmt::format("1 + accepted / drafts; draftsmith counts {} on the same prompts", shown(s, "tau_draftsmith")));
  out += tile(fmt::format("{} of {}", s.value("identical", int64_t{0}), s.value("outputs_total", int64_t{0})),
              "answers identical",
              fmt::format("with and without the drafter; {} equal draftsmith's own",
                          s.value("identical_to_draftsmith", int64_t{0})));
  out += tile(shown(s, "tokens_per_second_speculative", "", 1), "tokens per second",
              fmt::format("plain: {}; {}, {} thread(s)", shown(s, "tokens_per_second_plain", "", 1),
                          s.value("target", ""), s.value("threads", int64_t{1})));
  return out + "</div>\n";
}

// One answer: every round's tokens as one block, the more of them the stronger its colour.
std::string example(const ordered_json& row) {
  std::string text;
  for (const ordered_json& piece : row["pieces"]) {
    const int64_t tokens = piece[1].get<int64_t>();
    text +=
        fmt::format("<span class=\"k{}\" title=\"{} token{} in one forward\">{}</span>", std::min<int64_t>(tokens, 8),
                    tokens, tokens == 1 ? "" : "s", escaped(piece[0].get<std::string>()));
  }
  return fmt::format(
      "<article><header>{} <em>{}</em> <span class=\"right\">tau {}</span></header><details><summary>the "
      "prompt</summary><pre>{}</pre></details><pre "
      "class=\"answer\">{}</pre></article>\n",
      escaped(row.value("id", "")), escaped(row.value("category", "")), shown(row, "tau"),
      escaped(row.value("prompt", "")), text);
}

// Of each category the answer whose tau is the middle one: neither the best nor the worst.
std::string example_section(const ordered_json& e) {
  if (e.is_null() || !e.contains("rows")) return "";
  std::map<std::string, std::vector<const ordered_json*>> rows;
  for (const ordered_json& row : e["rows"]) {
    if (row.contains("pieces")) rows[row.value("category", "")].push_back(&row);
  }
  std::string out =
      "<h2>Answers</h2><p class=\"note\">Of each kind the answer with the middle tau. Each shade is what one forward "
      "of the target committed:";
  for (const int tokens : {1, 2, 3, 4, 6, 8})
    out += fmt::format(" <span class=\"k{}\">&nbsp;{}{}&nbsp;</span>", tokens, tokens, tokens == 8 ? "+" : "");
  out += " tokens.</p>\n";
  size_t count = 0;
  for (auto& [category, list] : rows) {
    if (++count > 8) break;
    std::stable_sort(list.begin(), list.end(),
                     [](const auto* a, const auto* b) { return number(*a, "tau") < number(*b, "tau"); });
    out += example(*list[list.size() / 2]);
  }
  return out;
}

std::string footer(const ordered_json& e) {
  if (e.is_null() || !e.contains("settings")) return "";
  const ordered_json& settings = e["settings"];
  const ordered_json machine = settings.value("machine", ordered_json::object());
  return fmt::format(
      "<footer>{}, {} cores, {:.0f} GiB; {} threads, {}. Drafter <code>{}</code>, target <code>{}</code>, block {}, up "
      "to {} new tokens, temperature {}.</footer>\n",
      escaped(machine.value("cpu", "unknown machine")), machine.value("cores", int64_t{0}),
      number(machine, "memory_bytes") / (1 << 30), settings.value("threads", int64_t{0}),
      escaped(settings.value("dtype", "")), escaped(settings.value("drafter_hash", "").substr(0, 12)),
      escaped(settings.value("target_hash", "").substr(0, 12)), settings.value("block", int64_t{0}),
      settings.value("max_new_tokens", int64_t{0}), shown(settings, "temperature", "", 1));
}

std::string title(const ReportInput& input) {
  std::string out;
  for (const RunMetrics& run : input.runs) out += (out.empty() ? "" : ", ") + run.name;
  return out.empty() ? "evaluation" : out;
}

}  // namespace

RunMetrics read_metrics(const std::string& run) {
  const fs::path path = fs::path(run) / "metrics.jsonl";
  DS_CHECK(fs::exists(path), "{}: is missing; {} is no run of draftsmith train, or one that has not done a step",
           path.string(), run);
  RunMetrics out;
  fs::path named = fs::path(run).lexically_normal();
  if (named.filename().empty()) named = named.parent_path();
  out.name = named.has_parent_path() && named.parent_path().has_filename()
                 ? (named.parent_path().filename() / named.filename()).string()
                 : named.filename().string();
  const std::string text = read_file(path);
  int64_t line_number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    ++line_number;
    ordered_json line = ordered_json::parse(text.substr(begin, end - begin), nullptr, false);
    const bool torn = end == text.size();
    DS_CHECK(line.is_object() || torn, "{}:{}: is not JSON", path.string(), line_number);
    if (line.is_object()) (line.value("validation", false) ? out.validations : out.steps).push_back(std::move(line));
    begin = end + 1;
  }
  DS_CHECK(!out.steps.empty() || !out.validations.empty(), "{}: holds no line", path.string());
  return out;
}

void check_evaluation_of(const ordered_json& evaluation, const std::string& path,
                         const std::vector<std::string>& runs) {
  for (const std::string& run : runs)
    for (const std::string& checkpoint : checkpoint_folders(run))
      if (measured_with(evaluation, drafter_hash(checkpoint))) return;
  DS_FAIL(
      "--evaluation {}: was measured with drafter {:.12} ({}), which is no checkpoint of {}\n       evaluate this run, "
      "or "
      "name the run that it belongs to",
      path, evaluation["settings"]["drafter_hash"].get<std::string>(),
      evaluation["settings"]["drafter"].get<std::string>(),
      runs.front() + (runs.size() > 1 ? " or the other runs" : ""));
}

ordered_json read_served(const std::string& path) {
  const ordered_json found = ordered_json::parse(read_file(path), nullptr, false);
  const auto has = [&](const char* key) { return found.is_object() && found.contains(key); };
  const auto check = [&](const char* key, bool good) {
    DS_CHECK(
        good,
        "{}: is no served.json: `{}` is missing or of another type\n       tests/clients/serve_llama_cpp.py writes "
        "one",
        path, key);
  };
  for (const char* key : {"tau", "tau_draftsmith", "tokens_per_second_plain", "tokens_per_second_speculative"})
    check(key, has(key) && found[key].is_number());
  for (const char* key : {"identical", "identical_to_draftsmith", "outputs_total", "threads"})
    check(key, has(key) && found[key].is_number_integer());
  check("target", has("target") && found["target"].is_string());
  return found;
}

void check_replaces_page(const std::string& path) {
  if (!fs::exists(path)) return;
  std::string start(std::string_view(kPageStart).size(), '\0');
  std::ifstream(path).read(start.data(), static_cast<std::streamsize>(start.size()));
  DS_CHECK(
      start == kPageStart,
      "--output {}: is there and is no page of draftsmith report, so it is not replaced\n       give another name, or "
      "remove it",
      path);
}

std::string report_page(const ReportInput& input) {
  std::string page =
      fmt::format("{}{}</title>\n<style>{}</style></head><body><main>\n<h1>{} <small>draftsmith report</small></h1>\n",
                  kPageStart, escaped(title(input)), kReportStyle, escaped(title(input)));
  page += tiles(input) + acceptance_section(input.evaluation) + category_section(input.evaluation) +
          served_section(input.served) + training_section(input) + example_section(input.evaluation) +
          footer(input.evaluation);
  return page + "</main></body></html>\n";
}

}  // namespace draftsmith
