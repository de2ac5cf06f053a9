#include "models/parts/kv_cache.h"

#include <cstring>

#include "launch/check.h"

namespace draftsmith {
namespace {

void copy_tokens(const at::Tensor& from, int64_t from_row, at::Tensor& to, int64_t to_row, int64_t length) {
  if (length > 0) to.select(0, to_row).narrow(1, 0, length).copy_(from.select(0, from_row).narrow(1, 0, length));
}

// Packed [N, kv_heads, head_dim] into buffer [rows, kv_heads, capacity, head_dim] by plain copies.
void scatter_on_cpu(const at::Tensor& packed, at::Tensor& buffer, const Placement& where) {
  const at::Tensor source = packed.contiguous();
  const auto bytes = static_cast<size_t>(source.element_size() * source.size(2));
  const int64_t heads = source.size(1);
  const char* from = static_cast<const char*>(source.const_data_ptr());
  char* to = static_cast<char*>(buffer.mutable_data_ptr());
  const int64_t unit = source.element_size();
  const int64_t* row = where.row.const_data_ptr<int64_t>();
  const int64_t* position = where.position.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < source.size(0); ++i) {
    char* token = to + (row[i] * buffer.stride(0) + position[i] * buffer.stride(2)) * unit;
    for (int64_t h = 0; h < heads; ++h, from += bytes) std::memcpy(token + h * buffer.stride(1) * unit, from, bytes);
  }
}

}  // namespace

KvCache::KvCache(const KvCacheOptions& options)
    : options_(options),
      lengths_(static_cast<size_t>(std::max<int64_t>(options.rows, 0)), 0),
      filled_layers_(options.layers),
      keys_(static_cast<size_t>(std::max<int64_t>(options.layers, 0))),
      values_(keys_.size()) {
  DS_CHECK(
      options.layers > 0 && options.rows > 0 && options.kv_heads > 0 && options.head_dim > 0 && options.capacity > 0,
      "kv cache: layers {}, rows {}, kv_heads {}, head_dim {} and capacity {} must all be positive", options.layers,
      options.rows, options.kv_heads, options.head_dim, options.capacity);
  if (options_.limit > 0) options_.capacity = std::min(options_.capacity, options_.limit);
}

int64_t KvCache::longest() const {
  return *std::max_element(lengths_.begin(), lengths_.end());
}

void KvCache::check_row(int64_t row) const {
  DS_CHECK(row >= 0 && row < rows(), "kv cache: row {} of {}", row, rows());
}

// Content that no row owns is never read by the CPU kernel, but masked attention multiplies it by 0: there it must be
// finite.
at::Tensor KvCache::make_buffer(int64_t capacity) const {
  const auto kind = at::TensorOptions().dtype(options_.dtype).device(options_.device);
  const std::vector<int64_t> shape{rows(), options_.kv_heads, capacity, options_.head_dim};
  return options_.device.is_cpu() && options_.dtype == at::kFloat ? at::empty(shape, kind) : at::zeros(shape, kind);
}

void KvCache::allocate(int64_t layer) {
  DS_CHECK(layer >= 0 && layer < options_.layers, "kv cache: layer {} of {}", layer, options_.layers);
  const auto l = static_cast<size_t>(layer);
  if (keys_[l].defined()) return;
  keys_[l] = make_buffer(options_.capacity);
  values_[l] = make_buffer(options_.capacity);
}

void KvCache::grow(int64_t capacity) {
  const int64_t used = longest();
  // One buffer at a time, so that old and new never exist for all layers at once.
  for (auto* buffers : {&keys_, &values_}) {
    for (at::Tensor& buffer : *buffers) {
      if (!buffer.defined()) continue;
      at::Tensor larger = make_buffer(capacity);
      if (used > 0) larger.narrow(2, 0, used).copy_(buffer.narrow(2, 0, used));
      buffer = larger;
    }
  }
  options_.capacity = capacity;
}

void KvCache::reserve(int64_t tokens) {
  reserve(std::vector<int64_t>(lengths_.size(), tokens));
}

