// Targets against Transformers (references made by goldens/make_target_goldens.py) and against themselves: batching,
// caching and padding change nothing.
#include "models/targets/target.h"

#include <gtest/gtest.h>

#include "data/safetensors.h"
#include "launch/check.h"

namespace draftsmith {
namespace {

const std::string kTargets = std::string(DRAFTSMITH_GOLDENS) + "/targets/";

float largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<float>();
}

TargetInput input_of(const at::Tensor& tokens, std::vector<int64_t> taps = {}) {
  TargetInput input;
  input.tokens = tokens;
  input.taps = std::move(taps);
  return input;
}

class TinyTarget : public ::testing::TestWithParam<const char*> {
 protected:
  TinyTarget()
      : folder_(kTargets + GetParam()),
        target_(load_target(folder_)),
        reference_(SafetensorsFile::open(folder_ + "/reference.safetensors")),
        tokens_(reference_.tensor("tokens")) {}

  at::Tensor hidden(const TargetInput& input, KvCache& cache) const { return target_->forward(input, cache).hidden; }
  at::Tensor hidden(const at::Tensor& tokens) const {
    KvCache cache = target_->make_cache(tokens.size(0), 4);
    return hidden(input_of(tokens), cache);
  }
  // Row `row` of the reference tokens, first `count`.
  at::Tensor row(int64_t row, int64_t count) const { return tokens_.narrow(0, row, 1).narrow(1, 0, count); }

