#include "export/evaluate_command.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "data/assignments.h"
#include "data/corpus.h"
#include "data/text.h"
#include "export/evaluation_file.h"
#include "export/format.h"
#include "export/open_drafter.h"
#include "launch/check.h"
#include "launch/file.h"
#include "launch/log.h"
#include "launch/machine.h"
#include "launch/progress.h"
#include "launch/ranks.h"
#include "launch/summary.h"
#include "models/decoding/ngram.h"
#include "models/device.h"
#include "models/generate_prompts.h"

namespace draftsmith {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

struct Arguments {
  std::string target, drafter, corpus, output, json, rule = "match";
  PromptOptions prompts;
  std::vector<std::string> variables;
  int64_t max_new_tokens = 256, limit = 0, block = 0;
  uint64_t seed = 0;
  double max_drop_fraction = 0.1;
  SamplingOptions sampling;
  DeviceOptions device;
};

// Before anything is loaded or written.
void check_arguments(const Arguments& arguments) {
  const SamplingOptions& sampling = arguments.sampling;
  check_sampling_options(sampling);
  DS_CHECK(arguments.rule == "match" || sampling.temperature > 0,
           "--rule speculative needs --temperature above 0: greedy decoding has one outcome");
  DS_CHECK(arguments.max_new_tokens >= 2,
           "--max-new-tokens {}: the first token comes with the prefill, so that tau is of the others; give 2 or more",
           arguments.max_new_tokens);
  DS_CHECK(arguments.max_drop_fraction >= 0 && arguments.max_drop_fraction <= 1,
           "--max-drop-fraction {}: has to lie in 0..1", arguments.max_drop_fraction);

  std::vector<fs::path> inputs(arguments.prompts.files.begin(), arguments.prompts.files.end());
  if (!arguments.corpus.empty()) inputs.emplace_back(arguments.corpus);
  check_output(arguments.output, inputs, "--output");
  check_replaces_evaluation(arguments.output);
  if (arguments.json.empty()) return;
  inputs.emplace_back(arguments.output);
  check_output(arguments.json, inputs, "--json");
}

// `limit` of them, every n-th, so that all kinds of a file that is ordered by kind are seen.
std::vector<EvaluationPrompt> take_evenly(std::vector<EvaluationPrompt> prompts, int64_t limit, Summary& summary) {
  const auto total = static_cast<int64_t>(prompts.size());
  if (limit == 0 || limit >= total) return prompts;
  std::vector<EvaluationPrompt> taken;
  for (int64_t i = 0; i < limit; ++i) taken.push_back(std::move(prompts[static_cast<size_t>(i * total / limit)]));
  summary.drop("beyond --limit", total - limit);
  return taken;
}

std::vector<EvaluationPrompt> evaluation_prompts(const Arguments& arguments, const Tokenizer& tokenizer,
                                                 const ChatTemplate& chat, const HfConfig& config, Summary& summary) {
  PromptOptions options = arguments.prompts;
  options.render.variables = template_variables(arguments.variables);
  std::vector<EvaluationPrompt> prompts;
  for (GeneratePrompt& row : read_prompts(options, tokenizer, chat, config, summary).rows) {
    const Conversation& conversation = row.conversation;
    EvaluationPrompt prompt;
    prompt.id = conversation.original_id.empty() ? conversation.id : conversation.original_id;
    prompt.category = conversation.category.empty() ? conversation.source : conversation.category;
    prompt.text = tokenizer.decode(row.tokens, /*skip_special=*/false);
    prompt.tokens = std::move(row.tokens);
    prompts.push_back(std::move(prompt));
  }
  prompts = take_evenly(std::move(prompts), arguments.limit, summary);
  summary.rows_kept = static_cast<int64_t>(prompts.size());
  check_drops(summary, arguments.max_drop_fraction);
  return prompts;
}

EvaluationOptions evaluation_options(const Arguments& arguments, const OpenedDrafter& opened,
                                     std::vector<int64_t> stop) {
  EvaluationOptions options;
  options.name = opened.folder;
  options.block = arguments.block;
  options.decode.max_new_tokens = arguments.max_new_tokens;
  options.decode.stop = std::move(stop);
  options.decode.sampling = arguments.sampling;
  options.decode.rule = arguments.rule == "speculative" ? VerifyRule::kSpeculative : VerifyRule::kTargetMatch;
  options.decode.seed = arguments.seed;
  return options;
}

ordered_json settings_json(const Arguments& arguments, const Target& target, const OpenedDrafter& opened,
                           int64_t block) {
  ordered_json out;
  out["target"] = target.folder();
  out["target_hash"] = target.weight_hash();
  out["drafter"] = opened.folder;
  out["drafter_form"] = opened.form;
  out["drafter_hash"] = opened.hash;
  if (!opened.exported_from.empty()) out["exported_from"] = opened.exported_from;
  out["drafter_kind"] = opened.drafter->config().kind;
  out["block"] = block;
  out["prompts"] = arguments.prompts.files;
  out["corpus"] = arguments.corpus.empty() ? ordered_json(nullptr) : ordered_json(arguments.corpus);
  out["max_new_tokens"] = arguments.max_new_tokens;
  out["temperature"] = arguments.sampling.temperature;
  out["top_p"] = arguments.sampling.top_p;
  out["top_k"] = arguments.sampling.top_k;
  out["rule"] = arguments.rule;
  out["seed"] = arguments.seed;
  out["dtype"] = "float32";
  out["threads"] = arguments.device.threads;
  out["device"] = arguments.device.device;
  out["machine"] = to_json(describe_machine());
  return out;
}

void check_chat_template(const ChatTemplate& chat, const OpenedDrafter& opened) {
  const std::string& trained = opened.identity.chat_template_hash;
  if (trained.empty() || trained == chat.hash()) return;
  warn("{}: was trained on text of another chat template ({:.12}) than the target's own ({:.12}); acceptance suffers",
       opened.folder, trained, chat.hash());
}

void check_corpus(const Corpus& corpus, const Arguments& arguments, const Tokenizer& tokenizer,
                  const OpenedDrafter& opened) {
  DS_CHECK(corpus.tokenizer_hash() == tokenizer.hash(),
           "{}: made with another tokenizer ({:.12}) than {} has ({:.12}); prepare it again with that target",
           arguments.corpus, corpus.tokenizer_hash(), arguments.target, tokenizer.hash());
  const std::string& trained = opened.identity.corpus_id;
  if (trained.empty() || trained == corpus.id()) return;
  warn(
      "{}: is not the corpus that the drafter was trained on ({:.12}, not {:.12}): the n-gram table has seen other "
      "text",
      arguments.corpus, corpus.id(), trained);
}

void run(Arguments& arguments) {
  require_single_rank("evaluate");
  check_arguments(arguments);
  const at::Device device = use_device(arguments.device);
  Summary summary;
  summary.command = "evaluate";
  summary.json_file = arguments.json;
  const Tokenizer tokenizer = Tokenizer::load(arguments.target);
  const ChatTemplate chat = ChatTemplate::load(arguments.target);
  const HfConfig config = read_hf_config(arguments.target);
  const std::vector<EvaluationPrompt> prompts = evaluation_prompts(arguments, tokenizer, chat, config, summary);

  const std::unique_ptr<Target> target = load_target(arguments.target, {.device = device});
  const OpenedDrafter opened = open_drafter(arguments.drafter, *target);
  check_chat_template(chat, opened);
  const int64_t block = arguments.block == 0 ? opened.drafter->config().block : arguments.block;
  say("target", "{}  weights {:.12}", arguments.target, target->weight_hash());
  say("drafter", "{}  {}, block {}, {:.12}", opened.folder, opened.drafter->config().kind, block, opened.hash);

  std::optional<NgramTable> table;
  std::unique_ptr<Proposer> ngram;
  if (!arguments.corpus.empty()) {
    const Corpus corpus = Corpus::open(arguments.corpus);
    check_corpus(corpus, arguments, tokenizer, opened);
    table.emplace(make_ngram_table(corpus));
    ngram = make_ngram_proposer(*table, block - 1);
  }
  EvaluationOptions options =
      evaluation_options(arguments, opened, stop_tokens(config, tokenizer, chat, arguments.target));
  Progress progress("evaluate", static_cast<int64_t>(prompts.size()), "prompts");
  int64_t rounds = 0, committed = 0;
  options.done = [&](const EvaluationRow& row) {
    rounds += static_cast<int64_t>(row.speculative.accepted.size());
    committed += static_cast<int64_t>(row.speculative.tokens.size()) - 1;
    progress.advance(
        1, rounds > 0 ? fmt::format("tau {:.2f}", static_cast<double>(committed) / static_cast<double>(rounds)) : "");
  };
  const EvaluationReport report =
      sum_up(evaluate(*target, *opened.drafter, ngram.get(), prompts, options), block, ngram != nullptr);
  progress.finish();

  ordered_json file = evaluation_json(report, tokenizer);
  file["settings"] = settings_json(arguments, *target, opened, block);
  write_file(arguments.output, file.dump(1) + "\n");
  for (const std::string& line : evaluation_table(report)) fmt::print("{}\n", line);
  say("wrote", "{}", arguments.output);
  for (const auto& [key, value] : file.items()) {
    if (key != "rows") summary.facts[key] = value;
  }
  summary.finish();
  const int64_t differing = report.overall.comparable - report.overall.identical;
  DS_CHECK(differing == 0 || !must_be_identical(*target, options.decode),
           "{} of {} greedy outputs differ from plain decoding; they are listed above and under `divergences` in {}",
           differing, report.overall.rows, arguments.output);
}

}  // namespace

