// Keys and values of committed tokens, for a batch of independent rows.
//
// Every row has its own length; a forward pass appends S tokens to each row at that row's length, and truncate() takes rejected ones back. Storage is one
// buffer per layer [rows, kv_heads, capacity, head_dim], grown by doubling up to `limit`.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace draftsmith {

struct KvCacheOptions {
  int64_t layers = 0, rows = 1, kv_heads = 0, head_dim = 0;
  int64_t capacity = 256;       // tokens reserved at first
  int64_t limit = 0;            // most tokens a row may reach (the model's positions); 0: no limit
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
};

class KvCache {
 public:
  explicit KvCache(const KvCacheOptions& options);

  int64_t rows() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t length(int64_t row) const { return lengths_[static_cast<size_t>(row)]; }
  const std::vector<int64_t>& lengths() const { return lengths_; }
  int64_t capacity() const { return options_.capacity; }

  // Makes room for `tokens` more in every row. Throws Error when a row would pass `limit`.
  void reserve(int64_t tokens);
  // Writes keys and values [rows, kv_heads, S, head_dim] of `layer` behind each row's length (the lengths stay: advance() moves them once all layers are written).
  void write(int64_t layer, const at::Tensor& keys, const at::Tensor& values);
  // Views [rows, kv_heads, n, head_dim] of the first n tokens of every row (beyond a row's length the content is undefined).
  at::Tensor keys(int64_t layer, int64_t n) const;
  at::Tensor values(int64_t layer, int64_t n) const;
  // Row r grows by counts[r].
  void advance(const std::vector<int64_t>& counts);
  // Row keeps its first `length` tokens.
  void truncate(int64_t row, int64_t length);
  // Keeps only `rows`, in this order: finished rows leave a batch.
  void keep_rows(const std::vector<int64_t>& rows);
  // Takes over row 0 of `other` (same layers and shapes) as row `row`: a freshly prefilled sequence joins a batch.
  void copy_row(int64_t row, const KvCache& other, int64_t other_row);

 private:
  KvCacheOptions options_;
  std::vector<int64_t> lengths_;
  std::vector<at::Tensor> keys_, values_;
};

}  // namespace draftsmith
