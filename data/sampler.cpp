#include "data/sampler.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "launch/check.h"

namespace draftsmith {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64 bits that scatters neighbours.
uint64_t scatter(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// FNV-1a over the bytes.
uint64_t hash_text(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

// Numbers below a bound, each equally likely: values of the last, incomplete round of the bound are drawn again.
class Draws {
 public:
  explicit Draws(uint64_t seed) : state_(seed) {}
  int64_t below(int64_t bound) {
    const uint64_t n = static_cast<uint64_t>(bound), surplus = (0 - n) % n;
    uint64_t draw;
    do {
      state_ += 0x9e3779b97f4a7c15u;
      draw = scatter(state_);
    } while (draw < surplus);
    return static_cast<int64_t>(draw % n);
  }

 private:
  uint64_t state_;
};

}  // namespace

uint64_t derive_seed(uint64_t seed, const std::string& purpose, uint64_t index) {
  return scatter(scatter(scatter(seed) ^ hash_text(purpose)) ^ index);
}

bool is_validation(const std::string& row_id, double fraction, uint64_t seed) {
  DS_CHECK(fraction >= 0 && fraction < 1, "validation fraction {} is outside [0, 1)", fraction);
  const uint64_t hash = scatter(hash_text(row_id) ^ derive_seed(seed, "validation"));
  return static_cast<double>(hash >> 11) < fraction * 0x1p53;
}

std::vector<int64_t> epoch_order(int64_t n, uint64_t seed, int64_t epoch) {
  DS_CHECK(n >= 0 && epoch >= 0, "the order of {} samples in epoch {} is not defined", n, epoch);
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  Draws draws(derive_seed(seed, "order", static_cast<uint64_t>(epoch)));
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<size_t>(draws.below(static_cast<int64_t>(i)))]);
  return order;
}

at::Tensor sample_anchors(const at::Tensor& loss_mask, int64_t count, uint64_t seed) {
  DS_CHECK(loss_mask.dim() == 1 && loss_mask.scalar_type() == at::kByte && loss_mask.device().is_cpu(),
           "loss mask must be uint8 [S] on the CPU, is {} of {} dimensions", c10::toString(loss_mask.scalar_type()),
           loss_mask.dim());
  const at::Tensor mask = loss_mask.contiguous();
  const uint8_t* in = mask.data_ptr<uint8_t>();
  std::vector<int64_t> anchors;
  for (int64_t a = 0; a + 1 < mask.numel(); ++a) {
    if (in[a] && in[a + 1]) anchors.push_back(a);
  }
  if (count > 0 && count < static_cast<int64_t>(anchors.size())) {
    Draws draws(seed);
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      std::swap(anchors[i], anchors[i + static_cast<size_t>(draws.below(static_cast<int64_t>(anchors.size() - i)))]);
    }
    anchors.resize(static_cast<size_t>(count));
    std::sort(anchors.begin(), anchors.end());
  }
  return at::tensor(anchors, at::kLong);
}

}  // namespace draftsmith
