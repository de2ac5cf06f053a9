#include "models/drafters/drafter.h"

#include <fmt/ranges.h>

#include <filesystem>
#include <set>

#include "configs/yaml.h"
#include "launch/check.h"
#include "launch/file.h"
#include "models/drafters/kinds.h"
#include "models/parts/weights.h"

namespace draftsmith {

namespace {

struct Kind {
  const char* name;
  std::unique_ptr<Drafter> (*make)(const DrafterConfig&, const HfConfig&, const TargetEnds&, const DraftVocabulary&,
                                   uint64_t seed);
};

// One line per drafter.
constexpr Kind kKinds[] = {{"dflash", make_dflash}, {"dflare", make_dflare}};

constexpr int kFormat = 1;
// Behind every fault of stored weights.
constexpr const char* kRemedy =
    "\n       the weights are not whole or of another drafter: name another checkpoint, or train or export anew";
constexpr const char* kOffsets =
    "d2t";  // target id = draft id + d2t[draft id], as in published reduced-vocabulary drafters

const Kind& find_kind(const std::string& name) {
  std::vector<std::string> known;
  for (const Kind& kind : kKinds) {
    if (name == kind.name) return kind;
    known.emplace_back(kind.name);
  }
  const std::string near = nearest(name, known);
  DS_FAIL("drafter.kind `{}` is unknown; known: {}{}", name, fmt::join(known, ", "),
          near.empty() ? "" : fmt::format(" (did you mean `{}`?)", near));
}

// Ids that stand for something in text or batches and can never stand for "masked".
std::vector<std::pair<std::string, int64_t>> reserved_ids(const HfConfig& target) {
  std::vector<std::pair<std::string, int64_t>> ids;
  for (const int64_t id : target.eos_token_ids) ids.emplace_back("eos_token_id", id);
  if (target.pad_token_id >= 0) ids.emplace_back("pad_token_id", target.pad_token_id);
  if (target.bos_token_id >= 0) ids.emplace_back("bos_token_id", target.bos_token_id);
  if (target.raw.is_object() && target.raw.contains("unk_token_id") && target.raw["unk_token_id"].is_number_integer())
    ids.emplace_back("unk_token_id", target.raw["unk_token_id"].get<int64_t>());
  return ids;
}

void check_mask_token(int64_t mask, const HfConfig& target) {
  DS_CHECK(mask >= 0,
           "the drafter's mask token is not set: state drafter.mask_token, or let `draftsmith train` pick one");
  DS_CHECK(mask < target.vocab_size, "mask token {} is outside the embedding table of {} rows, which is never resized",
           mask, target.vocab_size);
  for (const auto& [name, id] : reserved_ids(target))
    DS_CHECK(mask != id,
             "mask token {} is the target's {}: that token occurs in text, so it cannot mean \"masked\"; take an "
             "unused or control id, or leave "
             "drafter.mask_token at -1 to have one picked",
             mask, name);
}

}  // namespace

DraftVocabulary make_draft_vocabulary(const std::vector<int64_t>& ids, int64_t size) {
  const std::set<int64_t> sorted(ids.begin(), ids.end());
  DS_CHECK(!sorted.empty(), "a draft vocabulary needs at least one token");
  DS_CHECK(*sorted.begin() >= 0 && *sorted.rbegin() < size, "draft vocabulary: id {} is outside the target's {} tokens",
           *sorted.begin() < 0 ? *sorted.begin() : *sorted.rbegin(), size);
  const at::NoGradGuard no_grad;
  DraftVocabulary vocabulary;
  vocabulary.to_target = at::tensor(std::vector<int64_t>(sorted.begin(), sorted.end()), at::kLong);
  vocabulary.from_target = at::full({size}, -1, at::kLong);
  vocabulary.from_target.index_put_({vocabulary.to_target}, at::arange(vocabulary.to_target.numel(), at::kLong));
  return vocabulary;
}

int64_t pick_mask_token(const HfConfig& target, const std::vector<int64_t>& special_ids, int64_t tokenizer_size,
                        const at::Tensor& used) {
  if (tokenizer_size < target.vocab_size) return tokenizer_size;
  std::set<int64_t> taken;
  for (const auto& [name, id] : reserved_ids(target)) taken.insert(id);
  const at::Tensor occurs = used.to(at::kCPU, at::kByte).contiguous();
  const uint8_t* in_data = occurs.const_data_ptr<uint8_t>();
  for (auto id = special_ids.rbegin(); id != special_ids.rend(); ++id)
    if (*id < target.vocab_size && !taken.contains(*id) && !in_data[*id]) return *id;
  DS_FAIL(
      "no embedding row is free for the mask token: the tokenizer uses all {} rows and every special token occurs in "
      "the data; state drafter.mask_token",
      target.vocab_size);
}

std::unique_ptr<Drafter> make_drafter(const DrafterConfig& config, const HfConfig& target, const TargetEnds& ends,
                                      const DraftVocabulary& vocabulary, uint64_t seed) {
  const Kind& kind = find_kind(config.kind);
  const DrafterConfig resolved = resolve_drafter(config, target);
  check_mask_token(resolved.mask_token, target);
  const std::vector<int64_t> table{target.vocab_size, target.hidden_size};
  DS_CHECK(ends.embedding.sizes() == table && ends.head.sizes() == table,
           "the target's embedding is {} x {} and its head {} x {}, its config.json says {} x {}",
           ends.embedding.size(0), ends.embedding.size(1), ends.head.size(0), ends.head.size(1), target.vocab_size,
           target.hidden_size);
  return kind.make(resolved, target, ends, vocabulary, seed);
}

void save_drafter(const Drafter& drafter, const DrafterIdentity& identity, const std::string& folder) {
  std::filesystem::create_directories(folder);
  NamedTensors tensors;
  for (const auto& [name, tensor] : drafter.parameters()) tensors.emplace_back(name, tensor.detach());
  if (drafter.vocabulary().to_target.defined()) {
    const at::Tensor& to_target = drafter.vocabulary().to_target;
    tensors.emplace_back(kOffsets, (to_target - at::arange(to_target.numel(), to_target.options())).contiguous());
  }
  write_safetensors(folder + "/drafter.safetensors", tensors);
  nlohmann::ordered_json json;
  json["format"] = kFormat;
  json["target_hash"] = identity.target_hash;
  json["corpus_id"] = identity.corpus_id;
  json["chat_template_hash"] = identity.chat_template_hash;
  json["drafter"] = to_json(drafter.config());
  write_file(folder + "/drafter.json", json.dump(2) + "\n");
}

namespace {

SafetensorsFile open_weights(const std::string& path) {
  try {
    return SafetensorsFile::open(path);
  } catch (const Error& error) {
    DS_FAIL("{}{}", error.what(), kRemedy);
  }
}

}  // namespace

NamedTensors StoredDrafter::parameters() const {
  NamedTensors named;
  for (const auto& [name, entry] : file.entries())
    if (name != kOffsets) named.emplace_back(name, file.tensor(name));
  return named;
}

at::Tensor StoredDrafter::ids() const {
  if (!file.has(kOffsets)) return {};
  const at::Tensor offsets = file.tensor(kOffsets).to(at::kLong);
  return offsets + at::arange(offsets.numel(), at::kLong);
}

StoredDrafter open_stored_drafter(const std::string& folder) {
  const std::string path = folder + "/drafter.json";
  const nlohmann::json json = nlohmann::json::parse(read_file(path), nullptr, false);
  DS_CHECK(json.is_object() && json.contains("drafter"),
           "{}: not a drafter's description (a JSON object with `drafter`){}", path, kRemedy);
  DS_CHECK(json.value("format", 0) == kFormat, "{}: format {}, this program reads {}", path, json.value("format", 0),
           kFormat);
  return {json["drafter"],
          {json.value("target_hash", ""), json.value("corpus_id", ""), json.value("chat_template_hash", "")},
          open_weights(folder + "/drafter.safetensors")};
}

std::unique_ptr<Drafter> load_drafter(const std::string& folder, const HfConfig& target, const TargetEnds& ends,
                                      const std::string& target_hash, DrafterIdentity* identity) {
  const StoredDrafter stored = open_stored_drafter(folder);
  DS_CHECK(target_hash.empty() || stored.identity.target_hash == target_hash,
           "{}: this drafter was trained for another target\n       it belongs to weights {}, the target given has "
           "{}\n       give the target it was trained for, or train "
           "anew:  draftsmith train",
           folder, stored.identity.target_hash, target_hash);
  if (identity != nullptr) *identity = stored.identity;
  DraftVocabulary vocabulary;
  if (const at::Tensor ids = stored.ids(); ids.defined())
    vocabulary = make_draft_vocabulary({ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.numel()},
                                       target.vocab_size);
  auto drafter = make_drafter(drafter_from_json(stored.config, folder + "/drafter.json"), target, ends, vocabulary, 0);
  assign_parameters(*drafter, stored.parameters(), stored.file.path());
  return drafter;
}

void restore_drafter(const Drafter& drafter, const DrafterIdentity& identity, const std::string& folder) {
  const StoredDrafter stored = open_stored_drafter(folder);
  const auto same = [&](const char* what, const std::string& there, const std::string& now) {
    DS_CHECK(there == now,
             "{}: was trained on another {}: {} there, {} now\n       give that one back, or train anew in another "
             "output.run",
             folder, what, there, now);
  };
  same("target", stored.identity.target_hash, identity.target_hash);
  same("corpus", stored.identity.corpus_id, identity.corpus_id);
  const at::Tensor ids = stored.ids(), wanted = drafter.vocabulary().to_target;
  DS_CHECK(ids.defined() == wanted.defined() && (!ids.defined() || ids.equal(wanted.to(at::kCPU))),
           "{}: its draft vocabulary is not the one that this run's data gives\n       give the feature store back "
           "that it was trained on, or train anew in another output.run",
           folder);
  assign_parameters(drafter, stored.parameters(), stored.file.path());
}

void assign_parameters(const Drafter& drafter, const NamedTensors& named, const std::string& where) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> given(named.begin(), named.end());
  for (auto& [name, parameter] : drafter.parameters()) {
    const auto found = given.find(name);
    DS_CHECK(found != given.end(), "{}: tensor `{}` is missing{}", where, name, kRemedy);
    DS_CHECK(found->second.sizes() == parameter.sizes(), "{}: tensor `{}` has shape [{}], the drafter's is [{}]{}",
             where, name, fmt::join(found->second.sizes(), ", "), fmt::join(parameter.sizes(), ", "), kRemedy);
    const int64_t bad = first_not_finite(found->second.to(at::kCPU).contiguous());
    DS_CHECK(bad < 0, "{}: tensor `{}` holds a value that is not finite at element {}{}", where, name, bad, kRemedy);
    at::Tensor(parameter).copy_(found->second);
    given.erase(found);
  }
  DS_CHECK(given.empty(), "{}: tensor `{}` belongs to no parameter of a {} drafter ({} such){}", where,
           given.begin()->first, drafter.config().kind, given.size(), kRemedy);
}

}  // namespace draftsmith
