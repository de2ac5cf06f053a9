#include "data/prepare_command.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <thread>

#include "data/assignments.h"
#include "data/corpus.h"
#include "data/hf_files.h"
#include "data/show.h"
#include "launch/check.h"
#include "launch/file.h"
#include "launch/log.h"
#include "launch/progress.h"
#include "launch/ranks.h"

namespace draftsmith {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMost = 1 << 24;  // of --max-length and --show; a number beyond 64 bits is read as the largest one
constexpr size_t kBatch = 512;      // rows rendered and tokenised at a time, in parallel

// What became of one row after rendering; `error` is a failure of the whole command.
struct Encoded {
  std::vector<Sample> samples;
  std::string dropped, detail;
  std::exception_ptr error;
};

// Rows of a batch on all cores; each row's result depends on that row alone, so the order of threads does not show.
std::vector<Encoded> encode_rows(const ChatEncoder& encoder, const std::vector<Conversation>& rows) {
  std::vector<Encoded> results(rows.size());
  const auto work = [&](size_t first, size_t step) {
    for (size_t i = first; i < rows.size(); i += step) {
      try {
        results[i].samples = encoder.samples(rows[i]);
      } catch (const TemplateError& error) {
        results[i].dropped = "template raised an error";
        results[i].detail = error.what();
      } catch (...) {
        results[i].error = std::current_exception();
      }
    }
  };
  const size_t threads = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, std::max<size_t>(rows.size(), 1));
  std::vector<std::jthread> pool;
  for (size_t t = 1; t < threads; ++t) pool.emplace_back(work, t, threads);
  work(0, threads);
  pool.clear();  // joins
  return results;
}

// Counts of the run beyond rows kept and dropped.
struct Figures {
  int64_t samples = 0, tokens = 0, supervised = 0, turns = 0, thinking_blocks = 0, cut = 0, lost_to_cut = 0,
          unfinished = 0;
  std::map<std::string, int64_t> by_source;
};

// vocab_size of the target's config.json; 0 where a folder holds a tokenizer alone.
int64_t embedding_rows(const std::string& target) {
  const std::filesystem::path config = std::filesystem::path(target) / "config.json";
  if (!std::filesystem::exists(config)) return 0;
  const ordered_json json = ordered_json::parse(read_file(config), nullptr, /*allow_exceptions=*/false);
  const ordered_json rows = json.is_object() ? json.value("vocab_size", ordered_json()) : ordered_json();
  return rows.is_number_integer() ? rows.get<int64_t>() : 0;
}

class Preparation {
 public:
  Preparation(const PrepareOptions& options, const ChatEncoder& encoder)
      : options_(options),
        encoder_(encoder),
        writer_(options.output,
                {encoder.tokenizer().hash(), encoder.chat_template().hash(), encoder.switches(), options.max_length}),
        embedding_rows_(embedding_rows(options.target)) {
    summary_.command = "prepare";
  }

  void drop(const std::string& reason, const std::string& where, const std::string& detail) {
    summary_.drop(reason);
    // The first row of each reason is named, so that a person can look at it.
    if (summary_.dropped[reason] == 1)
      examples_[reason] = detail.empty() ? where : fmt::format("{}: {}", where, detail);
  }

  void take(const Conversation& row, const std::string& where, Encoded result) {
    if (result.error) rethrow_with_place(result.error, where);
    if (!result.dropped.empty()) return drop(result.dropped, where, result.detail);
    const int64_t kept = keep_samples(row, result.samples);
    if (kept > 0) {
      ++summary_.rows_kept;
      ++figures_.by_source[row.source];
      figures_.unfinished += row.cut ? 1 : 0;
      return;
    }
    const bool any = std::any_of(result.samples.begin(), result.samples.end(),
                                 [](const Sample& sample) { return sample.turns > 0; });
    drop(any ? "no supervised token within the maximum length" : "nothing supervised", where, "");
  }

  void count_row() { ++summary_.rows_in; }

  Summary finish() {
    const double share = summary_.rows_in == 0
                             ? 1.0
                             : static_cast<double>(summary_.rows_unusable()) / static_cast<double>(summary_.rows_in);
    std::string examples;
    for (const auto& [reason, example] : examples_) {
      warn("{} ({} rows), first {}", reason, with_commas(summary_.dropped[reason]), example);
      examples += fmt::format("\n       {}: {}", reason, example);
    }
    DS_CHECK(summary_.rows_kept > 0, "{}: no row of {} is left, nothing was written{}", inputs(),
             with_commas(summary_.rows_in), examples);
    DS_CHECK(share <= options_.max_drop_fraction,
             "{}: {:.1f} % of the rows were dropped, at most {:.1f} % may be; nothing was written{}\n"
             "       mend the data, or allow more with --max-drop-fraction",
             inputs(), 100 * share, 100 * options_.max_drop_fraction, examples);
    ordered_json dropped = ordered_json::object();
    for (const auto& [reason, rows] : summary_.dropped) dropped[reason] = rows;
    const std::string id = writer_.finish(dropped);
    report(id);
    return summary_;
  }

