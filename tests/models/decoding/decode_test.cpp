#include "models/decoding/decode.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "launch/check.h"
#include "models/decoding/batch.h"
#include "tests/models/tiny_model.h"

namespace draftsmith {
namespace {

const Target& tiny_target() {
  static const testing::TemporaryFolder* folder = new testing::TemporaryFolder;
  static const std::unique_ptr<Target> target = [] {
    at::set_num_threads(1);  // the products are too small to be shared
    tiny::write_model(*folder / "model");
    return load_target(*folder / "model");
  }();
  return *target;
}

// Proposes tokens of a known continuation, spoiled as `accept` says: the call's first accept(call) tokens are right,
// the next is wrong.
class Script : public Proposer {
 public:
  Script(std::vector<int64_t> prompt, std::vector<int64_t> answer, int64_t depth, std::function<int64_t()> accept,
         std::vector<int64_t> taps = {})
      : text_(std::move(prompt)), depth_(depth), accept_(std::move(accept)), taps_(std::move(taps)) {
    text_.insert(text_.end(), answer.begin(), answer.end());
  }
  std::vector<int64_t> taps() const override { return taps_; }
  int64_t depth() const override { return depth_; }
  void start() override { observed_.clear(), features_.clear(); }
  void observe(const std::vector<int64_t>& tokens, const at::Tensor& taps) override {
    observed_.insert(observed_.end(), tokens.begin(), tokens.end());
    if (!taps_.empty()) features_.push_back(taps.clone());
  }
  Proposal propose(int64_t anchor, int64_t tokens, const SamplingOptions&, uint64_t) override {
    EXPECT_EQ(anchor, text_[observed_.size()]);  // the anchor is the first token that has not been run
    EXPECT_LE(tokens, depth_);
    largest_ = std::max(largest_, tokens);
    const int64_t right = accept_();
    Proposal proposal;
    for (int64_t i = 0; i < tokens; ++i) {
      const size_t at = observed_.size() + 1 + static_cast<size_t>(i);
      const int64_t token = at < text_.size() ? text_[at] : 0;
      proposal.tokens.push_back(i < right ? token : (token + 1) % tiny::kVocabulary);
    }
    return proposal;
  }

  std::vector<int64_t> text_, observed_;
  std::vector<at::Tensor> features_;
  int64_t largest_ = 0;

