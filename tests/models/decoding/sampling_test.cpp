#include "models/decoding/sampling.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "data/sampler.h"
#include "launch/check.h"

namespace draftsmith {
namespace {

constexpr int64_t V = 7;

at::Tensor row(const std::vector<float>& values) {
  return at::tensor(values, at::kFloat);
}

// A world in which the next token depends on the last one only: logits [V, V] of the target and of the drafter.
struct Chain {
  at::Tensor target, drafter;
};
Chain chain_world() {
  at::Tensor target = at::empty({V, V}), drafter = at::empty({V, V});
  for (int64_t i = 0; i < V; ++i) {
    for (int64_t j = 0; j < V; ++j) {
      target[i][j] = 1.7 * std::sin(3.1 * static_cast<double>(i) + 1.9 * static_cast<double>(j * j));
      drafter[i][j] = 1.2 * std::sin(3.1 * static_cast<double>(i) + 1.9 * static_cast<double>(j * j)) +
                      0.9 * std::cos(2.3 * static_cast<double>(i + 2 * j));
    }
  }
  return {target, drafter};
}

using Propose = std::function<Proposal(int64_t anchor, uint64_t seed)>;
using Verify = std::function<Verified(const at::Tensor& logits, const Proposal&, uint64_t seed, uint64_t index)>;

// Two tokens behind `anchor`, as the decode loop makes them: as many rounds as that takes.
std::pair<int64_t, int64_t> two_tokens(const at::Tensor& target, int64_t anchor, uint64_t seed, const Propose& propose,
                                       const Verify& verify) {
  std::vector<int64_t> out{anchor};
  while (out.size() < 3) {
    const Proposal proposal = propose(out.back(), derive_seed(seed, "draft", out.size()));
    std::vector<int64_t> context{out.back()};
    context.insert(context.end(), proposal.tokens.begin(), proposal.tokens.end());
    const Verified verified =
        verify(target.index_select(0, at::tensor(context, at::kLong)), proposal, seed, out.size());
    out.insert(out.end(), proposal.tokens.begin(), proposal.tokens.begin() + verified.accepted);
    out.push_back(verified.next);
  }
  return {out[1], out[2]};
}

// Pearson's statistic of `samples` pairs against p(a | anchor) p(b | a), and its degrees of freedom. A pair of
// probability 0 that occurs: infinite.
struct Fit {
  double statistic = 0;
  int64_t freedom = -1;
  // Wilson and Hilferty's bound that a right law passes but once in 10^5 times (z = 4.26).
  double bound() const {
    const double k = static_cast<double>(freedom), h = 2 / (9 * k);
    return k * std::pow(1 - h + 4.26 * std::sqrt(h), 3);
  }
};
Fit fit(const at::Tensor& target, const SamplingOptions& options, const Propose& propose, const Verify& verify,
        int64_t samples = 6000) {
  const int64_t anchor = 2;
  const at::Tensor p = probabilities(target, options);
  std::vector<int64_t> counts(V * V, 0);
  for (int64_t s = 0; s < samples; ++s) {
    const auto [a, b] = two_tokens(target, anchor, 1000 + static_cast<uint64_t>(s), propose, verify);
    ++counts[static_cast<size_t>(a * V + b)];
  }
  Fit fit;
  for (int64_t a = 0; a < V; ++a) {
    for (int64_t b = 0; b < V; ++b) {
      const double expected = static_cast<double>(samples) * p[anchor][a].item<double>() * p[a][b].item<double>();
      const auto seen = static_cast<double>(counts[static_cast<size_t>(a * V + b)]);
      if (expected == 0) {
        if (seen > 0) fit.statistic = INFINITY;
        continue;
      }
      fit.statistic += (seen - expected) * (seen - expected) / expected;
      ++fit.freedom;
    }
  }
  return fit;
}

// Drafts `n` tokens of the drafter over `ids` (all when empty): sampled with q, or its arg max.
Propose drafter_of(const at::Tensor& logits, const std::vector<int64_t>& ids, double temperature, bool sampled,
                   bool with_q, int64_t n = 3) {
  return [=](int64_t anchor, uint64_t seed) {
    Proposal proposal;
    std::vector<at::Tensor> q;
    int64_t last = anchor;
    for (int64_t i = 0; i < n; ++i) {
      at::Tensor own = logits[last];
      if (!ids.empty()) own = own.index_select(0, at::tensor(ids, at::kLong));
      const at::Tensor p = at::softmax(own / temperature, -1);
      const int64_t chosen = sampled ? draw(p, uniform(seed, static_cast<uint64_t>(i))) : p.argmax().item<int64_t>();
      last = ids.empty() ? chosen : ids[static_cast<size_t>(chosen)];
      proposal.tokens.push_back(last);
      q.push_back(p);
    }
    if (with_q) proposal.q = at::stack(q);
    return proposal;
  };
}

const SamplingOptions kSettings[] = {{1.0, 0, 1.0}, {0.7, 0, 1.0}, {1.3, 3, 1.0}, {1.0, 0, 0.75}, {0.9, 5, 0.9}};

TEST(SamplingLaw, TheMatchingRuleDrawsFromTheTargetWhateverIsDrafted) {
  const Chain world = chain_world();
  for (const SamplingOptions& options : kSettings) {
    const Verify verify = [&](const at::Tensor& logits, const Proposal& proposal, uint64_t seed, uint64_t index) {
      return verify_match(logits, proposal, options, seed, index);
    };
    const Fit found = fit(world.target, options, drafter_of(world.drafter, {}, 1.0, false, false), verify);
    EXPECT_LT(found.statistic, found.bound())
        << "temperature " << options.temperature << " top-k " << options.top_k << " top-p " << options.top_p;
  }
}

TEST(SamplingLaw, SpeculativeSamplingKeepsTheTargetsLaw) {
  const Chain world = chain_world();
  const DraftVocabulary full;
  for (const SamplingOptions& options : kSettings) {
    const Verify verify = [&](const at::Tensor& logits, const Proposal& proposal, uint64_t seed, uint64_t index) {
      return verify_speculative(logits, proposal, full, options, seed, index);
    };
    const Fit sampled =
        fit(world.target, options, drafter_of(world.drafter, {}, options.temperature, true, true), verify);
    EXPECT_LT(sampled.statistic, sampled.bound()) << "sampled draft, temperature " << options.temperature;
    const Fit greedy = fit(world.target, options, drafter_of(world.drafter, {}, 1.0, false, false), verify);
    EXPECT_LT(greedy.statistic, greedy.bound()) << "greedy draft, temperature " << options.temperature;
  }
}

TEST(SamplingLaw, SpeculativeSamplingKeepsTheTargetsLawWithAReducedDraftVocabulary) {
  const Chain world = chain_world();
  const std::vector<int64_t> ids{1, 2, 4, 6};
  const DraftVocabulary reduced{at::tensor(ids, at::kLong),
                                at::tensor(std::vector<int64_t>{-1, 0, 1, -1, 2, -1, 3}, at::kLong)};
  const SamplingOptions options{0.8, 0, 0.95};
  const Verify verify = [&](const at::Tensor& logits, const Proposal& proposal, uint64_t seed, uint64_t index) {
    return verify_speculative(logits, proposal, reduced, options, seed, index);
  };
  const Fit found = fit(world.target, options, drafter_of(world.drafter, ids, 0.8, true, true), verify);
  EXPECT_LT(found.statistic, found.bound());
}

// The fault that serving engines had: the drafter's arg max is handed over with its soft distribution.
TEST(SamplingLaw, AnArgMaxDraftThatClaimsItsSoftmaxAsQIsFoundOut) {
  const Chain world = chain_world();
  const DraftVocabulary full;
  const SamplingOptions options{1.0, 0, 1.0};
  const Verify verify = [&](const at::Tensor& logits, const Proposal& proposal, uint64_t seed, uint64_t index) {
    return verify_speculative(logits, proposal, full, options, seed, index);
  };
  const Fit found = fit(world.target, options, drafter_of(world.drafter, {}, 1.0, false, true), verify);
  EXPECT_GT(found.statistic, 2 * found.bound());
}

TEST(SpeculativeSampling, AcceptsAsOftenAsTheOverlapOfBothDistributions) {
  const at::Tensor p_logits = row({2.0F, 1.0F, 0.0F, -1.0F}), q_logits = row({0.0F, 1.5F, 0.5F, -0.5F});
  const at::Tensor p = at::softmax(p_logits, 0), q = at::softmax(q_logits, 0);
  const double overlap = at::minimum(p, q).sum().item<double>();
  const int64_t samples = 20000;
  int64_t accepted = 0;
  for (int64_t s = 0; s < samples; ++s) {
    const auto seed = static_cast<uint64_t>(s);
    const Proposal proposal{{draw(q, uniform(derive_seed(seed, "draft"), 0))}, q.unsqueeze(0)};
    accepted += verify_speculative(at::stack({p_logits, p_logits}), proposal, {}, {1.0, 0, 1.0}, seed, 0).accepted;
  }
  const double deviation = std::sqrt(overlap * (1 - overlap) / static_cast<double>(samples));
  EXPECT_NEAR(static_cast<double>(accepted) / static_cast<double>(samples), overlap, 4.5 * deviation);
}

TEST(SpeculativeSampling, RefusesADraftThatItsOwnDistributionExcludes) {
  const at::Tensor logits = at::zeros({2, 4});
  EXPECT_THROW(verify_speculative(logits, {{3}, row({0.5F, 0.5F, 0.0F, 0.0F}).unsqueeze(0)}, {}, {1.0, 0, 1.0}, 1, 0),
               Error);
  EXPECT_THROW(verify_speculative(logits, {{1, 2}, {}}, {}, {1.0, 0, 1.0}, 1, 0), Error);
}

// Brute force: sort all, cut, cut, divide.
at::Tensor reference(const std::vector<float>& logits, const SamplingOptions& options) {
  std::vector<double> p;
  double sum = 0;
  for (const float x : logits) p.push_back(std::exp(x / options.temperature)), sum += p.back();
  for (double& x : p) x /= sum;
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(options.top_k)));
  double mass = 0;
  for (const size_t i : order) mass += p[i];
  double kept = 0;
  std::vector<float> out(p.size(), 0);
  size_t n = 0;
  while (n < order.size()) {
    kept += p[order[n++]];
    if (kept >= options.top_p * mass) break;
  }
  for (size_t i = 0; i < n; ++i) out[order[i]] = static_cast<float>(p[order[i]] / kept);
  return row(out);
}

