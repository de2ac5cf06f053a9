#include "models/parts/attention.h"

#include <cmath>

#include "launch/check.h"
#include "models/parts/fp32_kernels.h"

namespace draftsmith {
namespace {

bool has_kernel(const KvCacheOptions& options) {
  return options.device.is_cpu() && options.dtype == at::kFloat;
}

}  // namespace

CausalAttention::CausalAttention(const KvCache& cache, const Placement& where, int64_t heads)
    : cache_(cache),
      where_(where),
      heads_(heads),
      scale_(1.0 / std::sqrt(static_cast<double>(cache.options().head_dim))) {
  const int64_t rows = cache.rows();
  DS_CHECK(heads % cache.options().kv_heads == 0, "attention: {} heads do not divide by {} key heads", heads,
           cache.options().kv_heads);
  bool ragged = false, same_past = true, no_past = true;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t past = where.past[static_cast<size_t>(r)];
    longest_new_ = std::max(longest_new_, where.count(r));
    visible_ = std::max(visible_, past + where.count(r));
    ragged = ragged || where.count(r) != where.count(0);
    same_past = same_past && past == where.past[0];
    no_past = no_past && past == 0;
  }
  if (has_kernel(cache.options())) return;
  const auto longs = where.row.options();
  const at::Tensor past = at::tensor(where.past, at::kLong).to(longs.device());
  if (ragged) slot_ = where.row * longest_new_ + where.position - past.index_select(0, where.row);
  if (longest_new_ == 1 && same_past) return;
  plain_causal_ = no_past;
  if (plain_causal_) return;
  const at::Tensor last = past.view({rows, 1, 1, 1}) + at::arange(longest_new_, longs).view({1, 1, longest_new_, 1});
  mask_ = at::arange(visible_, longs).view({1, 1, 1, visible_}) <= last;
}

at::Tensor CausalAttention::run(int64_t layer, const at::Tensor& q) const {
  const int64_t width = heads_ * cache_.options().head_dim;
  DS_CHECK(q.dim() == 3 && q.size(0) == where_.tokens() && q.size(1) == heads_ && q.is_contiguous(),
           "attention: q must be contiguous [{}, {}, {}]", where_.tokens(), heads_, cache_.options().head_dim);
  if (!has_kernel(cache_.options())) return padded(layer, q).view({q.size(0), width});
  at::Tensor out = at::empty({q.size(0), width}, q.options());
  by_kernel(layer, q, out);
  return out;
}

void CausalAttention::by_kernel(int64_t layer, const at::Tensor& q, at::Tensor& out) const {
  const KvCacheOptions& c = cache_.options();
  const at::Tensor keys = cache_.keys(layer, cache_.capacity()), values = cache_.values(layer, cache_.capacity());
  const AttendArgs args{q.const_data_ptr<float>(),
                        keys.const_data_ptr<float>(),
                        values.const_data_ptr<float>(),
                        out.mutable_data_ptr<float>(),
                        where_.starts.data(),
                        where_.past.data(),
                        cache_.rows(),
                        heads_,
                        c.kv_heads,
                        c.head_dim,
                        keys.stride(0),
                        keys.stride(1),
                        static_cast<float>(scale_)};
  const int64_t grain = std::max<int64_t>(1, 65536 / (visible_ * c.head_dim));
  at::parallel_for(0, where_.tokens() * heads_, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> scratch(static_cast<size_t>(attend_scratch(visible_)));
    fp32_kernels().attend(args, begin, end, scratch.data());
  });
}

at::Tensor CausalAttention::padded(int64_t layer, const at::Tensor& q) const {
  const int64_t rows = cache_.rows(), dim = q.size(2);
  at::Tensor queries;
  if (slot_.defined()) {
    queries = at::zeros({rows * longest_new_, heads_, dim}, q.options());
    queries.index_copy_(0, slot_, q);
  } else {
    queries = q;
  }
  queries = queries.view({rows, longest_new_, heads_, dim}).transpose(1, 2);
  const std::optional<at::Tensor> mask = mask_.defined() ? std::optional<at::Tensor>(mask_) : std::nullopt;
  at::Tensor out =
      at::scaled_dot_product_attention(queries, cache_.keys(layer, visible_), cache_.values(layer, visible_), mask, 0.0,
                                       plain_causal_, scale_, heads_ != cache_.options().kv_heads);
  out = out.transpose(1, 2).reshape({rows * longest_new_, heads_, dim});
  return slot_.defined() ? out.index_select(0, slot_) : out;
}

}  // namespace draftsmith
