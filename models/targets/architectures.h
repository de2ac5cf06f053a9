// The architectures that load_target() knows; each is made from its config and takes its weights.
#pragma once

#include <memory>

#include "models/targets/target.h"

namespace draftsmith {

std::unique_ptr<Target> make_llama(const HfConfig& config, const TargetOptions& options, Weights& weights);
std::unique_ptr<Target> make_qwen3(const HfConfig& config, const TargetOptions& options, Weights& weights);

}  // namespace draftsmith
