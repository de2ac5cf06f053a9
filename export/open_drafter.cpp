#include "export/open_drafter.h"

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
  DS_CHECK(!name.empty(), "{}: is empty", (run / "latest").string());
  for (const fs::path& path : {run / name, run / "checkpoints" / name}) {
    if (fs::is_directory(path)) return path;
  }
  DS_FAIL("{}: names checkpoint {}, which is not there", (run / "latest").string(), name);
}

// The folder at or below `folder` that holds drafter.json; empty when there is none.
fs::path own_folder(const fs::path& folder) {
  for (const fs::path& path : {folder, folder / "drafter"}) {
    if (fs::exists(path / "drafter.json")) return path;
  }
  return {};
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
  Sha256 sha;
  sha.update(to_json(drafter.config()).dump());
  for (const auto& [name, tensor] : drafter.parameters()) {
    const at::Tensor bytes = tensor.detach().to(at::kCPU, at::kFloat).contiguous();
    sha.update(fmt::format("{}:", name));
    for (int64_t size : bytes.sizes()) sha.update(fmt::format("{},", size));
    sha.update(bytes.const_data_ptr(), bytes.nbytes());
  }
  if (drafter.vocabulary().to_target.defined()) {
    const at::Tensor ids = drafter.vocabulary().to_target.to(at::kCPU).contiguous();
    sha.update(ids.const_data_ptr(), ids.nbytes());
  }
  return sha.hex();
}

}  // namespace draftsmith
