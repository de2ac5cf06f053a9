#include "models/decoding/sampling.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "data/sampler.h"
#include "launch/check.h"

namespace draftsmith {

namespace {

// Ids of one row from the most to the least probable, ties to the lower id. Only as many as asked for are put in order:
// a nucleus of a real model holds a few dozen of fifty thousand tokens.
class Ranking {
 public:
  Ranking(const float* values, int64_t size) : values_(values), ids_(static_cast<size_t>(size)) {
    std::iota(ids_.begin(), ids_.end(), int64_t{0});
  }

  int64_t operator[](int64_t rank) {
    if (rank >= sorted_) extend(rank + 1);
    return ids_[static_cast<size_t>(rank)];
  }

 private:
  void extend(int64_t wanted) {
    const auto size = static_cast<int64_t>(ids_.size());
    const int64_t target = std::min(size, std::max<int64_t>({wanted, 64, 8 * sorted_}));
    const auto before = [this](int64_t a, int64_t b) {
      return values_[a] != values_[b] ? values_[a] > values_[b] : a < b;
    };
    const auto begin = ids_.begin() + sorted_, end = ids_.begin() + target;
    if (target < size) std::nth_element(begin, end, ids_.end(), before);
    std::sort(begin, end, before);
    sorted_ = target;
  }

