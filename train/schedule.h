// The learning rate over a run, as a share of its peak.
#pragma once

#include "configs/train_config.h"

namespace draftsmith {

// `done` of `total` steps lie behind (real numbers: a run limited by time counts its share of the time). Warm-up over
// the first share: (done + 1) / warm-up, as SpecForge counts; then cosine to the floor; wsd: constant, then linear to
// the floor over the last share; linear to the floor; or constant.
double learning_rate_share(const ScheduleSection& schedule, double done, double total);

}  // namespace draftsmith
