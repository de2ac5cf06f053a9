// Making, keeping and refusing drafters; the mask token.
#include <gtest/gtest.h>

#include "launch/file.h"
#include "models/drafters/drafter.h"
#include "models/parts/linear.h"
#include "tests/models/drafters/tiny_drafter.h"
#include "tests/support.h"

namespace draftsmith {
namespace {

using namespace tiny;

TEST(Drafter, FolderGivesTheSameDrafterBack) {
  const testing::TemporaryFolder folder;
  const auto drafter = make(2, at::kFloat, make_draft_vocabulary({40, 7, 13}, 61));
  save_drafter(*drafter, {"abc", "corpus", "template"}, folder / "d");
  DrafterIdentity identity;
  const auto again = load_drafter(folder / "d", tiny_target(), tiny_ends(at::kFloat), "abc", &identity);
  EXPECT_EQ(identity.corpus_id, "corpus");
  const auto before = drafter->parameters(), after = again->parameters();
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(at::equal(before[i].second, after[i].second)) << before[i].first;
  EXPECT_TRUE(at::equal(again->vocabulary().to_target, drafter->vocabulary().to_target));
}

TEST(Drafter, AnotherTargetIsRefusedWithBothHashes) {
  const testing::TemporaryFolder folder;
  save_drafter(*make(1, at::kFloat), {"abc", "", ""}, folder / "d");
  const std::string text =
      testing::message_of([&] { load_drafter(folder / "d", tiny_target(), tiny_ends(at::kFloat), "def"); });
  EXPECT_NE(text.find("abc"), std::string::npos) << text;
  EXPECT_NE(text.find("def"), std::string::npos) << text;
}

TEST(Drafter, FaultyWeightsAreNamed) {
  const auto drafter = make(1, at::kFloat);
  const auto with = [&](const std::function<void(NamedTensors&)>& change) {
    NamedTensors named = drafter->parameters();
    change(named);
    return testing::message_of([&] { assign_parameters(*drafter, named, "file"); });
  };
  EXPECT_EQ(with([](NamedTensors&) {}), "no error was thrown");
  EXPECT_NE(with([](NamedTensors& n) { n.erase(n.begin()); }).find("fc.weight"), std::string::npos);
  EXPECT_NE(with([](NamedTensors& n) { n.emplace_back("extra.weight", at::zeros({1})); }).find("extra.weight"),
            std::string::npos);
  EXPECT_NE(with([](NamedTensors& n) { n[0].second = at::zeros({24, 71}); }).find("71"), std::string::npos);
  EXPECT_NE(with([](NamedTensors& n) { n[0].second = at::full({24, 72}, NAN); }).find("not finite"), std::string::npos);
}

TEST(Drafter, ImpossibleConfigurationsAreRefusedWithTheReason) {
  const auto refused = [](const std::function<void(DrafterConfig&)>& change) {
    DrafterConfig config = tiny_config(1);
    change(config);
    return testing::message_of([&] { make_drafter(config, tiny_target(), tiny_ends(at::kFloat), {}, 1); });
  };
  EXPECT_EQ(refused([](DrafterConfig&) {}), "no error was thrown");
  EXPECT_NE(refused([](DrafterConfig& c) { c.kind = "dflush"; }).find("did you mean `dflash`"), std::string::npos);
  EXPECT_NE(refused([](DrafterConfig& c) { c.mask_token = 2; }).find("eos_token_id"), std::string::npos);
  EXPECT_NE(refused([](DrafterConfig& c) { c.mask_token = 3; }).find("pad_token_id"), std::string::npos);
  EXPECT_NE(refused([](DrafterConfig& c) { c.mask_token = 61; }).find("outside"), std::string::npos);
  EXPECT_NE(refused([](DrafterConfig& c) { c.taps = {7}; }).find("last layer"), std::string::npos);
  EXPECT_NE(refused([](DrafterConfig& c) { c.taps = {9}; }).find("no layer"), std::string::npos);
  EXPECT_NE(refused([](DrafterConfig& c) { c.taps = {3, 1}; }).find("ascend"), std::string::npos);
  EXPECT_NE(refused([](DrafterConfig& c) { c.block = 1; }).find("block"), std::string::npos);
  EXPECT_NE(refused([](DrafterConfig& c) { c.num_key_value_heads = 3; }).find("divide"), std::string::npos);
}

TEST(MaskToken, IsARowThatNoTextUses) {
  HfConfig target = tiny_target();
  const at::Tensor nothing = at::zeros({61}, at::kByte);
  EXPECT_EQ(pick_mask_token(target, {0, 1, 2, 3, 4}, 58, nothing), 58);  // the first row behind the tokenizer
  EXPECT_EQ(pick_mask_token(target, {0, 1, 2, 3, 4, 5}, 61, nothing), 5);
  at::Tensor used = nothing.clone();
  used[5] = 1;
  EXPECT_EQ(pick_mask_token(target, {0, 1, 2, 3, 4, 5}, 61, used), 4);
  EXPECT_THROW(pick_mask_token(target, {1, 2, 3}, 61, nothing), Error);
}

}  // namespace
}  // namespace draftsmith
