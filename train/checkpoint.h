// The run folder: what a run was told, what it said, and where it can go on.
//
//   config.yaml            the resolved config; a folder with another one is another run's and is refused
//   metrics.jsonl          one line per optimizer step and per validation; what depends on the clock stands under
//   "time" log.jsonl              warnings and events checkpoints/step-N/    drafter.json, drafter.safetensors,
//   optimizer.safetensors, state.json (written last) latest                 the newest whole checkpoint, relative to
//   the run
//
// A checkpoint is written aside, then renamed, then named by `latest`, then older ones are removed: at every moment
// there is a good one. On resume the metric lines after the checkpoint are dropped, since those steps come again.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "launch/lock.h"
#include "models/drafters/drafter.h"
#include "train/optimizer.h"

namespace draftsmith {

// Where a run stands; everything else follows from the config.
struct TrainState {
  int64_t step = 0;     // finished optimizer steps
  int64_t samples = 0;  // drawn so far, over all epochs
  double seconds = 0;   // of training
  std::string library;  // of the large products: another one would change the last bits
};

class RunFolder {
 public:
  // Opens or makes `folder` for the run that `config_yaml` describes, and keeps other processes out of it. Throws Error
  // when it belongs to another run (the first differing line is shown; how a folder is spelt does not count: whose it
  // is is in the checkpoints), is a non-empty folder of something else, is in use, or cannot be written to.
  RunFolder(const std::string& folder, const std::string& config_yaml);

  // Folder of the newest checkpoint; empty when the run is new.
  std::string newest() const;
  // Loads it into drafter and optimizer and cuts the metrics back to it. Throws Error when the checkpoint was trained
  // on other data than `identity` and the drafter's vocabulary say.
  TrainState resume(const Drafter& drafter, const DrafterIdentity& identity, Optimizer& optimizer);
  void save(const TrainState& state, const Drafter& drafter, const DrafterIdentity& identity,
            const Optimizer& optimizer, int64_t keep);

  void metric(const nlohmann::ordered_json& line);
  void event(const std::string& kind, const nlohmann::ordered_json& facts);
  // Prints a warning and logs it.
  void warning(const std::string& text);
  const std::string& folder() const { return folder_; }

 private:
  void remove_old(int64_t keep) const;
  std::string folder_;
  std::unique_ptr<FolderLock> lock_;
};

}  // namespace draftsmith
