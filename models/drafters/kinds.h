// The makers of all kinds of drafters, for the table in drafter.cpp. Each is a file of its own that says what the
// drafter is composed of.
#pragma once

#include "models/drafters/drafter.h"

namespace draftsmith {

std::unique_ptr<Drafter> make_dflash(const DrafterConfig& config, const HfConfig& target, const TargetEnds& ends,
                                     const DraftVocabulary& vocabulary, uint64_t seed);
std::unique_ptr<Drafter> make_dflare(const DrafterConfig& config, const HfConfig& target, const TargetEnds& ends,
                                     const DraftVocabulary& vocabulary, uint64_t seed);

}  // namespace draftsmith
