// The formats a drafter can be exported in: one table, read by `export`, by the opening of folders and by whoever
// checks a configuration beforehand.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "export/zlab.h"
#include "models/drafters/drafter.h"

namespace draftsmith {

struct ExportInput {
  const Drafter& drafter;
  DrafterIdentity identity;
  HfConfig target;
  std::string target_folder;
  std::string folder;  // to write into; exists
  FloatType type = FloatType::kFloat32;
  std::string with_target;  // f32, f16, q8_0: the target's own weights in the runtime's format; empty: none
};

struct Format {
  const char* name;  // as --for takes it
  const char* runtimes;
  const char* dtypes;  // it is written in
  bool keeps_vectors;  // one-dimensional tensors are fp32 whatever the dtype
  // Throws Error with the reason and the remedy when the runtimes cannot run this pair.
  void (*check)(const DrafterConfig& drafter, const HfConfig& target, FloatType type);
  // Bytes to be written, roughly.
  int64_t (*bytes)(const ExportInput& input);
  // Writes the files; returns their names within the folder.
  std::vector<std::string> (*write)(const ExportInput& input);
  // Whether a folder holds this format, and the drafter in it.
  bool (*holds)(const std::string& folder);
  std::unique_ptr<Drafter> (*read)(const std::string& folder, const HfConfig& target, const TargetEnds& ends,
                                   DrafterIdentity* identity);
  // How it is served, a line a command.
  std::vector<std::string> (*serve)(const ExportInput& input);
};

const std::vector<Format>& formats();
// Throws Error listing the known ones.
const Format& format(const std::string& name);

}  // namespace draftsmith
