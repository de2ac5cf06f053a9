#include "export/card.h"

#include <fmt/ranges.h>

namespace draftsmith {

using nlohmann::ordered_json;

namespace {

std::string shape_section(const DrafterConfig& config) {
  std::string text = "## The drafter\n\n| | |\n|---|---|\n";
  auto row = [&](const std::string& name, const std::string& value) {
    text += fmt::format("| {} | {} |\n", name, value);
  };
  row("kind", config.kind);
  row("layers", fmt::format("{}", config.layers));
  row("block (anchor included)", fmt::format("{}", config.block));
  row("taps (0-based target layers, their outputs)", fmt::format("{}", fmt::join(config.taps, ", ")));
  row("mask token", fmt::format("{}", config.mask_token));
  row("hidden / feed-forward", fmt::format("{} / {}", config.hidden_size, config.intermediate_size));
  row("heads / key-value heads / head size",
      fmt::format("{} / {} / {}", config.num_attention_heads, config.num_key_value_heads, config.head_dim));
  row("draft vocabulary", config.vocabulary == 0 ? "the target's" : fmt::format("{} tokens", config.vocabulary));
  row("positions", fmt::format("{}", config.max_position_embeddings));
  return text + "\n";
}

std::string origin_section(const ordered_json& facts) {
  std::string text = "## What it was made from\n\n| | |\n|---|---|\n";
  for (const char* key : {"drafter_hash", "target_hash", "corpus_id", "chat_template_hash", "dtype"}) {
    const std::string value = facts.value(key, "");
    text += fmt::format("| {} | {} |\n", key, value.empty() ? "not stated" : "`" + value + "`");
  }
  const ordered_json& proof = facts["proof"];
  text += fmt::format(
      "\nRead back after writing: {} slots' logits and {} proposed tokens equal those of the trained drafter{}.\n\n",
      proof["slots"].get<int64_t>(), proof["proposals"].get<int64_t>(),
      facts.value("dtype", "") == "float32"
          ? ""
          : fmt::format(" rounded to this dtype ({:.1f} % of the tokens are also those before rounding)",
                        100 * proof["unrounded_agreement"].get<double>()));
  return text;
}

std::string measured_section(const ordered_json& evaluation) {
  if (evaluation.is_null()) return "## Measured\n\nNothing: no evaluation was given to `draftsmith export`.\n\n";
  std::string text =
      "## Measured\n\n| prompts | tau | n-gram tau | break-even tau | speed-up | identical outputs "
      "|\n|---|---|---|---|---|---|\n";
  auto row = [&](const std::string& name, const ordered_json& figures) {
    auto number = [&](const char* key) {
      return figures.contains(key) && figures[key].is_number() ? fmt::format("{:.2f}", figures[key].get<double>())
                                                               : std::string("-");
    };
    const bool counted = figures.contains("outputs_identical") && figures["outputs_identical"].is_number();
    text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", name, number("tau"), number("tau_ngram"),
                        number("break_even_tau"), number("speedup"),
                        counted ? fmt::format("{} of {}", figures["outputs_identical"].get<int64_t>(),
                                              figures["outputs_total"].get<int64_t>())
                                : std::string("-"));
  };
  if (evaluation.contains("by_category")) {
    for (const auto& [name, figures] : evaluation["by_category"].items()) row(name, figures);
  }
  row("all", evaluation);
  text += fmt::format("\ntau: {}.\n", evaluation.value("tau_definition", "tokens committed per target forward"));
  if (evaluation.contains("settings") && evaluation["settings"].contains("machine")) {
    const ordered_json& settings = evaluation["settings"];
    text += fmt::format("Machine: {}, {} threads, {}.\n", settings["machine"].value("cpu", "unknown"),
                        settings.value("threads", int64_t{0}), settings.value("dtype", "float32"));
  }
  return text + "\n";
}

}  // namespace

std::string model_card(const ExportInput& input, const Format& format, const ordered_json& facts,
                       const ordered_json& evaluation) {
  std::string text = fmt::format(
      "# {} drafter\n\nA draft model for speculative decoding, made with draftsmith for {}. It only speeds the target "
      "up: every token is verified "
      "by the target.\n\n## Serve\n\n```\n",
      input.drafter.config().kind, format.runtimes);
  for (const std::string& line : format.serve(input)) text += line + "\n";
  text += "```\n\n" + shape_section(input.drafter.config()) + origin_section(facts) + measured_section(evaluation);
  return text;
}

}  // namespace draftsmith