TEST(Probabilities, EqualBruteForceForTopKAndTopP) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<float> logits;
    for (uint64_t i = 0; i < 1500; ++i)
      logits.push_back(static_cast<float>(seed < 10 ? 0.3 : 6.0) * static_cast<float>(uniform(seed, i)));
    for (const SamplingOptions& options :
         {SamplingOptions{1.0, 0, 1.0}, {0.5, 40, 1.0}, {1.5, 0, 0.6}, {1.0, 700, 0.93}, {0.9, 5000, 1.0}}) {
      const at::Tensor difference = probabilities(row(logits), options) - reference(logits, options);
      EXPECT_LT(difference.abs().max().item<float>(), 2e-5);  // fp32 softmax against double
    }
  }
}

TEST(Probabilities, KeepTheLowerIdsOfEquallyProbableTokens) {
  EXPECT_TRUE(at::equal(probabilities(row({1, 3, 3, 3, 0}), {1.0, 2, 1.0}), row({0, 0.5F, 0.5F, 0, 0})));
  EXPECT_TRUE(at::equal(probabilities(row({0, 0, 0, 0}), {1.0, 0, 0.5}), row({0.5F, 0.5F, 0, 0})));
  EXPECT_TRUE(at::equal(probabilities(row({1, 3, 3}), {0.0, 0, 1.0}), row({0, 1, 0})));
}