void add_evaluate_command(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "evaluate", "decode prompts with and without a drafter: tau, acceptance, speed-up, losslessness");
  command->footer(
      "Example:\n  draftsmith evaluate --target models/smollm2 --drafter runs/first --prompts unseen.jsonl --corpus "
      "corpus.h5 --output "
      "evaluation.json");
  command->add_option("--target", arguments->target, "HF folder of the target")
      ->required()
      ->check(CLI::ExistingDirectory);
  std::string exported;
  for (const Format& one : formats()) exported += (exported.empty() ? "" : ", ") + std::string(one.name);
  command
      ->add_option("--drafter", arguments->drafter,
                   fmt::format("a run, a checkpoint, a drafter's folder or an exported folder ({})", exported))
      ->required();
  command
      ->add_option("--prompts", arguments->prompts.files,
                   "JSONL or JSON files of conversations; asked up to their last question")
      ->required()
      ->check(CLI::ExistingFile);
  command
      ->add_option("--corpus", arguments->corpus,
                   "training corpus of the n-gram baseline (tau_ngram); without it there is none")
      ->check(CLI::ExistingFile);
  command->add_option("--output", arguments->output, "evaluation.json to write")->required();
  command->add_option("--max-new-tokens", arguments->max_new_tokens, "longest answer; 2 or more")
      ->capture_default_str();
  command->add_option("--limit", arguments->limit, "so many prompts, spread over the files; 0: all")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--block", arguments->block, "serve shorter blocks than trained, anchor included; 0: as trained")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--temperature", arguments->sampling.temperature, "0: greedy")->capture_default_str();
  command->add_option("--top-p", arguments->sampling.top_p, "1: off")->capture_default_str();
  command->add_option("--top-k", arguments->sampling.top_k, "0: off")->capture_default_str();
  command
      ->add_option("--rule", arguments->rule,
                   "match: the target draws, drafts are kept while equal; speculative: accept by min(1, p/q)")
      ->check(CLI::IsMember({"match", "speculative"}))
      ->capture_default_str();
  command->add_option("--seed", arguments->seed, "of sampling")->capture_default_str();
  command->add_option("--template-variable", arguments->variables,
                      "name=value for the chat template, such as enable_thinking=false");
  command->add_option("--date", arguments->prompts.render.date,
                      "date for templates that print one, such as 2025-01-31");
  command->add_option("--system", arguments->prompts.system, "system message for rows that have none");
  command
      ->add_option("--max-drop-fraction", arguments->max_drop_fraction,
                   "fail when a larger share of the rows cannot be used")
      ->capture_default_str();
  command->add_option("--json", arguments->json, "summary as JSON");
  add_device_options(*command, arguments->device);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace draftsmith
