// DFlare: its tensors, the start of its mixture, what it refuses.
#include <gtest/gtest.h>

#include "launch/file.h"
#include "models/drafters/conditioning.h"
#include "models/drafters/drafter.h"
#include "models/parts/linear.h"
#include "tests/models/drafters/tiny_drafter.h"
#include "tests/support.h"

namespace draftsmith {
namespace {

using namespace tiny;

std::map<std::string, at::Tensor> tensors(const Drafter& drafter) {
  const NamedTensors named = drafter.parameters();
  return {named.begin(), named.end()};
}

TEST(DFlare, TensorsAreThePublishedOnes) {
  const auto drafter = make(2, at::kFloat, {}, "dflare");
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [name, tensor] : tensors(*drafter)) shapes[name] = tensor.sizes().vec();
  EXPECT_EQ(shapes.size(), 2u * 13 + 3);
  EXPECT_EQ(shapes.at("layer_fusion_weights"), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(shapes.at("hidden_norm.weight"), (std::vector<int64_t>{24}));
  EXPECT_EQ(shapes.at("layers.1.self_attn.k_proj_target.weight"), (std::vector<int64_t>{16, 24}));
  EXPECT_EQ(shapes.at("layers.1.self_attn.v_proj_target.weight"), (std::vector<int64_t>{16, 24}));
  EXPECT_EQ(shapes.count("fc.weight"), 0u);
  EXPECT_EQ(drafter->plain_parameters(), std::vector<std::string>{"layer_fusion_weights"});
}

// Where the two published rules put the weight for 7 layers and 9 taps, and how much of it
// (shared/research/dflare_dfly_mtp.md 1.3).
TEST(DFlare, MixtureStartsAsPublished) {
  const auto peaks = [](const at::Tensor& logits) {
    const at::Tensor at = logits.argmax(1);
    return std::vector<int64_t>(at.data_ptr<int64_t>(), at.data_ptr<int64_t>() + at.numel());
  };
  const at::Tensor slim = fusion_start("angelslim", 7, 9), spec = fusion_start("angelspec", 7, 9);
  EXPECT_EQ(peaks(slim), (std::vector<int64_t>{0, 1, 2, 3, 5, 6, 7}));
  EXPECT_EQ(peaks(spec), (std::vector<int64_t>{0, 1, 3, 4, 5, 7, 8}));
  const at::Tensor share = at::softmax(slim, 1);
  EXPECT_NEAR(share[4][5].item<double>(), 0.480, 5e-4);  // the note's three digits
  EXPECT_NEAR(share[4][0].item<double>(), 0.065, 5e-4);
  const at::Tensor most = std::get<0>(at::softmax(spec, 1).max(1));
  EXPECT_NEAR(most.min().item<double>(), 0.76, 5e-3);
  EXPECT_NEAR(most.max().item<double>(), 0.86, 5e-3);
  EXPECT_EQ(fusion_start("angelspec", 1, 3)[0].argmax().item<int64_t>(), 0);
  EXPECT_CONTAINS(testing::message_of([] { fusion_start("middle", 2, 3); }), "angelslim, angelspec");
}

TEST(DFlare, ScalesOfChannelsHaveNoPlaceInTheMixture) {
  DrafterConfig config = tiny_config(2, "dflare");
  config.unit_taps = true;
  const auto drafter = make_drafter(config, tiny_target(), tiny_ends(at::kFloat), {}, 1);
  DraftStart start;
  start.tap_scale = at::ones({3, 24});
  EXPECT_CONTAINS(testing::message_of([&] { drafter->initialise(start); }), "take unit_taps: false");
}

TEST(DFlare, AMixtureIsRefusedWhereThereIsNone) {
  DrafterConfig config = tiny_config(2);
  config.fusion_init = "angelspec";
  EXPECT_CONTAINS(testing::message_of([&] { make_drafter(config, tiny_target(), tiny_ends(at::kFloat), {}, 1); }),
                  "dflash has no layer-wise fusion");
}

}  // namespace
}  // namespace draftsmith
