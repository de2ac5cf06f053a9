#include "models/capture_command.h"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "configs/train_config.h"
#include "data/hf_files.h"
#include "data/manifest.h"
#include "data/safetensors.h"
#include "data/text.h"
#include "launch/check.h"
#include "launch/file.h"
#include "launch/log.h"
#include "launch/progress.h"
#include "launch/ranks.h"
#include "launch/summary.h"
#include "models/capture.h"
#include "models/device.h"
#include "models/parts/library_product.h"

namespace draftsmith {

namespace {

struct CaptureCommand {
  std::string target, corpus, output, config, dtype = "float32", json;
  std::vector<std::string> assignments;
  std::vector<int64_t> taps;
  int64_t drafter_layers = 0, shard_bytes = int64_t{256} << 20;
  CaptureOptions capture;
  DeviceOptions device;
};

// The taps to capture: given, or those that the recipe's drafter reads, or the default ones of a drafter with so many
// layers.
std::vector<int64_t> choose_taps(const CaptureCommand& options, const HfConfig& target) {
  const int ways =
      (options.taps.empty() ? 0 : 1) + (options.drafter_layers > 0 ? 1 : 0) + (options.config.empty() ? 0 : 1);
  DS_CHECK(ways == 1,
           "say which taps to capture in one way: --config RECIPE (those its drafter reads), --taps 1,8,15, or "
           "--drafter-layers N");
  DS_CHECK(options.assignments.empty() || !options.config.empty(), "--set changes a recipe, and --config names none");
  if (!options.taps.empty()) {
    check_taps(options.taps, target.num_hidden_layers, "--taps");
    return options.taps;
  }
  TrainConfig recipe;
  if (options.drafter_layers > 0) recipe.drafter.layers = options.drafter_layers;
  if (!options.config.empty()) {
    ConfigReader reader(options.config);
    for (const std::string& assignment : options.assignments) reader.set(assignment);
    describe(reader, recipe);
    reader.finish();
  }
  return resolve_drafter(recipe.drafter, target).taps;
}

void check_json_output(const CaptureCommand& options) {
  if (options.json.empty()) return;
  std::vector<std::filesystem::path> inputs = hf_files(options.target);
  inputs.emplace_back(options.corpus);
  if (!options.config.empty()) inputs.emplace_back(options.config);
  check_output(options.json, inputs, "--json");
}

// Tokens whose features a former run has stored.
int64_t stored_tokens(const std::string& folder) {
  if (!has_manifest(folder)) return 0;
  int64_t tokens = 0;
  for (const ManifestShard& shard : read_manifest(folder).shards) {
    if (std::filesystem::exists(std::filesystem::path(folder) / shard.file)) tokens += shard.tokens;
  }
  return tokens;
}

// What every row must satisfy; the number of tokens of all.
int64_t check_rows(const Corpus& corpus, const std::string& path, const HfConfig& target) {
  DS_CHECK(corpus.rows() > 0, "{}: the corpus has no row", path);
  int64_t tokens = 0;
  for (int64_t row = 0; row < corpus.rows(); ++row) {
    const int64_t length = corpus.length(row);
    DS_CHECK(length <= target.max_position_embeddings,
             "{}: row {} has {} tokens, the target {} positions\n       prepare it again with --max-length {}", path,
             row, length, target.max_position_embeddings, target.max_position_embeddings);
    tokens += length;
  }
  return tokens;
}

void say_taps(const std::vector<int64_t>& taps, bool last) {
  std::string text;
  for (const int64_t tap : taps) text += fmt::format("{}{}", text.empty() ? "" : " ", tap);
  say("taps", "{}{}", text, last ? "  and the last state" : "");
}

void capture(CaptureCommand& options) {
  require_single_rank("capture");
  check_writable_folder(std::filesystem::path(options.output).parent_path());
  check_json_output(options);
  const at::Device device = use_device(options.device);

  // Everything that can be wrong is looked at before the target is loaded.
  const HfConfig config = read_hf_config(options.target);
  const Corpus corpus = Corpus::open(options.corpus);
  const std::string tokenizer_hash = Tokenizer::load(options.target).hash();
  DS_CHECK(corpus.tokenizer_hash() == tokenizer_hash,
           "{}: made with another tokenizer: the corpus says {}, {} has {}\n       make it again:  draftsmith prepare "
           "--target {} --input ROWS --output {}",
           options.corpus, corpus.tokenizer_hash().substr(0, 12), options.target, tokenizer_hash.substr(0, 12),
           options.target, options.corpus);
  const int64_t tokens = check_rows(corpus, options.corpus, config);
  StoreIdentity identity;
  identity.target_hash = WeightFolder::open(options.target).weight_hash();
  identity.target_name = std::filesystem::path(options.target).lexically_normal().filename().string();
  identity.corpus_id = corpus.id();
  identity.taps = options.capture.taps = choose_taps(options, config);
  identity.hidden_size = config.hidden_size;
  identity.dtype = options.dtype;
  identity.with_last = options.capture.last;

  const int64_t states = static_cast<int64_t>(identity.taps.size()) + (identity.with_last ? 1 : 0);
  const int64_t per_token = states * config.hidden_size * (identity.dtype == "bfloat16" ? 2 : 4);
  const int64_t missing = std::max<int64_t>(0, tokens - stored_tokens(options.output)) * per_token;
  check_writable_folder(options.output, missing + missing / 50);

  FeatureStoreWriter writer(options.output, identity, corpus.rows(), options.shard_bytes);
  const int64_t done = writer.rows_done();
  int64_t tokens_done = 0;
  for (int64_t row = 0; row < done; ++row) tokens_done += corpus.length(row);
  const int64_t left = (tokens - tokens_done) * per_token;
  say("target", "{}  weights {}", options.target, identity.target_hash.substr(0, 8));
  say("corpus", "{}  {} rows, {} tokens", options.corpus, with_commas(corpus.rows()), with_commas(tokens));
  say_taps(identity.taps, identity.with_last);
  say("disk", "{} a token: {} in all, {} to write, {} free", short_bytes(static_cast<double>(per_token)),
      short_bytes(static_cast<double>(tokens * per_token)), short_bytes(static_cast<double>(left)),
      short_bytes(static_cast<double>(std::filesystem::space(options.output).available)));
  if (done > 0) say("resumed", "{} rows are captured already", with_commas(done));

  double seconds = 0;
  if (done < corpus.rows()) {
    use_product_library(ProductLibrary::kOpenBlas);  // a measured choice may fall otherwise when the run goes on, and
                                                     // with it the last bits
    TargetOptions target_options;
    target_options.device = device;
    const std::unique_ptr<Target> target = load_target(options.target, target_options);
    Progress progress("capture", tokens, "tokens", tokens_done);
    capture_rows(
        *target, corpus, done, options.capture, [&](const FeatureSample& sample) { writer.append(sample); },
        [&](int64_t more) { progress.advance(more); });
    progress.finish();
    seconds = progress.seconds();
  }
  writer.finish();

  Summary summary;
  summary.command = "capture";
  summary.json_file = options.json;
  summary.rows_in = summary.rows_kept = corpus.rows();
  summary.facts["output"] = options.output;
  summary.facts["tokens"] = tokens;
  summary.facts["bytes"] = tokens * per_token;
  summary.facts["rows_this_run"] = corpus.rows() - done;
  summary.facts["seconds_this_run"] = seconds;
  summary.facts["tokens_per_second"] = seconds > 0 ? static_cast<double>(tokens - tokens_done) / seconds : 0;
  say("wrote", "{}", options.output);
  summary.finish();
}

}  // namespace

void add_capture_command(CLI::App& app) {
  auto options = std::make_shared<CaptureCommand>();
  CaptureCommand& o = *options;
  CLI::App* command =
      app.add_subcommand("capture", "corpus + target -> feature store; goes on where a killed run stopped");
  command->add_option("--target", o.target, "HF folder of the target")->required()->check(CLI::ExistingDirectory);
  command->add_option("--corpus", o.corpus, "corpus that `draftsmith prepare` wrote")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("--output", o.output, "folder of the feature store")->required();
  command->add_option("--config", o.config, "recipe whose drafter says which taps to capture")
      ->check(CLI::ExistingFile);
  command->add_option("--set", o.assignments, "section.key=value, changes the recipe");
  command->add_option("--taps", o.taps, "tap ids: l is the residual stream after 0-based layer l")->delimiter(',');
  command
      ->add_option("--drafter-layers", o.drafter_layers,
                   "the default taps of a drafter with so many layers, one for each")
      ->check(CLI::Range(1, 64));
  command->add_option("--dtype", o.dtype, "of the features on disk")
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->capture_default_str();
  command->add_flag("--last", o.capture.last,
                    "also the state after the final norm, which objectives with a teacher need");
  command->add_option("--batch-tokens", o.capture.batch_tokens, "most tokens of one forward")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command
      ->add_option("--shard-bytes", o.shard_bytes,
                   "a file of the store ends behind so many bytes; what a killed run loses at most")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  command->add_option("--json", o.json, "write the summary there");
  add_device_options(*command, o.device);
  command->footer(
      "example:\n  draftsmith capture --target models/SmolLM2-135M-Instruct --corpus corpus.h5 --output features "
      "--drafter-layers 5");
  command->callback([options] { capture(*options); });
}

}  // namespace draftsmith
