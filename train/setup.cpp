#include "train/setup.h"

#include <fmt/ranges.h>

#include <filesystem>
#include <numeric>

#include "data/text.h"
#include "export/format.h"
#include "launch/check.h"
#include "launch/file.h"
#include "launch/log.h"
#include "models/parts/linear.h"
#include "models/parts/weights.h"

namespace draftsmith {

namespace {

constexpr int64_t kScaleRows = 128;  // rows that unit_taps measures

void check_store(const FeatureStore& store, const TrainConfig& config, const HfConfig& target,
                 const std::string& target_hash) {
  const StoreIdentity& identity = store.identity();
  DS_CHECK(identity.hidden_size == target.hidden_size,
           "{}: features of width {}, the target's hidden size is {}: they belong to another target", store.folder(),
           identity.hidden_size, target.hidden_size);
  DS_CHECK(identity.target_hash == target_hash,
           "{}: these features were made by other weights than {}\n       the store says {}, the target has {}\n       "
           "give the target they were made by, or capture again into another folder:  draftsmith capture --target {} "
           "--corpus CORPUS --output FOLDER --taps {}",
           store.folder(), config.target.folder, identity.target_hash, target_hash, config.target.folder,
           fmt::join(identity.taps, ","));
}

// Columns of the store's taps that the drafter wants, empty when it wants all of them; fills in the drafter's taps when
// it names none.
std::vector<int64_t> choose_taps(DrafterConfig& drafter, const FeatureStore& store) {
  const std::vector<int64_t>& held = store.identity().taps;
  if (drafter.taps.empty() || drafter.taps == held) {
    drafter.taps = held;
    return {};
  }
  std::vector<int64_t> columns;
  for (const int64_t tap : drafter.taps) {
    const auto found = std::find(held.begin(), held.end(), tap);
    DS_CHECK(found != held.end(),
             "{}: holds taps [{}], but drafter.taps wants {}\n       take taps that it holds, or capture again into "
             "another folder:  draftsmith capture --target TARGET --corpus CORPUS --output FOLDER --taps {}",
             store.folder(), fmt::join(held, ", "), tap, fmt::join(drafter.taps, ","));
    columns.push_back(found - held.begin());
  }
  return columns;
}

// The most frequent supervised tokens of the training rows, `size` of them; fewer when fewer occur. Ties keep the lower
// id.
DraftVocabulary frequent_tokens(const at::Tensor& counts, int64_t size, double& coverage) {
  std::vector<int64_t> order(static_cast<size_t>(counts.numel()));
  std::iota(order.begin(), order.end(), 0);
  const int64_t* count = counts.const_data_ptr<int64_t>();
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return count[a] > count[b]; });
  int64_t kept = 0, total = counts.sum().item<int64_t>();
  std::vector<int64_t> ids;
  for (const int64_t id : order) {
    if (static_cast<int64_t>(ids.size()) == size || count[id] == 0) break;
    ids.push_back(id);
    kept += count[id];
  }
  coverage = static_cast<double>(kept) / static_cast<double>(total);
  return make_draft_vocabulary(ids, counts.numel());
}

int64_t choose_mask_token(int64_t wanted, const HfConfig& target, const std::string& folder, const at::Tensor& counts) {
  if (wanted < 0) {
    const Tokenizer tokenizer = Tokenizer::load(folder);
    return pick_mask_token(target, tokenizer.special_ids(), tokenizer.size(), counts.gt(0));
  }
  if (wanted < counts.numel()) {
    const int64_t uses = counts[wanted].item<int64_t>();
    DS_CHECK(uses == 0,
             "drafter.mask_token {} occurs {} times in the data, so it cannot mean \"masked\"; take an unused or "
             "control id, or -1 to have one picked",
             wanted, uses);
  }
  return wanted;
}

TargetEnds load_ends(const std::string& folder, const HfConfig& target, at::Device device) {
  Weights weights(folder, at::kFloat, device);
  const std::vector<int64_t> shape{target.vocab_size, target.hidden_size};
  TargetEnds ends;
  ends.embedding = weights.take("model.embed_tokens.weight", shape);
  ends.head = target.tie_word_embeddings ? ends.embedding : weights.take("lm_head.weight", shape);
  return ends;
}

