#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace draftsmith {

double learning_rate_share(const ScheduleSection& schedule, double done, double total) {
  const double warmup = schedule.warmup * total;
  if (done + 1 < warmup) return (done + 1) / warmup;
  const double fall = [&] {  // 0 at the peak, 1 at the floor
    if (schedule.kind == "constant") return 0.0;
    const double length = schedule.kind == "wsd" ? schedule.decay * total : total - warmup;
    if (length <= 0) return 0.0;
    const double part = std::clamp((done - (total - length)) / length, 0.0, 1.0);
    return schedule.kind == "cosine" ? 0.5 * (1 - std::cos(std::numbers::pi * part)) : part;
  }();
  return schedule.floor + (1 - schedule.floor) * (1 - fall);
}

}  // namespace draftsmith
