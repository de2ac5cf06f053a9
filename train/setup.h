// The start of a run: everything opened and checked before the first step, in the order of its cost.
//
// Of the target only the embedding and the head are loaded (and the layers that an initialisation copies): the features
// stand in for the rest.
#pragma once

#include <memory>
#include <string>

#include "configs/train_config.h"
#include "data/feature_store.h"
#include "models/drafters/drafter.h"
#include "train/samples.h"

namespace draftsmith {

struct TrainingSetup {
  TrainConfig config;  // resolved: taps, mask token, vocabulary size and shapes filled in
  HfConfig target;
  std::shared_ptr<FeatureStore> store;
  std::unique_ptr<SampleStream> samples;
  TargetEnds ends;
  std::unique_ptr<Drafter> drafter;
  NamedTensors input_scales;
  DrafterIdentity identity;
  double coverage = 1;  // share of supervised training tokens that the draft vocabulary holds
  int64_t parameters = 0;
};

// Throws Error for: a store made by other weights than the target's (both hashes), taps that the store lacks, a
// vocabulary that does not fit, a mask token that occurs in the data, and whatever its parts refuse.
TrainingSetup set_up_training(const TrainConfig& config, at::Device device);

// Prints what is trained on what, as a person reads it.
void describe_setup(const TrainingSetup& setup);

}  // namespace draftsmith