  const float* values_;
  std::vector<int64_t> ids_;
  int64_t sorted_ = 0;
};

// Zeroes what top-k and top-p leave out of one row of probabilities and brings the rest to sum 1.
void restrict_row(float* row, int64_t size, const SamplingOptions& options) {
  Ranking ranking(row, size);
  const int64_t most = options.top_k > 0 ? std::min(options.top_k, size) : size;
  std::vector<std::pair<int64_t, float>> kept;
  double top_k_mass = 1;
  if (most < size) {
    top_k_mass = 0;
    for (int64_t i = 0; i < most; ++i) top_k_mass += row[ranking[i]];
  }
  double mass = 0;
  for (int64_t i = 0; i < most; ++i) {
    const int64_t id = ranking[i];
    kept.emplace_back(id, row[id]);
    mass += row[id];
    if (options.top_p < 1 && mass >= options.top_p * top_k_mass) break;
  }
  std::fill(row, row + size, 0.0F);
  for (const auto& [id, p] : kept) row[id] = static_cast<float>(p / mass);
}

// Token of one row of logits [V] under the options with the uniform number u.
int64_t choose(const at::Tensor& logits, const SamplingOptions& options, double u) {
  return draw(probabilities(logits, options), u);
}

// The accept test has its own stream: a uniform number is used for one decision only.
uint64_t accept_seed(uint64_t seed) {
  return derive_seed(seed, "accept");
}

}  // namespace

void check_sampling(const SamplingOptions& options) {
  DS_CHECK(options.temperature >= 0 && std::isfinite(options.temperature),
           "--temperature is {}; it must be 0 (greedy) or a positive number", options.temperature);
  DS_CHECK(options.top_k >= 0, "--top-k is {}; it must be 0 (off) or positive", options.top_k);
  DS_CHECK(options.top_p > 0 && options.top_p <= 1, "--top-p is {}; it must be above 0 and at most 1 (off)",
           options.top_p);
}

at::Tensor probabilities(const at::Tensor& logits, const SamplingOptions& options) {
  check_sampling(options);
  if (options.temperature == 0) {
    return at::zeros(logits.sizes(), logits.options().dtype(at::kFloat))
        .scatter_(-1, logits.argmax(-1, /*keepdim=*/true), 1.0);
  }
  const int64_t size = logits.size(-1);
  at::Tensor p = at::softmax(logits.to(at::kFloat) / options.temperature, -1);
  if (options.top_p == 1 && (options.top_k == 0 || options.top_k >= size)) return p;
  at::Tensor rows = p.to(at::kCPU).contiguous();
  float* data = rows.data_ptr<float>();
  for (int64_t r = 0; r < rows.numel() / size; ++r) restrict_row(data + r * size, size, options);
  return rows.to(p.device());
}

double uniform(uint64_t seed, uint64_t index) {
  // SplitMix64 (Steele, Lea, Flood 2014), jumped to `index`; twice, so that neighbouring seeds share no stretch of a
  // stream.
  const auto mix = [](uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  };
  const uint64_t golden = 0x9e3779b97f4a7c15ULL;
  const uint64_t bits = mix(mix(seed + golden) + (index + 1) * golden);
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

int64_t draw(const at::Tensor& probabilities, double u) {
  const at::Tensor row = probabilities.to(at::kCPU, at::kFloat).contiguous();
  const float* p = row.data_ptr<float>();
  const int64_t size = row.numel();
  double total = 0;
  for (int64_t i = 0; i < size; ++i) total += p[i];
  DS_CHECK(
      std::isfinite(total) && total > 0,
      "the distribution of the next token sums to {}: the model gave logits that are not finite; check its weights",
      total);
  double sum = 0;
  int64_t last = 0;
  for (int64_t i = 0; i < size; ++i) {
    if (p[i] <= 0) continue;
    sum += p[i];
    last = i;
    if (sum > u * total) return i;
  }
  return last;  // u * total met the sum's rounding
}

Verified verify_match(const at::Tensor& logits, const Proposal& proposal, const SamplingOptions& options, uint64_t seed,
                      uint64_t first_index) {
  check_sampling(options);
  const auto drafted = static_cast<int64_t>(proposal.tokens.size());
  DS_CHECK(logits.dim() == 2 && logits.size(0) == drafted + 1,
           "verification of {} drafted tokens needs {} rows of logits, not {}", drafted, drafted + 1, logits.size(0));
  const bool greedy = options.temperature == 0;
  at::Tensor best;
  if (greedy) {
    const auto [value, index] = logits.max(-1);
    DS_CHECK(value.isfinite().all().item<bool>(), "the target gave logits that are not finite; check its weights");
    best = index.to(at::kCPU);
  }
  Verified verified;
  for (;; ++verified.accepted) {
    const int64_t i = verified.accepted;
    verified.next = greedy ? best.data_ptr<int64_t>()[i]
                           : choose(logits[i], options, uniform(seed, first_index + static_cast<uint64_t>(i)));
    if (i == drafted || verified.next != proposal.tokens[static_cast<size_t>(i)]) return verified;
  }
}

Verified verify_speculative(const at::Tensor& logits, const Proposal& proposal, const DraftVocabulary& vocabulary,
                            const SamplingOptions& options, uint64_t seed, uint64_t first_index) {
  const auto drafted = static_cast<int64_t>(proposal.tokens.size());
  DS_CHECK(logits.dim() == 2 && logits.size(0) == drafted + 1,
           "verification of {} drafted tokens needs {} rows of logits, not {}", drafted, drafted + 1, logits.size(0));
  DS_CHECK(!proposal.q.defined() || proposal.q.size(0) == drafted,
           "a proposal of {} tokens came with {} rows of probabilities", drafted,
           proposal.q.defined() ? proposal.q.size(0) : 0);
  Verified verified;
  for (int64_t i = 0; i < drafted; ++i) {
    const auto index = first_index + static_cast<uint64_t>(i);
    const int64_t token = proposal.tokens[static_cast<size_t>(i)];
    const at::Tensor p = probabilities(logits[i], options);
    at::Tensor q = at::zeros_like(p);  // over the target's vocabulary
    if (!proposal.q.defined()) {
      q[token] = 1.0;
    } else if (vocabulary.to_target.defined()) {
      q.index_put_({vocabulary.to_target.to(p.device())}, proposal.q[i].to(p.device(), at::kFloat));
    } else {
      q.copy_(proposal.q[i]);
    }
    const double ratio = p[token].item<double>() / q[token].item<double>();
    DS_CHECK(!std::isnan(ratio) && q[token].item<double>() > 0,
             "slot {} drafted token {} to which its own distribution gives no mass; q is not what it was drawn from",
             i + 1, token);
    if (uniform(accept_seed(seed), index) < ratio) {
      ++verified.accepted;
      continue;
    }
    verified.next = draw(at::clamp_min(p - q, 0), uniform(seed, index));
    return verified;
  }
  verified.next = choose(logits[drafted], options, uniform(seed, first_index + static_cast<uint64_t>(drafted)));
  return verified;
}

}  // namespace draftsmith
