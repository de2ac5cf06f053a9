// The training loop of one process: draw, forward, backward, update, and what is told about it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "train/checkpoint.h"
#include "train/objective.h"
#include "train/optimizer.h"
#include "train/setup.h"

namespace draftsmith {

// Sums over the samples of an optimizer step or of a validation.
struct TrainFigures {
  double numerator = 0, denominator = 0;
  int64_t samples = 0, tokens = 0, anchors = 0, slots = 0, unknown_labels = 0;
  int64_t accepted = 0;                           // leading correct slots over all blocks
  std::vector<int64_t> slot_count, slot_correct;  // index k-1
  Rounds rounds;                                  // simulated decoding; validation only
  double gradient_norm = 0;
  double data_seconds = 0, compute_seconds = 0;

  double loss() const { return denominator > 0 ? numerator / denominator : 0; }
  // 1 + mean accepted length over all anchors.
  double expected_tau() const {
    return anchors > 0 ? 1 + static_cast<double>(accepted) / static_cast<double>(anchors) : 0;
  }
  double tau() const {
    return rounds.rounds > 0 ? static_cast<double>(rounds.tokens) / static_cast<double>(rounds.rounds) : 0;
  }
  double slot_accuracy(size_t index) const;
  void add(const ObjectiveTerms& terms);
};

class Trainer {
 public:
  // Goes on from the newest checkpoint of `run` when there is one.
  Trainer(TrainingSetup& setup, RunFolder& run);

  int64_t total_steps() const { return total_steps_; }
  const TrainState& state() const { return state_; }
  // Trains to the end of the schedule, with validation and checkpoints on the way; returns the last validation's
  // figures (no anchors when there are no validation rows).
  TrainFigures run();
  // One optimizer step.
  TrainFigures step();
  TrainFigures validate() const;

 private:
  bool finished() const;
  double progress() const;
  ObjectiveSection objective() const;
  void learn(const PackedSamples& pass, TrainFigures& figures) const;
  void record(const TrainFigures& figures, double rate_share);
  void record_validation(const TrainFigures& figures);
  void watch(const TrainFigures& figures);
  void checkpoint();
  void check_finite(const char* what, double value) const;
  std::string progress_line(const TrainFigures& figures) const;

  TrainingSetup& setup_;
  RunFolder& run_;
  Optimizer optimizer_;
  TrainState state_;
  int64_t total_steps_ = 0, saved_step_ = -1;
  bool warned_empty_ = false;
};

}  // namespace draftsmith