 private:
  std::string inputs() const {
    return options_.inputs.size() == 1 ? options_.inputs[0]
                                       : fmt::format("{} and {} more", options_.inputs[0], options_.inputs.size() - 1);
  }

  [[noreturn]] static void rethrow_with_place(const std::exception_ptr& error, const std::string& where) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& cause) {
      DS_FAIL("{}: {}", where, cause.what());
    }
  }

  void check_ids(const Conversation& row, const std::vector<int32_t>& tokens) const {
    const int32_t highest = tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end());
    DS_CHECK(highest < embedding_rows_,
             "{}: row {} holds token {} but config.json says vocab_size {}: tokenizer.json and config.json are not of "
             "one model",
             options_.target, row.id, highest, embedding_rows_);
  }

  // Cuts, writes and counts; returns how many samples of the row had something left to learn from.
  int64_t keep_samples(const Conversation& row, std::vector<Sample>& samples) {
    int64_t kept = 0;
    for (Sample& sample : samples) {
      if (embedding_rows_ > 0) check_ids(row, sample.tokens);
      const bool cut = static_cast<int64_t>(sample.tokens.size()) > options_.max_length;
      if (cut) {
        sample.tokens.resize(static_cast<size_t>(options_.max_length));
        sample.mask.resize(static_cast<size_t>(options_.max_length));
      }
      const int64_t supervised = std::count(sample.mask.begin(), sample.mask.end(), 1);
      if (supervised == 0) {
        figures_.lost_to_cut += cut;
        continue;
      }
      const std::string row_id = kept == 0 ? row.id : fmt::format("{}-{}", row.id, kept);
      writer_.add({row_id, sample.source, sample.category, sample.tokens, sample.mask});
      if (shown_ < options_.show) {
        show_sample(encoder_.tokenizer(), sample);
        ++shown_;
      }
      ++kept;
      ++figures_.samples;
      figures_.cut += cut;
      figures_.tokens += static_cast<int64_t>(sample.tokens.size());
      figures_.supervised += supervised;
      figures_.turns += sample.turns;
      figures_.thinking_blocks += sample.thinking_blocks;
    }
    return kept;
  }

  void report(const std::string& id) {
    const Figures& f = figures_;
    const double share = static_cast<double>(f.supervised) / static_cast<double>(f.tokens);
    say("samples", "{} with {} tokens, {:.1f} % supervised; {} turns, {} thinking blocks", with_commas(f.samples),
        with_commas(f.tokens), 100 * share, with_commas(f.turns), with_commas(f.thinking_blocks));
    if (f.cut + f.lost_to_cut > 0) {
      say("cut", "{} samples to {} tokens; {} more had nothing supervised left and were dropped", with_commas(f.cut),
          with_commas(options_.max_length), with_commas(f.lost_to_cut));
    }
    if (f.unfinished > 0) {
      say("", "{} rows hold an answer that a limit cut (finish_reason length): its end token is not supervised",
          with_commas(f.unfinished));
    }
    if (f.by_source.size() > 1) {
      std::string text;
      for (const auto& [source, rows] : f.by_source)
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", with_commas(rows), source);
      say("sources", "{}", text);
    }
    say("wrote", "{}  corpus {}", options_.output, id.substr(0, 12));
    summary_.facts["corpus"] = options_.output;
    summary_.facts["corpus_id"] = id;
    summary_.facts["samples"] = f.samples;
    summary_.facts["tokens"] = f.tokens;
    summary_.facts["supervised_tokens"] = f.supervised;
    summary_.facts["supervised_share"] = share;
    summary_.facts["turns"] = f.turns;
    summary_.facts["thinking_blocks"] = f.thinking_blocks;
    summary_.facts["samples_cut"] = f.cut;
    summary_.facts["samples_lost_to_cut"] = f.lost_to_cut;
    summary_.facts["rows_cut_in_generation"] = f.unfinished;
    summary_.facts["rows_by_source"] = f.by_source;
    summary_.facts["tokenizer_hash"] = encoder_.tokenizer().hash();
    summary_.facts["template_hash"] = encoder_.chat_template().hash();
    summary_.facts["template_switches"] = ordered_json::parse(encoder_.switches());
  }

  const PrepareOptions& options_;
  const ChatEncoder& encoder_;
  CorpusWriter writer_;
  const int64_t embedding_rows_;
  Summary summary_;
  Figures figures_;
  std::map<std::string, std::string> examples_;
  int64_t shown_ = 0;
};