std::string template_hash(const std::string& folder) {
  const std::filesystem::path base(folder);
  for (const char* name : {"chat_template.jinja", "tokenizer_config.json"})
    if (std::filesystem::exists(base / name)) return ChatTemplate::load(folder).hash();
  return "";
}

}  // namespace

TrainingSetup set_up_training(const TrainConfig& config, at::Device device) {
  TrainingSetup setup;
  setup.config = config;
  setup.target = read_hf_config(config.target.folder);
  setup.store = std::make_shared<FeatureStore>(FeatureStore::open(config.data.store));
  const WeightFolder weights = WeightFolder::open(config.target.folder);
  setup.identity =
      DrafterIdentity{weights.weight_hash(), setup.store->identity().corpus_id, template_hash(config.target.folder)};
  check_store(*setup.store, config, setup.target, setup.identity.target_hash);
  DS_CHECK(config.objective.labels != "teacher" || setup.store->identity().with_last,
           "objective.labels: teacher needs the target's last state, which {} does not hold\n       capture again with "
           "it, or take objective.labels: data",
           config.data.store);

  DrafterConfig& drafter = setup.config.drafter;
  if (!drafter.taps.empty()) resolve_drafter(drafter, setup.target);  // taps that no store can hold are refused first
  const std::vector<int64_t> columns = choose_taps(drafter, *setup.store);
  setup.samples = std::make_unique<SampleStream>(*setup.store, config.data, config.schedule.seed);
  const at::Tensor counts = setup.samples->token_counts(setup.target.vocab_size);
  drafter.mask_token = choose_mask_token(drafter.mask_token, setup.target, config.target.folder, counts);
  DraftVocabulary vocabulary;
  if (drafter.vocabulary > 0) {
    vocabulary =
        frequent_tokens(setup.samples->supervised_counts(setup.target.vocab_size), drafter.vocabulary, setup.coverage);
  }
  drafter = resolve_drafter(drafter, setup.target);
  if (!config.output.export_for.empty())
    format(config.output.export_for).check(drafter, setup.target, FloatType::kFloat32);
  setup.samples->configure(columns, drafter.block, config.schedule.rows_per_pass, device);

  setup.ends = load_ends(config.target.folder, setup.target, device);
  setup.drafter =
      make_drafter(drafter, setup.target, setup.ends, vocabulary, static_cast<uint64_t>(config.schedule.seed));
  DraftStart start;
  if (drafter.init == "target") start.target = &weights;
  if (drafter.unit_taps) start.tap_scale = setup.samples->tap_scale(kScaleRows);
  setup.input_scales = setup.drafter->initialise(start);
  for (const auto& [name, parameter] : setup.drafter->parameters()) setup.parameters += parameter.numel();
  return setup;
}

void describe_setup(const TrainingSetup& setup) {
  const HfConfig& target = setup.target;
  const DrafterConfig& drafter = setup.drafter->config();
  say("target", "{}  {} layers x {}, vocabulary {}{}  weights {}",
      std::filesystem::path(setup.config.target.folder).filename().string(), target.num_hidden_layers,
      target.hidden_size, target.vocab_size, target.tie_word_embeddings ? " (tied)" : "",
      setup.identity.target_hash.substr(0, 6));
  say("drafter", "{}  {} layers, block {}, taps {}, mask token {}, {} trainable", drafter.kind, drafter.layers,
      drafter.block, fmt::join(drafter.taps, " "), drafter.mask_token,
      short_count(static_cast<double>(setup.parameters)));
  if (drafter.vocabulary > 0) {
    say("", "draft vocabulary {}: {:.2f} % of the supervised tokens", with_commas(drafter.vocabulary),
        100 * setup.coverage);
  }
  say("data", "{} training and {} validation rows of {} ({} without two supervised tokens in a row), {} tokens",
      with_commas(static_cast<int64_t>(setup.samples->training().size())),
      with_commas(static_cast<int64_t>(setup.samples->validation().size())), with_commas(setup.store->rows()),
      setup.samples->without_anchor(), short_count(static_cast<double>(setup.store->tokens())));
  if (setup.ends.embedding.is_cpu()) say("products", "{}", linear_backend());
}

}  // namespace draftsmith
