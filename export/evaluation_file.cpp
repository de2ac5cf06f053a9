#include "export/evaluation_file.h"

#include <filesystem>
#include <fstream>

#include "launch/check.h"
#include "launch/file.h"
#include "launch/log.h"

namespace draftsmith {

using nlohmann::ordered_json;

const char* const kTauDefinition =
    "tokens committed per verification round (one target forward), bonus token included, over all rounds of all "
    "prompts; the first token of "
    "each answer comes with the prefill and is not counted; 1 = no gain, the block size = perfect";

namespace {

// An embedding may have more rows than the tokenizer has ids; a target that says such an id has said nothing readable.
constexpr const char* kNoText = "\uFFFD";
bool named(int64_t id, const Tokenizer& tokenizer) {
  return id < tokenizer.size();
}

std::string text_of(std::vector<int64_t> ids, const Tokenizer& tokenizer) {
  std::erase_if(ids, [&](int64_t id) { return !named(id, tokenizer); });
  return tokenizer.decode(ids);
}

// The text each round committed: [text, tokens]. The first piece is the prefill's token. Characters that end in a later
// round go there.
ordered_json pieces_of(const DecodeResult& result, const Tokenizer& tokenizer) {
  ordered_json pieces = ordered_json::array();
  StreamDecoder decoder(tokenizer, true);
  size_t at = 0;
  auto take = [&](size_t count) {
    std::string text;
    const size_t end = std::min(at + count, result.tokens.size());
    const size_t taken = end - at;
    for (; at < end; ++at) text += named(result.tokens[at], tokenizer) ? decoder.push(result.tokens[at]) : kNoText;
    if (at == result.tokens.size()) text += decoder.finish();
    pieces.push_back({text, taken});
  };
  take(1);
  for (int64_t accepted : result.accepted) {
    if (at < result.tokens.size()) take(static_cast<size_t>(accepted) + 1);
  }
  return pieces;
}

ordered_json row_json(const EvaluationRow& row, const Tokenizer& tokenizer) {
  EvaluationFigures own;
  own.add(row);
  ordered_json out;
  out["id"] = row.prompt.id;
  out["category"] = row.prompt.category;
  out["prompt"] = row.prompt.text;
  out["prompt_tokens"] = row.prompt.tokens;
  out["output"] = text_of(row.speculative.tokens, tokenizer);
  out["output_tokens"] = row.speculative.tokens;
  out["stopped"] = row.speculative.stopped;
  out["identical"] = row.comparable ? ordered_json(row.divergence < 0) : ordered_json(nullptr);
  out["tau"] = own.tau();
  out["rounds"] = own.rounds;
  out["proposed"] = row.speculative.proposed;
  out["accepted"] = row.speculative.accepted;
  out["seconds_plain"] = row.plain.seconds;
  out["seconds_speculative"] = row.speculative.seconds;
  out["seconds_prefill_plain"] = row.plain.seconds_prefill;
  out["seconds_prefill_speculative"] = row.speculative.seconds_prefill;
  out["seconds_draft"] = row.speculative.seconds_draft;
  out["seconds_verification"] = row.speculative.seconds_verify;
  out["pieces"] = pieces_of(row.speculative, tokenizer);
  return out;
}

std::string table_line(const std::string& name, const EvaluationFigures& figures, bool with_ngram, bool comparable) {
  return fmt::format("{:<16.16}{:>6}{:>7.2f}{:>8}{:>10.1f}{:>12.1f}{:>9.2f}x{:>12}", name, figures.rows, figures.tau(),
                     with_ngram ? fmt::format("{:.2f}", figures.tau_ngram()) : "-", figures.plain_rate(),
                     figures.speculative_rate(), figures.speedup(),
                     comparable ? fmt::format("{}/{}", figures.identical, figures.rows) : "by law");
}

}  // namespace

EvaluationReport sum_up(std::vector<EvaluationRow> rows, int64_t block, bool with_ngram) {
  EvaluationReport report;
  report.with_ngram = with_ngram;
  report.overall = EvaluationFigures(block);
  for (const EvaluationRow& row : rows) {
    report.overall.add(row);
    report.by_category.try_emplace(row.prompt.category, block).first->second.add(row);
  }
  report.rows = std::move(rows);
  return report;
}

ordered_json evaluation_json(const EvaluationReport& report, const Tokenizer& tokenizer) {
  ordered_json out = to_json(report.overall, report.with_ngram);
  out["tau_definition"] = kTauDefinition;
  out["by_category"] = ordered_json::object();
  for (const auto& [name, figures] : report.by_category) out["by_category"][name] = to_json(figures, report.with_ngram);
  out["divergences"] = ordered_json::array();
  out["rows"] = ordered_json::array();
  for (const EvaluationRow& row : report.rows) {
    if (row.divergence >= 0) {
      out["divergences"].push_back({{"id", row.prompt.id}, {"position", row.divergence}, {"logit_gap", row.gap}});
    }
    out["rows"].push_back(row_json(row, tokenizer));
  }
  return out;
}

ordered_json read_evaluation(const std::string& path) {
  const ordered_json found = ordered_json::parse(read_file(path), nullptr, false);
  const auto need = [&](const ordered_json& in, const char* key, bool (ordered_json::*kind)() const noexcept) {
    DS_CHECK(in.is_object() && in.contains(key) && (in[key].*kind)(),
             "{}: is no evaluation.json: `{}` is missing or of another type\n       draftsmith evaluate writes one",
             path, key);
  };
  for (const char* key : {"tau", "outputs_total", "break_even_tau", "speedup"})
    need(found, key, &ordered_json::is_number);
  for (const char* key : {"settings", "by_category"}) need(found, key, &ordered_json::is_object);
  for (const char* key : {"acceptance_by_position", "accepted_length_histogram", "rows"})
    need(found, key, &ordered_json::is_array);
  for (const char* key : {"drafter", "drafter_hash", "target_hash"})
    need(found["settings"], key, &ordered_json::is_string);
  return found;
}

bool measured_with(const ordered_json& evaluation, const std::string& drafter_hash) {
  for (const char* key : {"drafter_hash", "exported_from"}) {
    const auto found = evaluation["settings"].find(key);
    if (found != evaluation["settings"].end() && *found == drafter_hash) return true;
  }
  return false;
}

void check_replaces_evaluation(const std::string& path) {
  if (!std::filesystem::exists(path)) return;
  char first = 0;
  const bool object = (std::ifstream(path) >> first) && first == '{';  // else it may be of any size
  const ordered_json found = object ? ordered_json::parse(read_file(path), nullptr, false) : ordered_json();
  DS_CHECK(found.is_object() && found.contains("tau") && found.contains("settings"),
           "--output {}: is there and is no evaluation.json (a JSON object with `tau` and `settings`), so it is not "
           "replaced\n       give another name, or remove it",
           path);
}

std::vector<std::string> evaluation_table(const EvaluationReport& report) {
  const bool comparable = report.overall.comparable > 0;
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{:<16}{:>6}{:>7}{:>8}{:>10}{:>12}{:>10}{:>12}", "", "rows", "tau", "n-gram", "plain t/s",
                              "draft t/s", "speed-up", "identical"));
  for (const auto& [name, figures] : report.by_category) {
    lines.push_back(table_line(name, figures, report.with_ngram, comparable));
  }
  lines.push_back(table_line("all", report.overall, report.with_ngram, comparable));
  const ordered_json json = to_json(report.overall, report.with_ngram);
  std::string acceptance = "acceptance by position ";
  for (double share : json["acceptance_by_position"]) acceptance += fmt::format(" {:.2f}", share);
  lines.push_back("");
  lines.push_back(
      fmt::format("tau {:.3f} ({}; {:.3f} drafted tokens accepted a round without it; mean over responses {:.3f})",
                  report.overall.tau(), "tokens committed per target forward, bonus token included",
                  report.overall.tau_without_bonus(), report.overall.tau_mean_over_responses()));
  lines.push_back(acceptance);
  lines.push_back(
      fmt::format("break-even tau {:.2f} = (draft {:.1f} ms + verification {:.1f} ms) / plain forward {:.1f} ms",
                  report.overall.break_even_tau(), json["milliseconds_draft"].get<double>(),
                  json["milliseconds_verification"].get<double>(), json["milliseconds_plain_forward"].get<double>()));
  for (const EvaluationRow& row : report.rows) {
    if (row.divergence < 0) continue;
    lines.push_back(fmt::format("{}: differs from plain decoding at token {} (gap of the two best logits there {:.3g})",
                                row.prompt.id, row.divergence, row.gap));
  }
  return lines;
}

}  // namespace draftsmith