void KvCache::reserve(const std::vector<int64_t>& counts) {
  DS_CHECK(counts.size() == lengths_.size(), "kv cache: counts for {} rows, the cache has {}", counts.size(), rows());
  int64_t needed = 0;
  for (size_t r = 0; r < counts.size(); ++r) {
    const int64_t length = lengths_[r] + counts[r];
    DS_CHECK(options_.limit == 0 || length <= options_.limit,
             "row {} would hold {} tokens, the model has {} positions (max_position_embeddings); shorten the prompt or "
             "ask for fewer tokens",
             r, length, options_.limit);
    needed = std::max(needed, length);
  }
  if (needed <= options_.capacity) return;
  int64_t doubled = 2 * options_.capacity;
  if (options_.limit > 0) doubled = std::min(doubled, options_.limit);
  grow(std::max(needed, doubled));
}

Placement KvCache::place(const std::vector<int64_t>& counts) const {
  DS_CHECK(counts.size() == lengths_.size(), "kv cache: counts for {} rows, the cache has {}", counts.size(), rows());
  Placement where;
  where.past = lengths_;
  where.starts.assign(1, 0);
  for (int64_t count : counts) where.starts.push_back(where.starts.back() + count);
  where.row = at::empty({where.tokens()}, at::kLong);
  where.position = at::empty({where.tokens()}, at::kLong);
  int64_t* row = where.row.mutable_data_ptr<int64_t>();
  int64_t* position = where.position.mutable_data_ptr<int64_t>();
  for (int64_t r = 0; r < rows(); ++r) {
    for (int64_t i = 0; i < counts[static_cast<size_t>(r)]; ++i) {
      *row++ = r;
      *position++ = length(r) + i;
    }
  }
  where.row = where.row.to(options_.device);
  where.position = where.position.to(options_.device);
  return where;
}

void KvCache::write(int64_t layer, const at::Tensor& keys, const at::Tensor& values) {
  DS_CHECK(keys.dim() == 4 && keys.size(0) == rows() && keys.size(1) == options_.kv_heads &&
               keys.size(3) == options_.head_dim && keys.sizes() == values.sizes(),
           "kv cache: keys and values must be [{}, {}, S, {}]", rows(), options_.kv_heads, options_.head_dim);
  DS_CHECK(longest() + keys.size(2) <= capacity(), "kv cache: {} tokens do not fit in {}; reserve() first",
           longest() + keys.size(2), capacity());
  allocate(layer);
  const auto l = static_cast<size_t>(layer);
  for (int64_t r = 0; r < rows(); ++r) {
    keys_[l].select(0, r).narrow(1, length(r), keys.size(2)).copy_(keys.select(0, r));
    values_[l].select(0, r).narrow(1, length(r), keys.size(2)).copy_(values.select(0, r));
  }
}

void KvCache::write_packed(int64_t layer, const at::Tensor& keys, const at::Tensor& values, const Placement& where) {
  DS_CHECK(keys.dim() == 3 && keys.size(0) == where.tokens() && keys.size(1) == options_.kv_heads &&
               keys.size(2) == options_.head_dim && keys.sizes() == values.sizes() &&
               keys.scalar_type() == options_.dtype && values.scalar_type() == options_.dtype,
           "kv cache: packed keys and values must be [{}, {}, {}] in the cache's dtype", where.tokens(),
           options_.kv_heads, options_.head_dim);
  for (int64_t r = 0; r < rows(); ++r) {
    DS_CHECK(where.past[static_cast<size_t>(r)] + where.count(r) <= capacity(),
             "kv cache: {} tokens do not fit in {}; reserve() first",
             where.past[static_cast<size_t>(r)] + where.count(r), capacity());
  }
  allocate(layer);
  const auto l = static_cast<size_t>(layer);
  if (options_.device.is_cpu()) {
    scatter_on_cpu(keys, keys_[l], where);
    scatter_on_cpu(values, values_[l], where);
    return;
  }
  // [rows, capacity, kv_heads, head_dim] views take packed tokens as they are.
  keys_[l].transpose(1, 2).index_put_({where.row, where.position}, keys);
  values_[l].transpose(1, 2).index_put_({where.row, where.position}, values);
}