// What the command may write, looked at before it reads.
void check_outputs(const PrepareOptions& options) {
  std::vector<std::filesystem::path> inputs = hf_files(options.target);
  inputs.insert(inputs.end(), options.inputs.begin(), options.inputs.end());
  check_output(options.output, inputs, "--output");
  if (std::filesystem::exists(options.output)) {
    DS_CHECK(is_corpus(options.output),
             "--output {}: a file of that name is there and is no corpus that can be read, so that it is not replaced\n"
             "       name another file, or remove that one",
             options.output);
    say("replaces", "{}, a corpus, once the new one is whole", options.output);
  }
  if (options.json.empty()) return;
  inputs.emplace_back(options.output);
  check_output(options.json, inputs, "--json");
}

}  // namespace

Summary prepare(const PrepareOptions& options) {
  DS_CHECK(options.max_length > 1, "--max-length {}: at least 2 tokens are needed", options.max_length);
  DS_CHECK(options.max_drop_fraction >= 0 && options.max_drop_fraction <= 1, "--max-drop-fraction {}: must lie in 0..1",
           options.max_drop_fraction);
  check_date(options.chat.date);
  check_outputs(options);
  ConversationReader reader(options.inputs, options.read);
  const ChatEncoder encoder(options.target, options.chat);
  say("target", "{}  vocabulary {}  tokenizer {}  template {}{}", options.target, encoder.tokenizer().size(),
      encoder.tokenizer().hash().substr(0, 6), encoder.chat_template().hash().substr(0, 6),
      encoder.chat_template().has_tags() ? " with generation tags" : "");

  Preparation preparation(options, encoder);
  Progress progress("prepare", 0, "rows");
  bool more = true;
  while (more) {
    std::vector<ConversationRow> batch;
    while (batch.size() < kBatch) {
      ConversationRow row;
      more = reader.next(row);
      if (!more) break;
      preparation.count_row();
      if (row.conversation)
        batch.push_back(std::move(row));
      else
        preparation.drop(row.dropped, row.where, row.detail);
    }
    std::vector<Conversation> conversations;
    for (ConversationRow& row : batch) conversations.push_back(std::move(*row.conversation));
    std::vector<Encoded> encoded = encode_rows(encoder, conversations);
    for (size_t i = 0; i < batch.size(); ++i) preparation.take(conversations[i], batch[i].where, std::move(encoded[i]));
    progress.advance(static_cast<int64_t>(batch.size()));
  }
  progress.finish();
  return preparation.finish();
}

void add_prepare_command(CLI::App& app) {
  struct Arguments {
    PrepareOptions options;
    std::string mask = "generated";
    std::vector<std::string> role_map, variables;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("prepare", "conversations -> corpus with loss mask");
  command->footer(
      "Example:\n  draftsmith prepare --target models/smollm2 --input answers.jsonl --output corpus.h5 --show 2\n\n"
      "A row is {\"messages\": [{\"role\": \"user\", \"content\": \"...\"}, ...]} or ShareGPT's {\"conversations\": "
      "[{\"from\", \"value\"}]}.");
  PrepareOptions& options = arguments->options;
  command->add_option("--target", options.target, "HF folder of the target: its tokenizer and chat template")
      ->required();
  command->add_option("--input", options.inputs, "JSON Lines files, or files with one JSON array")->required();
  command->add_option("--output", options.output, "the corpus to write")->required();
  command->add_option("--max-length", options.max_length, "tokens of a sample; longer ones are cut")
      ->check(CLI::Range(int64_t{2}, kMost))
      ->capture_default_str();
  command->add_option("--max-drop-fraction", options.max_drop_fraction, "fail when more of the rows are dropped")
      ->capture_default_str();
  command
      ->add_option("--mask", arguments->mask,
                   "generated: what the model itself generates; template: all that the template puts into the turn")
      ->check(CLI::IsMember({"generated", "template"}))
      ->capture_default_str();
  command->add_option("--show", options.show, "print this many samples, supervised text marked, tokens separated")
      ->check(CLI::Range(int64_t{0}, kMost))
      ->capture_default_str();
  command->add_option("--role-map", arguments->role_map,
                      "name=role for roles that are not known; role drop leaves such rows out");
  command->add_option("--template-variable", arguments->variables,
                      "name=value given to the chat template as in serving, e.g. enable_thinking=false");
  command->add_option("--date", options.chat.date, "2025-01-31: for templates that print the date");
  command->add_option("--json", options.json, "write the summary to this file as JSON");
  command->callback([arguments] {
    require_single_rank("prepare");
    PrepareOptions& options = arguments->options;
    options.read.role_map = role_map(arguments->role_map);
    options.chat.variables = template_variables(arguments->variables);
    options.chat.mask = arguments->mask == "template" ? MaskMode::as_template : MaskMode::generated;
    Summary summary = prepare(options);
    summary.json_file = options.json;
    summary.finish();
  });
}

}  // namespace draftsmith
