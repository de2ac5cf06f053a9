#include "models/parts/weights.h"

#include <fmt/ranges.h>

#include <atomic>

#include "configs/yaml.h"
#include "launch/check.h"

namespace draftsmith {
namespace {

constexpr const char* kRemedy =
    "\n       the files do not belong together: download the folder again, or mend config.json";

// True when some value of the block has all exponent bits set: infinity or NaN.
template <typename Bits, Bits exponent>
bool block_has_special(const Bits* p, int64_t n) {
  Bits found = 0;
  for (int64_t i = 0; i < n; ++i) found |= static_cast<Bits>((p[i] & exponent) == exponent);
  return found != 0;
}

template <typename Bits, Bits exponent>
bool has_special(const void* data, int64_t n) {
  constexpr int64_t kBlock = 4096;
  const Bits* p = static_cast<const Bits*>(data);
  std::atomic<bool> found{false};
  at::parallel_for(0, n / kBlock, 64, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      if (block_has_special<Bits, exponent>(p + b * kBlock, kBlock)) found = true;
    }
  });
  return found || block_has_special<Bits, exponent>(p + n / kBlock * kBlock, n % kBlock);
}

}  // namespace

int64_t first_not_finite(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  const void* data = dense.const_data_ptr();
  const int64_t n = dense.numel();
  bool special = false;
  switch (dense.scalar_type()) {
    case at::kFloat:
      special = has_special<uint32_t, 0x7f800000U>(data, n);
      break;
    case at::kBFloat16:
      special = has_special<uint16_t, 0x7f80U>(data, n);
      break;
    case at::kHalf:
      special = has_special<uint16_t, 0x7c00U>(data, n);
      break;
    case at::kDouble:
      special = has_special<uint64_t, 0x7ff0000000000000ULL>(data, n);
      break;
    default:
      DS_FAIL("a tensor of dtype {} has no exponent bits to check", at::toString(dense.scalar_type()));
  }
  if (!special) return -1;
  return at::isfinite(dense).logical_not_().flatten().nonzero().select(0, 0).item<int64_t>();
}

Weights::Weights(const std::string& folder, at::ScalarType dtype, at::Device device)
    : files_(WeightFolder::open(folder)), dtype_(dtype), device_(device) {}

at::Tensor Weights::take(const std::string& name, const std::vector<int64_t>& shape) {
  if (!files_.has(name)) {
    const std::string near = nearest(name, files_.names());
    DS_FAIL(
        "{}: weight {} is missing among {} tensors{}; fetch the complete checkpoint, or correct config.json if it "
        "describes another model",
        folder(), name, files_.names().size(), near.empty() ? "" : ", the nearest name is " + near);
  }
  const std::vector<int64_t> found = files_.shape(name);
  DS_CHECK(found == shape, "{}: weight {} has shape [{}], config.json asks for [{}]{}", folder(), name,
           fmt::join(found, ", "), fmt::join(shape, ", "), kRemedy);
  const at::Tensor stored = files_.tensor(name);
  DS_CHECK(at::isFloatingType(stored.scalar_type()) && stored.element_size() >= 2,
           "{}: weight {} is stored as {}; fp32, fp16, bf16 and fp64 are read{}", folder(), name,
           at::toString(stored.scalar_type()), kRemedy);
  const int64_t bad = first_not_finite(stored);
  DS_CHECK(bad < 0, "{}: weight {} holds {} at flat index {}; the checkpoint is damaged, fetch it again", folder(),
           name, stored.flatten().select(0, bad).item<double>(), bad);
  taken_.insert(name);
  return stored.to(device_, dtype_);
}

at::Tensor Weights::take_if(bool wanted, const std::string& name, const std::vector<int64_t>& shape) {
  return wanted ? take(name, shape) : at::Tensor();
}

void Weights::finish() const {
  std::vector<std::string> unread;
  for (const std::string& name : files_.names()) {
    if (!taken_.count(name) && name.find("rotary_emb.inv_freq") == std::string::npos) unread.push_back(name);
  }
  if (unread.empty()) return;
  const size_t count = unread.size();
  unread.resize(std::min<size_t>(count, 5));
  DS_FAIL(
      "{}: {} tensors belong to no part of the model that config.json describes: {}{}. Check num_hidden_layers, "
      "attention_bias and architectures in config.json",
      folder(), count, fmt::join(unread, ", "), count > 5 ? ", ..." : "");
}

}  // namespace draftsmith
