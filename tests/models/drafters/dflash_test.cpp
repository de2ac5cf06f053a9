// DFlash: its tensors and their start.
#include <gtest/gtest.h>

#include "launch/file.h"
#include "models/drafters/drafter.h"
#include "models/parts/linear.h"
#include "tests/models/drafters/tiny_drafter.h"
#include "tests/support.h"

namespace draftsmith {
namespace {

using namespace tiny;

TEST(DFlash, TensorsAreThePublishedOnes) {
  const auto drafter = make(2, at::kFloat);
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [name, tensor] : drafter->parameters()) shapes[name] = tensor.sizes().vec();
  EXPECT_EQ(shapes.size(), 2u * 11 + 3);
  EXPECT_EQ(shapes.at("fc.weight"), (std::vector<int64_t>{24, 72}));
  EXPECT_EQ(shapes.at("layers.1.self_attn.q_proj.weight"), (std::vector<int64_t>{32, 24}));
  EXPECT_EQ(shapes.at("layers.1.self_attn.k_norm.weight"), (std::vector<int64_t>{8}));
  EXPECT_EQ(shapes.at("layers.0.mlp.down_proj.weight"), (std::vector<int64_t>{24, 40}));
}

TEST(DFlash, StartFollowsTheSeedAndItsOptions) {
  DrafterConfig config = tiny_config(2);
  config.init_norm = 0.25;
  config.init_qk_norm = 1.4;
  const auto one = make_drafter(config, tiny_target(), tiny_ends(at::kFloat), {}, 5),
             same = make_drafter(config, tiny_target(), tiny_ends(at::kFloat), {}, 5),
             other = make_drafter(config, tiny_target(), tiny_ends(at::kFloat), {}, 6);
  const auto find = [](const Drafter& drafter, const std::string& wanted) {
    for (const auto& [name, tensor] : drafter.parameters())
      if (name == wanted) return tensor.detach();
    return at::Tensor();
  };
  EXPECT_TRUE(at::equal(find(*one, "fc.weight"), find(*same, "fc.weight")));
  EXPECT_FALSE(at::equal(find(*one, "fc.weight"), find(*other, "fc.weight")));
  EXPECT_NEAR(find(*one, "fc.weight").std().item<double>(), 0.2, 0.01);
  EXPECT_EQ(find(*one, "norm.weight")[3].item<float>(), 0.25f);
  EXPECT_EQ(find(*one, "layers.0.self_attn.q_norm.weight")[3].item<float>(), 1.4f);
}

}  // namespace
}  // namespace draftsmith
