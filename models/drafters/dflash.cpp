// DFlash: block drafter whose layers share one fusion of the target's features, norm(fc(taps)), and inject it through
// their own key and value projections (Chen, Liang, Liu, arXiv 2602.06036; shared/research/dflash.md).
#include "launch/check.h"
#include "models/drafters/block_drafter.h"
#include "models/drafters/kinds.h"

namespace draftsmith {

std::unique_ptr<Drafter> make_dflash(const DrafterConfig& config, const HfConfig& target, const TargetEnds& ends,
                                     const DraftVocabulary& vocabulary, uint64_t seed) {
  DS_CHECK(config.fusion_init.empty(), "drafter.fusion_init: dflash has no layer-wise fusion to start; leave it out");
  return std::make_unique<BlockDrafter>(config, target, ends, vocabulary, seed, make_fused_conditioning);
}

}  // namespace draftsmith
