// The feature store: corpus rows and the target's taps on disk, whole or absent at every moment.
//
// A folder with manifest.json (data/manifest.h) and shards `shard-RRR-NNNNN.h5` (writer rank, number;
// data/feature_shard.h). A shard is written aside, flushed, fsynced, renamed, then entered in the manifest (also
// atomically): after a kill at any byte the writer goes on where the manifest ends and nothing false is ever read. The
// files are functions of the samples alone: an interrupted and resumed run leaves the same bytes as one that never
// stopped.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace draftsmith {

struct StoreIdentity {
  std::string target_hash;    // weight hash of the target
  std::string target_name;    // for people
  std::string corpus_id;      // identity of the corpus
  std::vector<int64_t> taps;  // tap ids
  int64_t hidden_size = 0;
  std::string dtype = "float32";  // float32 | bfloat16
  bool with_last = false;         // last: hidden state after the final norm, [N, H]
};

struct FeatureSample {
  std::string row_id;
  int64_t row = 0;       // row in the corpus
  at::Tensor tokens;     // int64 [S]
  at::Tensor loss_mask;  // uint8 [S]
  at::Tensor taps;       // fp32 [S, T, H] (bf16 stores are widened)
  at::Tensor last;       // fp32 [S, H] or undefined
};

// Reading. Thread-compatible: one reader, one thread (HDF5's global lock).
class FeatureStore {
 public:
  // Throws Error for: no manifest or a damaged one, another format version, a shard that is absent, whose size differs
  // from the manifest or whose index is damaged, and, unless `whole` is false, a store whose capture has not ended.
  static FeatureStore open(const std::string& folder, bool whole = true);
  const StoreIdentity& identity() const;
  int64_t rows() const;
  int64_t tokens() const;
  int64_t length(int64_t row) const;  // tokens of a row, without reading it
  const std::string& row_id(int64_t row) const;
  // Reads one sample; checks its CRC. Throws Error naming shard, row id and row number when the bytes are not those
  // that were written.
  FeatureSample read(int64_t row) const;
  // The same without taps and last: quick; HDF5's checksums stand for the CRC, which covers the features too.
  FeatureSample read_tokens(int64_t row) const;
  // Reads every sample of a folder; returns the number of faulty ones, each reported through warn(). A shard that
  // cannot be opened counts with all its rows. Throws Error when the manifest itself is absent or damaged.
  static int64_t verify(const std::string& folder);
  const std::string& folder() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

// Writing, resumable: rows must come in corpus order; rows_done() says where to go on.
class FeatureStoreWriter {
 public:
  // Opens or continues `folder`. Throws Error when the folder holds shards of another identity (the differing field
  // and both values are named), is non-empty without being a store, or is being written by another process. Parts left
  // by a killed run are removed; from the first shard on that is absent or is not the one that was written (its size or
  // its index differs), shards are dropped with a warning and their rows are to be appended again.
  FeatureStoreWriter(const std::string& folder, const StoreIdentity& identity, int64_t rows_total,
                     int64_t shard_bytes = int64_t{256} << 20);
  ~FeatureStoreWriter();
  int64_t rows_done() const;
  // `sample.row` must be rows_done(); taps and last in any float dtype, rounded to the store's. Throws Error for the
  // wrong row or shapes, and when the disk is full: what the manifest names stays whole.
  void append(const FeatureSample& sample);
  // Ends the last shard; the manifest says complete. Throws Error when rows are missing. Without it the store can be
  // continued.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace draftsmith
