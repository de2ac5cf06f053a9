// Keys and values of committed tokens, for a batch of independent rows.
//
// Every row has its own length; a forward pass appends S tokens to each row at that row's length, and truncate() takes
// rejected ones back. Storage is one buffer per layer [rows, kv_heads, capacity, head_dim], made at that layer's first
// write and grown by doubling up to `limit`.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace draftsmith {

struct KvCacheOptions {
  int64_t layers = 0, rows = 1, kv_heads = 0, head_dim = 0;
  int64_t capacity = 256;  // tokens reserved at first
  int64_t limit = 0;       // most tokens a row may reach (the model's positions); 0: no limit
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
};

// Where the N packed tokens of a ragged batch go: row r owns tokens starts[r] .. starts[r + 1], and they follow its
// first past[r] tokens.
struct Placement {
  std::vector<int64_t> starts;  // [rows + 1]
  std::vector<int64_t> past;    // [rows]
  at::Tensor row, position;     // int64 [N], on the cache's device
  int64_t tokens() const { return starts.back(); }
  int64_t count(int64_t r) const { return starts[static_cast<size_t>(r) + 1] - starts[static_cast<size_t>(r)]; }
};

class KvCache {
 public:
  explicit KvCache(const KvCacheOptions& options);

  int64_t rows() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t length(int64_t row) const { return lengths_[static_cast<size_t>(row)]; }
  const std::vector<int64_t>& lengths() const { return lengths_; }
  int64_t capacity() const { return options_.capacity; }
  const KvCacheOptions& options() const { return options_; }
  // Layers whose content covers every row's length: fewer than all after a forward pass that stopped early.
  int64_t filled_layers() const { return filled_layers_; }

  // Makes room for `tokens` more in every row, or for counts[r] more in row r. Throws Error when a row would pass
  // `limit`.
  void reserve(int64_t tokens);
  void reserve(const std::vector<int64_t>& counts);
  // Places of counts[r] more tokens in each row r, counted from the present lengths.
  Placement place(const std::vector<int64_t>& counts) const;
  // Writes keys and values [rows, kv_heads, S, head_dim] of `layer` behind each row's length (the lengths stay:
  // advance() moves them once all layers are written).
  void write(int64_t layer, const at::Tensor& keys, const at::Tensor& values);
  // The same for packed tokens: keys and values [N, kv_heads, head_dim], `where` from place().
  void write_packed(int64_t layer, const at::Tensor& keys, const at::Tensor& values, const Placement& where);
  // Views [rows, kv_heads, n, head_dim] of the first n tokens of every row (beyond a row's length the content is
  // undefined).
  at::Tensor keys(int64_t layer, int64_t n) const;
  at::Tensor values(int64_t layer, int64_t n) const;
  // Row r grows by counts[r]. `layers` were written, from layer 0 on; -1: all.
  void advance(const std::vector<int64_t>& counts, int64_t layers = -1);
  // Row keeps its first `length` tokens.
  void truncate(int64_t row, int64_t length);
  // Keeps only `rows`, in this order: finished rows leave a batch. In place when no row moves up (rows[i] >= i, none
  // twice).
  void keep_rows(const std::vector<int64_t>& rows);
  // Takes over row `other_row` of `other` (same layers and shapes) as row `row`: a freshly prefilled sequence joins a
  // batch.
  void copy_row(int64_t row, const KvCache& other, int64_t other_row);

 private:
  at::Tensor make_buffer(int64_t capacity) const;
  void allocate(int64_t layer);
  void grow(int64_t capacity);
  void check_row(int64_t row) const;
  int64_t longest() const;

  KvCacheOptions options_;
  std::vector<int64_t> lengths_;
  int64_t filled_layers_ = 0;
  std::vector<at::Tensor> keys_, values_;  // undefined until a layer's first write
};

}  // namespace draftsmith
