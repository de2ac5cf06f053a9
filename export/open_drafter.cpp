#include "export/open_drafter.h"

#include <algorithm>
#include <filesystem>

#include "export/format.h"
#include "launch/check.h"
#include "launch/file.h"

namespace draftsmith {

namespace fs = std::filesystem;

namespace {

// A run folder's `latest` names the newest checkpoint, relative to the run.
fs::path newest_checkpoint(const fs::path& run) {
  std::string name = read_file(run / "latest");
  while (!name.empty() && (name.back() == '\n' || name.back() == ' ')) name.pop_back();
  DS_CHECK(!name.empty(), "{}: is empty; name a checkpoint below {} instead", (run / "latest").string(),
           (run / "checkpoints").string());
  for (const fs::path& path : {run / name, run / "checkpoints" / name}) {
    if (fs::is_directory(path)) return path;
  }
  DS_FAIL("{}: names checkpoint {}, which is not there; name one of those below {} instead", (run / "latest").string(),
          name, (run / "checkpoints").string());
}

// The folder at or below `folder` that holds drafter.json; empty when there is none.
fs::path own_folder(const fs::path& folder) {
  for (const fs::path& path : {folder, folder / "drafter"}) {
    if (fs::exists(path / "drafter.json")) return path;
  }
  return {};
}

// What an export's own file says it was made of; empty for folders that other programs wrote.
std::string exported_from(const fs::path& folder) {
  const fs::path path = folder / "export.json";
  if (!fs::exists(path)) return "";
  const auto facts = nlohmann::json::parse(read_file(path), nullptr, false);
  const bool told = facts.is_object() && facts.contains("drafter_hash") && facts["drafter_hash"].is_string();
  return told ? facts["drafter_hash"].get<std::string>() : "";
}

std::string hash_of(const DrafterConfig& config, const NamedTensors& parameters, const at::Tensor& vocabulary) {
  Sha256 sha;
  nlohmann::ordered_json stated = to_json(config);
  // A key that is younger than some drafters counts where it says something, so that their hashes stay.
  if (config.fusion_init == DrafterConfig().fusion_init) stated.erase("fusion_init");
  sha.update(stated.dump());
  for (const auto& [name, tensor] : parameters) {
    const at::Tensor bytes = tensor.detach().to(at::kCPU, at::kFloat).contiguous();
    sha.update(fmt::format("{}:", name));
    for (int64_t size : bytes.sizes()) sha.update(fmt::format("{},", size));
    sha.update(bytes.const_data_ptr(), bytes.nbytes());
  }
  if (vocabulary.defined()) {
    const at::Tensor ids = vocabulary.to(at::kCPU).contiguous();
    sha.update(ids.const_data_ptr(), ids.nbytes());
  }
  return sha.hex();
}

// The names of a drafter's parameters, in their order: of one without values, beside a target that has only the sizes
// it needs. Which tokens its vocabulary holds does not matter for them.
std::vector<std::string> parameter_names(const DrafterConfig& config) {
  HfConfig target;
  target.hidden_size = config.hidden_size;
  target.num_hidden_layers = config.taps.back() + 2;
  target.vocab_size = std::max(config.mask_token + 1, config.vocabulary);
  const at::Tensor table = at::empty({target.vocab_size, target.hidden_size}, at::TensorOptions(at::kMeta));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : make_drafter(config, target, {table, table}, {}, 0)->parameters())
    names.push_back(name);
  return names;
}

const Format* exported_format(const std::string& folder) {
  for (const Format& format : formats()) {
    if (format.holds(folder)) return &format;
  }
  return nullptr;
}

}  // namespace

OpenedDrafter open_drafter(const std::string& folder, const Target& target) {
  DS_CHECK(fs::is_directory(folder), "{}: is no folder; --drafter takes a run, a checkpoint or an exported folder",
           folder);
  const TargetEnds ends{target.embedding(), target.head()};
  OpenedDrafter out;
  const fs::path start = fs::exists(fs::path(folder) / "latest") ? newest_checkpoint(folder) : fs::path(folder);
  if (const fs::path own = own_folder(start); !own.empty()) {
    out.folder = own.string();
    out.form = "drafter";
    out.drafter = load_drafter(out.folder, target.config(), ends, target.weight_hash(), &out.identity);
  } else if (const Format* found = exported_format(start.string())) {
    out.folder = start.string();
    out.form = found->name;
    out.drafter = found->read(out.folder, target.config(), ends, &out.identity);
    out.exported_from = exported_from(start);
    DS_CHECK(out.identity.target_hash.empty() || out.identity.target_hash == target.weight_hash(),
             "{}: was trained for a target with weights {}, {} has {}", out.folder, out.identity.target_hash,
             target.folder(), target.weight_hash());
  } else {
    DS_FAIL(
        "{}: is no drafter: it holds neither `latest` (a run of draftsmith train), nor drafter.json (a checkpoint), "
        "nor an export that can be "
        "read back (config.json of a z-lab folder, draft.gguf)",
        folder);
  }
  out.hash = drafter_hash(*out.drafter);
  return out;
}

std::string drafter_hash(const Drafter& drafter) {
  return hash_of(drafter.config(), drafter.parameters(), drafter.vocabulary().to_target);
}

std::string drafter_hash(const std::string& checkpoint) {
  const StoredDrafter stored = open_stored_drafter(checkpoint);
  const std::string path = checkpoint + "/drafter.json";
  const DrafterConfig config = drafter_from_json(stored.config, path);
  DS_CHECK(!config.taps.empty(), "{}: names no taps", path);
  NamedTensors named;
  for (const std::string& name : parameter_names(config)) named.emplace_back(name, stored.file.tensor(name));
  return hash_of(config, named, stored.ids());
}

std::vector<std::string> checkpoint_folders(const std::string& run) {
  const fs::path folder = fs::path(run) / "checkpoints";
  std::vector<std::pair<int64_t, std::string>> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    const size_t digits = std::string("step-").size();
    if (name.starts_with("step-") && name.size() > digits && name.size() < digits + 18 &&
        name.find_first_not_of("0123456789", digits) == std::string::npos)
      found.emplace_back(std::stoll(name.substr(digits)), entry.path().string());
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> folders;
  for (auto& [step, path] : found) folders.push_back(std::move(path));
  return folders;
}

}  // namespace draftsmith
