// DFlash: see dflash.cpp. Only the table of kinds in drafter.cpp includes this.
#pragma once

#include "models/drafters/drafter.h"

namespace draftsmith {

std::unique_ptr<Drafter> make_dflash(const DrafterConfig& config, const HfConfig& target, const TargetEnds& ends,
                                     const DraftVocabulary& vocabulary, uint64_t seed);

}  // namespace draftsmith
