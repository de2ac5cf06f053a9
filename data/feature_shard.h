// One HDF5 shard of a feature store: samples back to back.
//
// Datasets over the tokens of all samples: tokens int32 [N], loss_mask uint8 [N], taps [N, T, H] (float32, or uint16
// with attribute dtype = "bfloat16"), last [N, H] when the store holds it. Over the samples: offsets int64 [n + 1],
// row_id text [n], crc int64 [n]. The CRC-32 of a sample covers its row id, tokens, loss mask, taps and last as they
// stand on disk, in that order; the index CRC covers first row, offsets, CRCs and row ids. Everything
// but the features carries HDF5's own checksums too, so that tokens can be read without them. A bare file says by its
// attributes what it was made from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/feature_store.h"
#include "data/h5.h"
#include "data/manifest.h"

namespace draftsmith {

struct ShardIndex {
  int64_t first_row = 0;
  std::vector<int64_t> offsets{0}, crcs;
  std::vector<std::string> row_ids;

  int64_t rows() const { return static_cast<int64_t>(crcs.size()); }
  int64_t tokens() const { return offsets.back(); }
  uint32_t crc() const;
};

class ShardWriter {
 public:
  // Creates `path`.
  ShardWriter(const std::string& path, const StoreIdentity& identity, int64_t first_row);
  // Throws Error for shapes that do not fit, ids outside int32, or a disk that is full.
  void append(const FeatureSample& sample);
  // Writes the index and closes the file; the file is not yet on disk for sure (commit_file).
  void finish();
  const ShardIndex& index() const { return index_; }
  int64_t feature_bytes() const { return feature_bytes_; }

 private:
  StoreIdentity identity_;
  H5File file_;
  std::optional<H5Dataset> tokens_, mask_, taps_, last_;
  ShardIndex index_;
  int64_t feature_bytes_ = 0;
};

class ShardReader {
 public:
  // Opens the datasets and checks their types and shapes; `index` is read and checked among itself.
  ShardReader(const std::string& path, const StoreIdentity& identity);
  const ShardIndex& index() const { return index_; }
  // `n`: number within the shard. With features the CRC is checked.
  FeatureSample read(int64_t n, bool features) const;

 private:
  std::string path_;
  bool bfloat16_ = false;
  int64_t taps_count_ = 0, hidden_ = 0;
  H5File file_;
  std::optional<H5Dataset> tokens_, mask_, taps_, last_;
  ShardIndex index_;
};

// Opens a shard that the manifest of `folder` lists. Throws Error when it is absent, has another size, cannot be read
// or has another index than was written: what reading refuses and what resuming captures again are the same.
ShardReader open_shard(const std::string& folder, const ManifestShard& listed, const StoreIdentity& identity);

}  // namespace draftsmith