 private:
  int64_t depth_;
  std::function<int64_t()> accept_;
  std::vector<int64_t> taps_;
};

std::vector<int64_t> prompt_of(int64_t length, int64_t seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<int64_t> prompt;
  for (int64_t i = 0; i < length; ++i) prompt.push_back(static_cast<int64_t>(random() % 256));
  return prompt;
}

DecodeOptions options_of(int64_t tokens) {
  DecodeOptions options;
  options.max_new_tokens = tokens;
  return options;
}

TEST(Decode, PlainGreedyTakesTheArgMaxOfTheWholeSequenceEachTime) {
  const Target& target = tiny_target();
  std::vector<int64_t> text = prompt_of(9, 1);
  const DecodeResult result = decode(target, nullptr, text, options_of(12), true);
  ASSERT_EQ(result.tokens.size(), 12U);
  ASSERT_EQ(result.gaps.size(), 12U);
  EXPECT_FALSE(result.stopped);
  EXPECT_TRUE(result.proposed.empty());
  for (size_t i = 0; i < result.tokens.size(); ++i) {
    KvCache cache = target.make_cache(1);
    TargetInput input;
    input.tokens = at::tensor(text, at::kLong).unsqueeze(0);
    const at::Tensor logits = target.logits(target.forward(input, cache).hidden[0][-1]);
    EXPECT_EQ(logits.argmax().item<int64_t>(), result.tokens[i]);
    const at::Tensor top = std::get<0>(logits.topk(2));
    EXPECT_NEAR((top[0] - top[1]).item<float>(), result.gaps[i], 1e-4);  // cached and whole passes sum in another order
    text.push_back(result.tokens[i]);
  }
}

TEST(Decode, GreedySpeculativeEqualsPlainGreedyForEveryPatternOfAcceptance) {
  const Target& target = tiny_target();
  std::set<int64_t> seen;
  for (int64_t seed = 0; seed < 12; ++seed) {
    const std::vector<int64_t> prompt = prompt_of(3 + seed, seed);
    const std::vector<int64_t> plain = decode(target, nullptr, prompt, options_of(40)).tokens;
    std::mt19937 random(static_cast<unsigned>(seed));
    const std::vector<std::function<int64_t()>> kinds{[] { return int64_t{0}; }, [] { return int64_t{99}; },
                                                      [&] { return static_cast<int64_t>(random() % 7); }};
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      for (const int64_t depth : {int64_t{1}, int64_t{5}}) {
        Script script(prompt, plain, depth, kinds[kind], {0, 2});
        const DecodeResult result = decode(target, &script, prompt, options_of(40));
        ASSERT_EQ(result.tokens, plain) << "seed " << seed << " kind " << kind << " depth " << depth;
        int64_t committed = 1;
        for (size_t round = 0; round < result.accepted.size(); ++round) {
          committed += result.accepted[round] + 1;
          EXPECT_LE(result.accepted[round], result.proposed[round]);
          if (depth == 5) seen.insert(result.accepted[round]);
        }
        EXPECT_EQ(committed, 40);
        if (kind == 0) {
          EXPECT_EQ(result.accepted.size(), 39U);
        }
        if (kind == 1 && depth == 5) {
          EXPECT_EQ(result.accepted.size(), 7U);  // 39 tokens by rounds of six, the last of three
        }
      }
    }
  }
  EXPECT_EQ(seen, (std::set<int64_t>{0, 1, 2, 3, 4, 5}));
}

TEST(Decode, TheProposerObservesEachCommittedTokenOnceWithItsFeatures) {
  const Target& target = tiny_target();
  const std::vector<int64_t> prompt = prompt_of(6, 3);
  const std::vector<int64_t> plain = decode(target, nullptr, prompt, options_of(30)).tokens;
  std::mt19937 random(5);
  Script script(prompt, plain, 4, [&] { return static_cast<int64_t>(random() % 5); }, {2, 0});
  decode(target, &script, prompt, options_of(30));
  ASSERT_GT(script.observed_.size(), prompt.size() + 10);
  EXPECT_EQ(script.observed_,
            std::vector<int64_t>(script.text_.begin(),
                                 script.text_.begin() + static_cast<std::ptrdiff_t>(script.observed_.size())));
  KvCache cache = target.make_cache(1);
  TargetInput input;
  input.tokens = at::tensor(script.observed_, at::kLong).unsqueeze(0);
  input.taps = {2, 0};
  const at::Tensor whole = target.forward(input, cache).taps[0], pieces = at::cat(script.features_);
  ASSERT_EQ(pieces.sizes(), whole.sizes());
  EXPECT_LT((pieces - whole).abs().max().item<float>(), 1e-4);  // sums in another order
}

TEST(Decode, AStopTokenInsideAnAcceptedBlockEndsTheOutputThere) {
  const Target& target = tiny_target();
  const std::vector<int64_t> prompt = prompt_of(8, 4);
  const std::vector<int64_t> plain = decode(target, nullptr, prompt, options_of(30)).tokens;
  for (size_t place = 0; place < 14; ++place) {
    DecodeOptions options = options_of(30);
    options.stop = {plain[place]};
    const auto first = static_cast<size_t>(std::find(plain.begin(), plain.end(), plain[place]) - plain.begin());
    const std::vector<int64_t> expected(plain.begin(), plain.begin() + static_cast<std::ptrdiff_t>(first) + 1);
    for (const int64_t depth : {1, 3, 6}) {
      Script script(prompt, plain, depth, [] { return int64_t{99}; });
      const DecodeResult result = decode(target, &script, prompt, options, true);
      EXPECT_EQ(result.tokens, expected);
      EXPECT_EQ(result.gaps.size(), expected.size());
      EXPECT_TRUE(result.stopped);
      if (!result.accepted.empty()) {
        int64_t committed = 1;
        for (const int64_t accepted : result.accepted) committed += accepted + 1;
        EXPECT_GE(committed, static_cast<int64_t>(expected.size()));
        EXPECT_LE(committed, static_cast<int64_t>(expected.size()) + 1);  // a drafted stop token has no bonus behind it
      }
    }
  }
}

TEST(Decode, TheLastBlockIsShortenedToTheBudget) {
  const Target& target = tiny_target();
  const std::vector<int64_t> prompt = prompt_of(5, 6);
  const std::vector<int64_t> plain = decode(target, nullptr, prompt, options_of(24)).tokens;
  for (int64_t limit = 1; limit <= 24; ++limit) {
    Script script(prompt, plain, 7, [] { return int64_t{99}; });
    const DecodeResult result = decode(target, &script, prompt, options_of(limit));
    EXPECT_EQ(result.tokens, std::vector<int64_t>(plain.begin(), plain.begin() + limit));
    EXPECT_LE(script.largest_, std::max<int64_t>(0, limit - 2));
  }
}

TEST(Decode, OutputEndsWhereTheModelsPositionsEnd) {
  const testing::TemporaryFolder folder;
  tiny::write_model(folder / "m", 7, {}, 24);
  const auto target = load_target(folder / "m");
  const std::vector<int64_t> prompt = prompt_of(10, 2);
  const DecodeResult plain = decode(*target, nullptr, prompt, options_of(100));
  EXPECT_EQ(plain.tokens.size(), 14U);
  Script script(prompt, plain.tokens, 7, [] { return int64_t{99}; });
  EXPECT_EQ(decode(*target, &script, prompt, options_of(100)).tokens, plain.tokens);
  EXPECT_THROW(decode(*target, nullptr, prompt_of(24, 2), options_of(1)), Error);
  EXPECT_THROW(decode(*target, nullptr, {}, options_of(1)), Error);
}

TEST(Decode, SampledOutputUnderTheMatchingRuleIsThatOfPlainSamplingWithTheSameSeed) {
  const Target& target = tiny_target();
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const std::vector<int64_t> prompt = prompt_of(7, static_cast<int64_t>(seed));
    DecodeOptions options = options_of(30);
    options.sampling = {0.9, seed % 2 ? 20 : 0, seed % 3 ? 0.9 : 1.0};
    options.seed = 100 + seed;
    const std::vector<int64_t> plain = decode(target, nullptr, prompt, options).tokens;
    std::mt19937 random(static_cast<unsigned>(seed));
    Script script(prompt, plain, 5, [&] { return static_cast<int64_t>(random() % 6); });
    EXPECT_EQ(decode(target, &script, prompt, options).tokens, plain);
    options.seed += 1;
    EXPECT_NE(decode(target, nullptr, prompt, options).tokens, plain);
  }
}

