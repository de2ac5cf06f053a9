// DFlare: a DFlash block drafter in which each layer mixes the taps with weights of its own and has key and value
// projections for the target's features beside those for the block (arXiv 2606.02091;
// shared/research/dflare_dfly_mtp.md 1). One k_norm over both, one context norm for all layers.
#include "models/drafters/block_drafter.h"
#include "models/drafters/kinds.h"

namespace draftsmith {

std::unique_ptr<Drafter> make_dflare(const DrafterConfig& config, const HfConfig& target, const TargetEnds& ends,
                                     const DraftVocabulary& vocabulary, uint64_t seed) {
  DrafterConfig own = config;
  if (own.fusion_init.empty()) own.fusion_init = "angelslim";  // the authors' code
  return std::make_unique<BlockDrafter>(own, target, ends, vocabulary, seed, make_layerwise_conditioning);
}

}  // namespace draftsmith
