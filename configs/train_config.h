// Everything a training run is told: one plain struct per section of the recipe, defaults and meaning beside each
// field.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/drafter_config.h"
#include "configs/yaml.h"

namespace draftsmith {

struct TargetSection {
  std::string folder;  // HF folder of the target whose features the store holds
};

struct DataSection {
  std::string store;                  // feature store folder
  double validation_fraction = 0.02;  // share of rows kept out of training, by the hash of the row id
  int64_t anchors = 512;              // anchors drawn per sample and epoch; 0: every eligible position
};

struct ObjectiveSection {
  std::string labels = "data";  // data: the token that follows in the row | teacher: the target's own arg max there
                                // (the store must hold its last state)
  std::string weighting =
      "decay";                 // decay: exp(-(k-1)/gamma) at slot k | dpace: from the running probability of acceptance
  double gamma = 7;            // of decay, in slots; 0: every slot weighs the same
  double gamma_per_epoch = 0;  // added to gamma at each whole epoch (AngelSlim's growing decay)
  double gamma_end = 0;        // gamma grows evenly over the run to this; 0: it does not
  double alpha = 0.5;          // of dpace
  std::string normalize = "weights";        // the loss is a sum over: weights | count (of supervised slots) | samples
  int64_t chunk_bytes = int64_t{64} << 20;  // largest piece of logits that exists at once
};

struct OptimizerSection {
  std::string kind = "adamw";  // adamw | muon: matrices by Muon, the rest by AdamW
  double lr = 6e-4;            // peak, of AdamW
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;  // matrices only, decoupled
  double clip = 1.0;        // largest global norm of the gradient; 0: no clipping
  double muon_lr = 0.02;    // peak, of Muon; scaled by sqrt(max(1, rows/columns))
  double muon_momentum = 0.95;
  int64_t muon_iterations = 5;  // Newton-Schulz steps
};

struct ScheduleSection {
  std::string kind = "cosine";  // cosine | wsd | linear | constant, all after a linear warm-up
  double warmup = 0.04;         // share of the run
  double decay = 0.2;           // of wsd: share of the run at its end in which the rate falls
  double floor = 0;             // smallest rate as a share of the peak
  double epochs = 6;
  int64_t max_steps = 0;  // optimizer steps; 0: as many as the epochs give. Shortens the schedule too
  double max_minutes =
      0;  // of training time; 0: no limit. Shortens the schedule too, and makes it depend on the machine's speed
  int64_t samples_per_step = 4;  // samples whose gradients one optimizer step sums
  int64_t rows_per_pass = 2048;  // samples are packed into one forward pass until they have so many block rows
  int64_t seed = 1;              // of order, anchors, initialisation and validation split
};

struct CheckpointSection {
  int64_t every_steps = 200;  // 0: only at the end
  int64_t keep = 2;           // newest checkpoints that stay
};

struct EvaluateSection {
  int64_t every_steps = 200;  // validation; 0: only at the end
  int64_t rows = 64;          // of the validation part at most
};

struct OutputSection {
  std::string run;         // run folder
  std::string export_for;  // format of `draftsmith export` that the drafter is meant for: whether it can be written is
                           // looked at before training; empty: none
};

struct TrainConfig {
  TargetSection target;
  DrafterConfig drafter;
  DataSection data;
  ObjectiveSection objective;
  OptimizerSection optimizer;
  ScheduleSection schedule;
  CheckpointSection checkpoint;
  EvaluateSection evaluate;
  OutputSection output;
};

// Names every section and field to `visitor`, with ranges and choices.
void describe(ConfigVisitor& visitor, TrainConfig& config);

// Reads `file`, then the assignments; throws Error as ConfigReader says, and for missing folders and combinations that
// cannot work.
// `folders` false: data.store and output.run may be missing (of a recipe that is only looked at).
TrainConfig read_train_config(const std::string& file, const std::vector<std::string>& assignments,
                              bool folders = true);
// The same checks on a reader that is already filled.
TrainConfig read_train_config(ConfigReader& reader, bool folders = true);

// The resolved config as YAML that read_train_config() takes back.
std::string to_yaml(const TrainConfig& config);

}  // namespace draftsmith