// A proposer that draws from a distribution of its own over a reduced vocabulary, whatever came before.
class Dice : public Proposer {
 public:
  explicit Dice(std::vector<int64_t> ids) : vocabulary_(make_draft_vocabulary(ids, tiny::kVocabulary)) {
    q_ = at::softmax(at::arange(vocabulary_.to_target.numel(), at::kFloat) * 0.4, 0);
  }
  std::vector<int64_t> taps() const override { return {}; }
  int64_t depth() const override { return 2; }
  const DraftVocabulary& vocabulary() const override { return vocabulary_; }
  void start() override {}
  void observe(const std::vector<int64_t>&, const at::Tensor&) override {}
  Proposal propose(int64_t, int64_t tokens, const SamplingOptions& sampling, uint64_t seed) override {
    EXPECT_GT(sampling.temperature, 0);  // the speculative rule asks for a sample
    Proposal proposal;
    for (int64_t i = 0; i < tokens; ++i) {
      proposal.tokens.push_back(
          vocabulary_.to_target[draw(q_, uniform(seed, static_cast<uint64_t>(i)))].item<int64_t>());
    }
    if (tokens > 0) proposal.q = q_.repeat({tokens, 1});
    return proposal;
  }

 private:
  DraftVocabulary vocabulary_;
  at::Tensor q_;
};