TEST(Probabilities, RefuseOptionsThatMeanNothing) {
  const at::Tensor logits = at::zeros({4});
  EXPECT_THROW(probabilities(logits, {-1.0, 0, 1.0}), Error);
  EXPECT_THROW(probabilities(logits, {1.0, -2, 1.0}), Error);
  EXPECT_THROW(probabilities(logits, {1.0, 0, 0.0}), Error);
  EXPECT_THROW(probabilities(logits, {1.0, 0, 1.5}), Error);
}

TEST(Draw, InvertsTheDistributionFunction) {
  const at::Tensor p = row({0.25F, 0.0F, 0.5F, 0.25F});
  EXPECT_EQ(draw(p, 0.0), 0);
  EXPECT_EQ(draw(p, 0.249), 0);
  EXPECT_EQ(draw(p, 0.25), 2);  // never the token of probability 0
  EXPECT_EQ(draw(p, 0.749), 2);
  EXPECT_EQ(draw(p, 0.75), 3);
  EXPECT_EQ(draw(p, std::nextafter(1.0, 0.0)), 3);
  EXPECT_THROW(draw(row({NAN, 1.0F}), 0.5), Error);
  EXPECT_THROW(draw(row({0.0F, 0.0F}), 0.5), Error);
}

TEST(Uniform, DependsOnSeedAndIndexAndIsUniform) {
  EXPECT_EQ(uniform(3, 9), uniform(3, 9));
  EXPECT_NE(uniform(3, 9), uniform(3, 10));
  EXPECT_NE(uniform(3, 9), uniform(4, 9));
  double statistic = 0, lag = 0;
  std::vector<int64_t> bins(50, 0);
  for (uint64_t i = 0; i < 50000; ++i) {
    const double u = uniform(i / 100, i % 100);
    ASSERT_TRUE(u >= 0 && u < 1);
    ++bins[static_cast<size_t>(u * 50)];
    lag += (u - 0.5) * (uniform(i / 100, i % 100 + 1) - 0.5);
  }
  for (const int64_t n : bins) statistic += static_cast<double>((n - 1000) * (n - 1000)) / 1000;
  EXPECT_LT(statistic, 110);                                      // chi-square, 49 degrees: 1 in 10^6
  EXPECT_LT(std::abs(lag / 50000 * 12), 5 / std::sqrt(50000.0));  // correlation of neighbours
}

TEST(VerifyMatch, GreedyNamesLogitsThatAreNotFinite) {
  EXPECT_THROW(verify_match(at::full({1, 4}, NAN), {}, {}, 0, 0), Error);
  EXPECT_THROW(verify_match(at::zeros({2, 4}), {}, {}, 0, 0), Error);
}

}  // namespace
}  // namespace draftsmith
