#include "models/generate_command.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "data/assignments.h"
#include "data/hf_files.h"
#include "data/safetensors.h"
#include "data/sampler.h"
#include "launch/check.h"
#include "launch/file.h"
#include "launch/log.h"
#include "launch/progress.h"
#include "launch/ranks.h"
#include "models/answers_file.h"
#include "models/decoding/batch.h"
#include "models/device.h"
#include "models/generate_prompts.h"
#include "models/parts/library_product.h"

namespace draftsmith {

namespace {

// Of --limit and --seed: a number beyond 64 bits is read as the largest one, and so is found.
constexpr int64_t kMost = int64_t{1} << 62;

struct GenerateOptions {
  std::string target, output, json;
  PromptOptions prompts;
  std::vector<std::string> variables, roles;
  int64_t batch = 128, max_new_tokens = 256, seed = 1;
  SamplingOptions sampling;
  bool drop_cut = false;
  double max_drop_fraction = 0.1;
  DeviceOptions device;
};

// Values that no run can follow, and outputs that cannot be written or would replace an input: before any work.
void check_options(GenerateOptions& options) {
  options.prompts.render.variables = template_variables(options.variables);
  options.prompts.read.role_map = role_map(options.roles);
  check_sampling_options(options.sampling);
  DS_CHECK(options.max_drop_fraction >= 0 && options.max_drop_fraction <= 1, "--max-drop-fraction {}: must lie in 0..1",
           options.max_drop_fraction);
  std::vector<std::filesystem::path> files = hf_files(options.target);
  files.insert(files.end(), options.prompts.files.begin(), options.prompts.files.end());
  const std::vector<std::filesystem::path> written = AnswersFile::paths(options.output);
  for (const std::filesystem::path& path : written) check_output(path, files, "--output");
  if (options.json.empty()) return;
  files.insert(files.end(), written.begin(), written.end());
  check_output(options.json, files, "--json");
}

// Prompts of each group: consecutive rows, so that groups depend on nothing but the input and --batch.
std::vector<AnswersGroup> make_groups(const std::vector<GeneratePrompt>& rows, int64_t batch) {
  std::vector<AnswersGroup> groups;
  for (size_t begin = 0; begin < rows.size(); begin += static_cast<size_t>(batch)) {
    AnswersGroup group;
    Sha256 ids;
    for (size_t i = begin; i < std::min(rows.size(), begin + static_cast<size_t>(batch)); ++i) {
      ids.update(rows[i].conversation.id);
      ++group.prompts;
    }
    group.ids = ids.hex();
    groups.push_back(std::move(group));
  }
  return groups;
}

// The row as it is written: the conversation with the answer behind it, and how the answer ended.
std::string answer_line(const GeneratePrompt& prompt, const BatchAnswer& answer, const Tokenizer& tokenizer) {
  std::vector<int64_t> text = answer.tokens;
  if (answer.stopped) text.pop_back();
  const Conversation& conversation = prompt.conversation;
  nlohmann::ordered_json row;
  row["id"] = conversation.original_id.empty() ? conversation.id : conversation.original_id;
  if (!conversation.category.empty()) row["category"] = conversation.category;
  row["source"] = conversation.source;
  row["messages"] = conversation.messages;
  row["messages"].push_back({{"role", "assistant"}, {"content", tokenizer.decode(text)}});
  if (!conversation.tools.is_null()) row["tools"] = conversation.tools;
  row["prompt_id"] = conversation.id;
  row["finish_reason"] = answer.stopped ? "stop" : "length";
  row["prompt_tokens"] = prompt.tokens.size();
  row["completion_tokens"] = answer.tokens.size();
  return row.dump() + "\n";
}

uint64_t row_seed(int64_t seed, const std::string& content_id) {
  return derive_seed(static_cast<uint64_t>(seed), "sampling", std::stoull(content_id.substr(0, 16), nullptr, 16));
}

// Answers one group; the lines and their counts.
std::string answer_group(const Target& target, const Tokenizer& tokenizer, const GeneratePrompt* rows, int64_t count,
                         const GenerateOptions& options, const BatchOptions& batch, AnswersGroup& counts,
                         const std::function<void(int64_t, int64_t)>& progress) {
  std::vector<BatchPrompt> prompts;
  for (int64_t i = 0; i < count; ++i)
    prompts.push_back({rows[i].tokens, row_seed(options.seed, rows[i].conversation.id)});
  const std::vector<BatchAnswer> answers = generate_group(target, prompts, batch, progress);
  std::string lines;
  for (int64_t i = 0; i < count; ++i) {
    const BatchAnswer& answer = answers[static_cast<size_t>(i)];
    counts.prompt_tokens += static_cast<int64_t>(rows[i].tokens.size());
    counts.tokens += static_cast<int64_t>(answer.tokens.size());
    if (!answer.stopped && options.drop_cut) {
      ++counts.dropped_cut;
      continue;
    }
    ++counts.kept;
    counts.cut += answer.stopped ? 0 : 1;
    lines += answer_line(rows[i], answer, tokenizer);
  }
  return lines;
}

void finish_summary(Summary& summary, const AnswersFile& file, const GenerateOptions& options, int64_t replaced,
                    double seconds, int64_t made) {
  AnswersGroup sum;
  for (const AnswersGroup& group : file.done()) {
    sum.kept += group.kept;
    sum.cut += group.cut;
    sum.dropped_cut += group.dropped_cut;
    sum.prompt_tokens += group.prompt_tokens;
    sum.tokens += group.tokens;
  }
  summary.rows_kept = sum.kept;
  if (sum.dropped_cut > 0) summary.drop("answer cut by --max-new-tokens", sum.dropped_cut);
  summary.facts["output"] = options.output;
  summary.facts["prompt_tokens"] = sum.prompt_tokens;
  summary.facts["tokens"] = sum.tokens;
  summary.facts["answers_cut"] = sum.cut;
  summary.facts["answers_replaced"] = replaced;
  summary.facts["tokens_this_run"] = made;
  summary.facts["seconds_this_run"] = seconds;
  summary.facts["tokens_per_second"] = seconds > 0 ? static_cast<double>(made) / seconds : 0;
  say("answers", "{} tokens, {:.0f} a row; {} cut at {} tokens", with_commas(sum.tokens),
      static_cast<double>(sum.tokens) / static_cast<double>(std::max<int64_t>(1, sum.kept + sum.dropped_cut)),
      with_commas(sum.cut + sum.dropped_cut), options.max_new_tokens);
  if (replaced > 0)
    say("replaced", "{} rows ended in an answer; the target's own stands in its place", with_commas(replaced));
  say("wrote", "{}", options.output);
  summary.finish();
}

void generate(GenerateOptions& options) {
  require_single_rank("generate");
  check_options(options);
  const at::Device device = use_device(options.device);

  // Everything that can be wrong is looked at before the target is loaded.
  const HfConfig config = read_hf_config(options.target);
  const Tokenizer tokenizer = Tokenizer::load(options.target);
  const ChatTemplate chat = ChatTemplate::load(options.target);
  const std::vector<int64_t> stop = stop_tokens(config, tokenizer, chat, options.target);
  Summary summary;
  summary.command = "generate";
  summary.json_file = options.json;
  const GeneratePrompts prompts = read_prompts(options.prompts, tokenizer, chat, config, summary);
  summary.rows_kept = static_cast<int64_t>(prompts.rows.size());
  check_drops(summary, options.max_drop_fraction);
  const std::string weight_hash = WeightFolder::open(options.target).weight_hash();
  const nlohmann::ordered_json settings = {{"target weights", weight_hash},
                                           {"tokenizer", tokenizer.hash()},
                                           {"chat template", chat.hash()},
                                           {"--template-variable", options.prompts.render.variables},
                                           {"--date", options.prompts.render.date},
                                           {"--system", options.prompts.system},
                                           {"stop tokens", stop},
                                           {"--batch", options.batch},
                                           {"--max-new-tokens", options.max_new_tokens},
                                           {"--temperature", options.sampling.temperature},
                                           {"--top-k", options.sampling.top_k},
                                           {"--top-p", options.sampling.top_p},
                                           {"--seed", options.seed},
                                           {"--drop-cut", options.drop_cut},
                                           {"--threads", options.device.threads},
                                           {"--device", options.device.device}};
  AnswersFile file(options.output, settings, make_groups(prompts.rows, options.batch));
  const auto groups = static_cast<int64_t>((prompts.rows.size() + static_cast<size_t>(options.batch) - 1) /
                                           static_cast<size_t>(options.batch));
  const auto finished = static_cast<int64_t>(file.done().size());
  const int64_t rows_finished = std::min<int64_t>(finished * options.batch, static_cast<int64_t>(prompts.rows.size()));
  say("target", "{}  weights {}", options.target, weight_hash.substr(0, 8));
  say("prompts", "{} in {} groups of {}", with_commas(static_cast<int64_t>(prompts.rows.size())), groups,
      options.batch);
  if (finished > 0) say("resumed", "{} prompts are answered already", with_commas(rows_finished));
  if (file.redone() > 0)
    say("resumed", "{} prompts of the last, short group are answered again in a longer one", file.redone());

  int64_t made = 0;
  double seconds = 0;
  if (finished < groups) {
    use_product_library(
        ProductLibrary::kOpenBlas);  // a measured choice may fall otherwise when the run goes on, and with it a token
    TargetOptions target_options;
    target_options.device = device;
    const std::unique_ptr<Target> target = load_target(options.target, target_options);
    BatchOptions batch;
    batch.max_new_tokens = options.max_new_tokens;
    batch.stop = stop;
    batch.sampling = options.sampling;
    Progress progress("generate", static_cast<int64_t>(prompts.rows.size()), "rows", rows_finished);
    const auto advance = [&](int64_t tokens, int64_t rows) {
      made += tokens;
      progress.advance(rows,
                       fmt::format("{:.0f} tokens/s", static_cast<double>(made) / std::max(progress.seconds(), 1e-3)));
    };
    for (int64_t g = finished; g < groups; ++g) {
      const int64_t begin = g * options.batch;
      const int64_t count = std::min<int64_t>(options.batch, static_cast<int64_t>(prompts.rows.size()) - begin);
      AnswersGroup counts;
      const std::string lines =
          answer_group(*target, tokenizer, prompts.rows.data() + begin, count, options, batch, counts, advance);
      file.append(lines, counts);
    }
    progress.finish();
    seconds = progress.seconds();
  }
  int64_t lines = 0;
  for (const AnswersGroup& group : file.done()) lines += group.kept;
  DS_CHECK(
      lines > 0,
      "all {} answers were cut at --max-new-tokens {}, and --drop-cut leaves them out: no row is left\n       give "
      "a larger --max-new-tokens, or keep cut answers",
      prompts.rows.size(), options.max_new_tokens);
  file.finish();
  finish_summary(summary, file, options, prompts.replaced, seconds, made);
}

}  // namespace

void add_generate_command(CLI::App& app) {
  auto options = std::make_shared<GenerateOptions>();
  GenerateOptions& o = *options;
  CLI::App* command = app.add_subcommand(
      "generate", "prompts -> conversations answered by the target itself; goes on where a killed run stopped");
  command->add_option("--target", o.target, "HF folder of the target")->required()->check(CLI::ExistingDirectory);
  command
      ->add_option("--input", o.prompts.files,
                   "prompts: JSON Lines or a JSON array of {\"messages\": [...]}; several may be given")
      ->required();
  command->add_option("--output", o.output, "JSON Lines with the answers")->required();
  command->add_option("--batch", o.batch, "prompts answered at once")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command->add_option("--max-new-tokens", o.max_new_tokens, "longest answer")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command->add_option("--temperature", o.sampling.temperature, "0: greedy")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command->add_option("--top-k", o.sampling.top_k, "draw from the k most probable tokens; 0: off")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  command->add_option("--top-p", o.sampling.top_p, "draw from the smallest set of this mass; 1: off")
      ->check(CLI::Range(1e-6, 1.0))
      ->capture_default_str();
  command->add_option("--seed", o.seed, "of the draws; each row has its own stream")
      ->check(CLI::Range(int64_t{0}, kMost))
      ->capture_default_str();
  command->add_option("--system", o.prompts.system, "system message for rows that have none");
  command->add_option("--template-variable", o.variables,
                      "name=value for the chat template, such as enable_thinking=false");
  command->add_option("--date", o.prompts.render.date, "date for templates that print one, such as 2025-01-31");
  command->add_option("--role-map", o.roles, "name=role for roles that data sets call otherwise");
  command->add_option("--limit", o.prompts.limit, "answer the first so many prompts; 0: all")
      ->check(CLI::Range(int64_t{0}, kMost))
      ->capture_default_str();
  command->add_flag("--drop-cut", o.drop_cut, "leave out answers that --max-new-tokens cut");
  command->add_option("--max-drop-fraction", o.max_drop_fraction, "fail when a larger share of the rows cannot be used")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--json", o.json, "write the summary there");
  add_device_options(*command, o.device);
  command->footer(
      "example:\n  draftsmith generate --target models/SmolLM2-135M-Instruct --input prompts.jsonl --output "
      "answers.jsonl --max-new-tokens 96");
  command->callback([options] { generate(*options); });
}

}  // namespace draftsmith