// The law of the first three tokens under top-k 3 has 27 cases: all are enumerated with plain forward passes.
TEST(Decode, SpeculativeSamplingOfTheWholeLoopKeepsTheLawOfThreeTokens) {
  const Target& target = tiny_target();
  const std::vector<int64_t> prompt = prompt_of(5, 8);
  DecodeOptions options = options_of(3);
  options.rule = VerifyRule::kSpeculative;
  options.sampling = {2.0, 3, 1.0};
  const auto next = [&](std::vector<int64_t> text) {
    KvCache cache = target.make_cache(1);
    TargetInput input;
    input.tokens = at::tensor(text, at::kLong).unsqueeze(0);
    const at::Tensor p = probabilities(target.logits(target.forward(input, cache).hidden[0][-1]), options.sampling);
    std::map<int64_t, double> out;
    for (int64_t id = 0; id < p.numel(); ++id) {
      if (p[id].item<double>() > 0) out[id] = p[id].item<double>();
    }
    return out;
  };
  std::map<std::vector<int64_t>, double> law;
  std::vector<int64_t> draftable{1, 2, 3};
  for (const auto& [a, pa] : next(prompt)) {
    auto text = prompt;
    text.push_back(a);
    for (const auto& [b, pb] : next(text)) {
      draftable.push_back(b);
      auto longer = text;
      longer.push_back(b);
      for (const auto& [c, pc] : next(longer)) {
        if (law.size() % 2 == 0) draftable.push_back(c);
        law[{a, b, c}] = pa * pb * pc;
      }
    }
  }
  ASSERT_EQ(law.size(), 27U);
  Dice dice(draftable);
  std::map<std::vector<int64_t>, int64_t> seen;
  int64_t accepted = 0;
  const int64_t samples = 4000;
  for (int64_t s = 0; s < samples; ++s) {
    options.seed = 77 + static_cast<uint64_t>(s);
    const DecodeResult result = decode(target, &dice, prompt, options);
    ++seen[result.tokens];
    for (const int64_t n : result.accepted) accepted += n;
  }
  EXPECT_GT(accepted, samples / 50);  // else the rule has hardly been tried
  double statistic = 0;
  for (const auto& [tokens, p] : law) {
    const double expected = p * static_cast<double>(samples), difference = static_cast<double>(seen[tokens]) - expected;
    statistic += difference * difference / expected;
  }
  EXPECT_EQ(seen.size(), 27U);  // nothing outside the law
  EXPECT_LT(statistic, 64);     // chi-square, 26 degrees: 1 in 20,000
}

TEST(Batch, EachRowGetsWhatItWouldGetAlone) {
  const Target& target = tiny_target();
  for (const double temperature : {0.0, 0.8}) {
    std::vector<BatchPrompt> prompts;
    const std::vector<int64_t> system = prompt_of(12, 99);
    for (int64_t i = 0; i < 40; ++i) {
      BatchPrompt prompt{temperature > 0 && i % 2 ? prompt_of(1 + (i * 7) % 23, i) : system, static_cast<uint64_t>(i)};
      const std::vector<int64_t> own = prompt_of(1 + i % 9, 1000 + i);
      prompt.tokens.insert(prompt.tokens.end(), own.begin(), own.end());
      prompts.push_back(std::move(prompt));
    }
    BatchOptions options;
    options.max_new_tokens = 25;
    options.sampling.temperature = temperature;
    options.stop = {3, 50, 77, 101, 160, 200};
    options.prefill_tokens = 64;
    int64_t tokens = 0, rows = 0;
    const auto answers =
        generate_group(target, prompts, options, [&](int64_t t, int64_t r) { tokens += t, rows += r; });
    ASSERT_EQ(answers.size(), prompts.size());
    int64_t stopped = 0, made = 0;
    for (size_t i = 0; i < prompts.size(); ++i) {
      DecodeOptions alone = options_of(25);
      alone.stop = options.stop;
      alone.sampling = options.sampling;
      alone.seed = prompts[i].seed;
      const DecodeResult result = decode(target, nullptr, prompts[i].tokens, alone);
      EXPECT_EQ(answers[i].tokens, result.tokens) << "row " << i << " at temperature " << temperature;
      EXPECT_EQ(answers[i].stopped, result.stopped);
      stopped += result.stopped;
      made += static_cast<int64_t>(result.tokens.size());
    }
    EXPECT_EQ(tokens, made);
    EXPECT_EQ(rows, 40);
    EXPECT_GT(stopped, 2);  // rows did leave the batch
    EXPECT_LT(stopped, 40);
  }
}

}  // namespace
}  // namespace draftsmith
