// What a recipe would train, from the target's config.json alone: no weights, no features, no memory.
#pragma once

#include "configs/train_config.h"
#include "models/drafters/drafter.h"

namespace draftsmith {

struct DryRun {
  TrainConfig config;    // resolved, but for what only the data can tell: mask token -1, vocabulary as asked for
  NamedTensors tensors;  // on the meta device: names and shapes
  int64_t parameters = 0;
};

// Throws Error with what set_up_training() would refuse and config.json can tell.
DryRun dry_run(const TrainConfig& config);

// Prints the resolved configuration, every tensor with its shape, and the number of trainable parameters.
void describe_dry_run(const DryRun& run);

}  // namespace draftsmith