  std::string folder_;
  std::unique_ptr<Target> target_;
  SafetensorsFile reference_;
  at::Tensor tokens_;  // [2, 48]
};

INSTANTIATE_TEST_SUITE_P(Targets, TinyTarget,
                         ::testing::Values("llama-tied-f32", "llama-untied-llama3-f16-sharded", "llama-linear-f32",
                                           "qwen3-tied-bf16-sharded", "qwen3-untied-yarn-bf16"));

TEST_P(TinyTarget, LogitsAndTapsEqualTransformers) {
  KvCache cache = target_->make_cache(2);
  const TargetOutput output = target_->forward(input_of(tokens_, {2, 0, 1}), cache);
  // Values reach 24 and pass 3 layers of fp32 sums in another order: about 20 roundings of 1e-6. A wrong tap, angle,
  // mask or bias is off by more than 0.1.
  EXPECT_LT(largest_difference(target_->logits(output.hidden), reference_.tensor("logits")), 1e-4);
  EXPECT_LT(largest_difference(output.hidden, reference_.tensor("hidden")), 1e-4);
  const at::Tensor taps = reference_.tensor("taps");  // [2, 48, L, H]
  EXPECT_LT(largest_difference(output.taps.select(2, 0), taps.select(2, 2)), 1e-4);
  EXPECT_LT(largest_difference(output.taps.select(2, 1), taps.select(2, 0)), 1e-4);
  EXPECT_LT(largest_difference(output.taps.select(2, 2), taps.select(2, 1)), 1e-4);
}

TEST_P(TinyTarget, AFewTokensAtOnceHaveTheBitsOfSingleSteps) {
  for (const int64_t past : {0, 1, 30}) {
    KvCache steps = target_->make_cache(1, 4), block = target_->make_cache(1, 64);
    if (past > 0) {
      hidden(input_of(row(0, past)), steps);
      hidden(input_of(row(0, past)), block);
    }
    const at::Tensor next = tokens_.narrow(0, 0, 1).narrow(1, past, 8);
    const at::Tensor together = hidden(input_of(next), block);
    const at::Tensor together_logits = target_->logits(together);
    for (int64_t i = 0; i < 8; ++i) {
      const at::Tensor alone = hidden(input_of(next.narrow(1, i, 1)), steps);
      EXPECT_TRUE(at::equal(alone[0][0], together[0][i])) << "token " << i << " after " << past;
      EXPECT_TRUE(at::equal(target_->logits(alone)[0][0], together_logits[0][i])) << "token " << i << " after " << past;
    }
  }
}

TEST_P(TinyTarget, RaggedRowsEqualEachRowAlone) {
  TargetInput input = input_of(tokens_.narrow(1, 0, 40).clone(), {1});
  input.counts = {40, 13};
  input.tokens[1].narrow(0, 13, 27).fill_(95);  // padding of any content
  KvCache cache = target_->make_cache(2);
  const TargetOutput together = target_->forward(input, cache);
  EXPECT_EQ(cache.lengths(), (std::vector<int64_t>{40, 13}));
  for (int64_t r = 0; r < 2; ++r) {
    KvCache single = target_->make_cache(1);
    const int64_t count = input.counts[static_cast<size_t>(r)];
    const TargetOutput alone = target_->forward(input_of(row(r, count), {1}), single);
    // Products of another size add in another order.
    EXPECT_LT(largest_difference(together.hidden[r].narrow(0, 0, count), alone.hidden[0]), 2e-5);
    EXPECT_LT(largest_difference(together.taps[r].narrow(0, 0, count), alone.taps[0]), 2e-5);
  }
  // And on from there, one token each at different positions.
  TargetInput next = input_of(tokens_.select(1, 40).unsqueeze(1));
  const at::Tensor states = hidden(next, cache);
  const at::Tensor longer = at::cat({row(1, 13), next.tokens.narrow(0, 1, 1)}, 1);
  EXPECT_LT(largest_difference(states[1][0], hidden(longer)[0][13]), 2e-5);
  EXPECT_LT(largest_difference(states[0][0], hidden(row(0, 41))[0][40]), 2e-5);
}

TEST_P(TinyTarget, LeftAndRightPaddedGenerationEqualsSingle) {
  const std::vector<int64_t> lengths{12, 5};
  at::Tensor left = at::full({2, 12}, 95, at::kLong), mask = at::zeros({2, 12}, at::kLong);
  for (int64_t r = 0; r < 2; ++r) {
    const int64_t n = lengths[static_cast<size_t>(r)];
    left[r].narrow(0, 12 - n, n).copy_(row(r, n)[0]);
    mask[r].narrow(0, 12 - n, n).fill_(1);
  }
  TargetInput input = right_pad(left, mask);
  EXPECT_EQ(input.counts, lengths);
  KvCache cache = target_->make_cache(2, 4);
  at::Tensor states = hidden(input, cache);
  at::Tensor last = at::stack({states[0][11], states[1][4]});
  std::vector<std::vector<int64_t>> batched(2);
  for (int64_t step = 0; step < 10; ++step) {
    const at::Tensor best = target_->logits(last).argmax(-1);
    for (int64_t r = 0; r < 2; ++r) batched[static_cast<size_t>(r)].push_back(best[r].item<int64_t>());
    last = hidden(input_of(best.unsqueeze(1)), cache).select(1, 0);
  }
  for (int64_t r = 0; r < 2; ++r) {
    at::Tensor text = row(r, lengths[static_cast<size_t>(r)]);
    std::vector<int64_t> single;
    for (int64_t step = 0; step < 10; ++step) {
      const at::Tensor best = target_->logits(hidden(text).select(1, text.size(1) - 1)).argmax(-1);
      single.push_back(best.item<int64_t>());
      text = at::cat({text, best.unsqueeze(1)}, 1);
    }
    EXPECT_EQ(batched[static_cast<size_t>(r)], single) << "row " << r;
  }
}

TEST_P(TinyTarget, TruncatedTokensLeaveNoTrace) {
  KvCache cache = target_->make_cache(1, 4);
  hidden(input_of(row(0, 20)), cache);
  hidden(input_of(row(1, 8)), cache);
  cache.truncate(0, 20);
  const at::Tensor after = hidden(input_of(tokens_.narrow(0, 0, 1).narrow(1, 20, 4)), cache);
  KvCache clean = target_->make_cache(1, 4);
  hidden(input_of(row(0, 20)), clean);
  EXPECT_TRUE(at::equal(after, hidden(input_of(tokens_.narrow(0, 0, 1).narrow(1, 20, 4)), clean)));
}

TEST_P(TinyTarget, CaptureStopsAfterItsLastTapWithTheSameTaps) {
  TargetInput input = input_of(tokens_, {0, 1});
  KvCache whole = target_->make_cache(2), partial = target_->make_cache(2);
  const TargetOutput all = target_->forward(input, whole);
  input.hidden = false;
  const TargetOutput some = target_->forward(input, partial);
  EXPECT_FALSE(some.hidden.defined());
  EXPECT_TRUE(at::equal(all.taps, some.taps));
  input = input_of(at::full({2, 1}, 5, at::kLong));
  EXPECT_THROW(target_->forward(input, partial), Error);  // its last layer holds nothing
}

TEST_P(TinyTarget, OtherDtypesAgreeToTheirPrecision) {
  for (const auto dtype : {at::kDouble, at::kBFloat16}) {
    TargetOptions options;
    options.dtype = dtype;
    const std::unique_ptr<Target> other = load_target(folder_, options);
    TargetInput input = input_of(tokens_);
    input.counts = {48, 31};
    KvCache cache = other->make_cache(2);
    const at::Tensor first = other->logits(other->forward(input, cache).hidden);
    const at::Tensor truth = reference_.tensor("logits");
    // bf16 keeps 8 bits: a sanity check of the padded attention path; fp64 shows that path to be exact up to the
    // reference's own fp32.
    const double tolerance = dtype == at::kDouble ? 1e-4 : 1.5;
    EXPECT_LT(largest_difference(first[0], truth[0]), tolerance);
    EXPECT_LT(largest_difference(first[1].narrow(0, 0, 31), truth[1].narrow(0, 0, 31)), tolerance);
    cache.truncate(0, 40);
    const at::Tensor second = other->logits(
        other->forward(input_of(at::stack({tokens_[0].narrow(0, 40, 8), tokens_[1].narrow(0, 31, 8)})), cache).hidden);
    EXPECT_LT(largest_difference(second[0], truth[0].narrow(0, 40, 8)), tolerance);
    EXPECT_LT(largest_difference(second[1], truth[1].narrow(0, 31, 8)), tolerance);
  }
}

TEST_P(TinyTarget, RefusesWhatTheModelDoesNotHave) {
  KvCache cache = target_->make_cache(1, 4);
  EXPECT_THROW(hidden(input_of(at::tensor({96}, at::kLong).view({1, 1})), cache), Error);
  EXPECT_THROW(hidden(input_of(at::tensor({-1}, at::kLong).view({1, 1})), cache), Error);
  EXPECT_THROW(hidden(input_of(row(0, 4), {3}), cache), Error);
  EXPECT_THROW(hidden(input_of(tokens_), cache), Error);  // two rows
  hidden(input_of(row(0, 48)), cache);
  hidden(input_of(row(0, 16)), cache);
  EXPECT_THROW(hidden(input_of(row(0, 1)), cache), Error);  // 64 positions
  EXPECT_EQ(cache.length(0), 64);
  TargetInput none = input_of(row(0, 1));
  none.hidden = false;
  EXPECT_THROW(target_->forward(none, cache), Error);
  EXPECT_THROW(target_->embed(at::tensor({96}, at::kLong)), Error);
}

TEST_P(TinyTarget, EmbedsAndHashes) {
  EXPECT_TRUE(
      at::equal(target_->embed(tokens_), target_->embedding().index_select(0, tokens_.flatten()).view({2, 48, 32})));
  EXPECT_EQ(target_->weight_hash().size(), 64U);
  EXPECT_EQ(target_->head().data_ptr() == target_->embedding().data_ptr(), target_->config().tie_word_embeddings);
}

TEST(RightPad, RefusesAHoleAndAnEmptyRow) {
  const at::Tensor tokens = at::ones({1, 4}, at::kLong);
  EXPECT_THROW(right_pad(tokens, at::tensor({1, 0, 1, 1}).view({1, 4})), Error);
  EXPECT_THROW(right_pad(tokens, at::zeros({1, 4}, at::kLong)), Error);
}

TEST(SmolLm2, LogitsArgmaxAndTapsEqualTransformersOn512Tokens) {
  const char* folder = std::getenv("DRAFTSMITH_SMOLLM2");
  if (!folder) GTEST_SKIP() << "DRAFTSMITH_SMOLLM2 does not name the HF folder of SmolLM2-135M-Instruct";
  const std::unique_ptr<Target> target = load_target(folder);
  const SafetensorsFile reference = SafetensorsFile::open(kTargets + "smollm2.safetensors");
  const at::Tensor tokens = reference.tensor("tokens"), positions = reference.tensor("positions"),
                   layers = reference.tensor("layers");
  TargetInput input = input_of(tokens);
  for (int64_t i = 0; i < layers.numel(); ++i) input.taps.push_back(layers[i].item<int64_t>());
  KvCache cache = target->make_cache(1);
  const TargetOutput output = target->forward(input, cache);
  const at::Tensor logits = target->logits(output.hidden)[0];
  EXPECT_TRUE(at::equal(logits.argmax(-1), reference.tensor("argmax")));
  // Logits reach 47 after 30 layers: 2e-4 is about 50 roundings of such a value, a seventieth of the smallest gap
  // between two best logits (0.0145).
  EXPECT_LT(largest_difference(logits.slice(1, 0, logits.size(1), 192), reference.tensor("logits_every_192")), 2e-4);
  EXPECT_LT(largest_difference(logits[511], reference.tensor("last_logits")), 2e-4);
  EXPECT_LT(largest_difference(output.hidden[0].index_select(0, positions), reference.tensor("hidden")), 2e-4);
  // The residual stream holds a few values of up to 25,000 (the first token); the bound is relative to the
  // token's largest value: about 40 roundings, where a neighbouring layer differs by more than 1e-2.
  const at::Tensor taps = output.taps[0].index_select(0, positions), truth = reference.tensor("taps");
  EXPECT_LT(((taps - truth).abs().amax(-1) / truth.abs().amax(-1)).max().item<float>(), 5e-6);

  // Decoded one by one over a cache, the last 8 tokens say the same, and a block of 8 says it with the same bits.
  cache.truncate(0, 504);
  const at::Tensor block = target->logits(target->forward(input_of(tokens.narrow(1, 504, 8)), cache).hidden)[0];
  EXPECT_LT(largest_difference(block, logits.narrow(0, 504, 8)), 2e-4);
  cache.truncate(0, 504);
  for (int64_t i = 0; i < 8; ++i) {
    const at::Tensor step = target->logits(target->forward(input_of(tokens.narrow(1, 504 + i, 1)), cache).hidden)[0][0];
    EXPECT_TRUE(at::equal(step, block[i])) << "token " << 504 + i;
  }
}

}  // namespace
}  // namespace draftsmith
