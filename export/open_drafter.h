// Opens a drafter whatever its folder is: a run, a checkpoint, a drafter's own folder, or an exported one that can be
// read back.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/drafters/drafter.h"
#include "models/targets/target.h"

namespace draftsmith {

struct OpenedDrafter {
  std::unique_ptr<Drafter> drafter;
  DrafterIdentity identity;
  std::string folder;         // where its weights were found
  std::string form;           // "drafter" or the export format it was read from
  std::string hash;           // drafter_hash()
  std::string exported_from;  // an export's: drafter_hash() of the drafter it was made of, as its export.json says
};

// Decides by the files in `folder`: `latest` (a run), drafter.json, the files of an export format. Throws Error with
// what it looked for when it is none of these, and when the drafter was made for another target than this one.
OpenedDrafter open_drafter(const std::string& folder, const Target& target);

// SHA-256 over the configuration and every parameter's name, shape and fp32 bytes: the identity of a trained drafter.
std::string drafter_hash(const Drafter& drafter);
// The same of a checkpoint's folder, without its target: the bytes are hashed as they lie in the file.
std::string drafter_hash(const std::string& checkpoint);

// Folders of a run's checkpoints, newest first; empty when there is none.
std::vector<std::string> checkpoint_folders(const std::string& run);

}  // namespace draftsmith