at::Tensor KvCache::keys(int64_t layer, int64_t n) const {
  const at::Tensor& buffer = keys_.at(static_cast<size_t>(layer));
  DS_CHECK(buffer.defined(), "kv cache: layer {} was never written", layer);
  return buffer.narrow(2, 0, n);
}

at::Tensor KvCache::values(int64_t layer, int64_t n) const {
  const at::Tensor& buffer = values_.at(static_cast<size_t>(layer));
  DS_CHECK(buffer.defined(), "kv cache: layer {} was never written", layer);
  return buffer.narrow(2, 0, n);
}

void KvCache::advance(const std::vector<int64_t>& counts, int64_t layers) {
  DS_CHECK(counts.size() == lengths_.size(), "kv cache: counts for {} rows, the cache has {}", counts.size(), rows());
  const bool was_empty = longest() == 0;
  for (size_t r = 0; r < counts.size(); ++r) lengths_[r] += counts[r];
  const int64_t written = layers < 0 ? options_.layers : layers;
  filled_layers_ = was_empty ? written : std::min(filled_layers_, written);
}

void KvCache::truncate(int64_t row, int64_t length) {
  check_row(row);
  int64_t& present = lengths_[static_cast<size_t>(row)];
  DS_CHECK(length >= 0 && length <= present, "kv cache: row {} has {} tokens and cannot be cut to {}", row, present,
           length);
  present = length;
}

void KvCache::keep_rows(const std::vector<int64_t>& rows) {
  DS_CHECK(!rows.empty(), "kv cache: no row would be left");
  std::vector<bool> seen(lengths_.size(), false);
  bool in_place = true;
  for (size_t i = 0; i < rows.size(); ++i) {
    check_row(rows[i]);
    in_place = in_place && rows[i] >= static_cast<int64_t>(i) && !seen[static_cast<size_t>(rows[i])];
    seen[static_cast<size_t>(rows[i])] = true;
  }
  const auto count = static_cast<int64_t>(rows.size());
  for (auto* buffers : {&keys_, &values_}) {
    for (at::Tensor& buffer : *buffers) {
      if (!buffer.defined()) continue;
      if (!in_place) {
        buffer = buffer.index_select(0, at::tensor(rows, at::kLong).to(options_.device));
        continue;
      }
      for (int64_t i = 0; i < count; ++i) {
        const int64_t from = rows[static_cast<size_t>(i)];
        if (from != i) copy_tokens(buffer, from, buffer, i, length(from));
      }
      buffer = buffer.narrow(0, 0, count);
    }
  }
  std::vector<int64_t> lengths;
  for (int64_t row : rows) lengths.push_back(length(row));
  lengths_ = std::move(lengths);
  options_.rows = count;
}

void KvCache::copy_row(int64_t row, const KvCache& other, int64_t other_row) {
  check_row(row);
  other.check_row(other_row);
  DS_CHECK(other.options_.layers == options_.layers && other.options_.kv_heads == options_.kv_heads &&
               other.options_.head_dim == options_.head_dim && other.options_.dtype == options_.dtype,
           "kv cache: a row of a cache with other layers, heads or dtype cannot be taken over");
  const int64_t tokens = other.length(other_row);
  const bool was_empty = longest() == 0;
  lengths_[static_cast<size_t>(row)] = 0;
  std::vector<int64_t> counts(lengths_.size(), 0);
  counts[static_cast<size_t>(row)] = tokens;
  reserve(counts);
  for (int64_t layer = 0; layer < other.filled_layers_ && tokens > 0; ++layer) {
    const auto l = static_cast<size_t>(layer);
    allocate(layer);
    copy_tokens(other.keys_[l], other_row, keys_[l], row, tokens);
    copy_tokens(other.values_[l], other_row, values_[l], row, tokens);
  }
  lengths_[static_cast<size_t>(row)] = tokens;
  filled_layers_ = was_empty ? other.filled_layers_ : std::min(filled_layers_, other.filled_layers_);
}

}  // namespace draftsmith
