// manifest.json of a feature store: what the store is, and which shards it consists of.
//
// Written atomically after each shard. Carries a CRC of its own content, so that a damaged manifest is never believed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/feature_store.h"

namespace draftsmith {

struct ManifestShard {
  std::string file;
  int64_t first_row = 0, rows = 0, tokens = 0, bytes = 0;
  uint32_t index_crc = 0;  // of the shard's index: data/feature_shard.h
};

struct Manifest {
  StoreIdentity identity;
  int64_t rows_total = 0;
  bool complete = false;
  std::vector<ManifestShard> shards;  // in row order, without gaps

  int64_t rows() const;
};

bool has_manifest(const std::string& folder);

// Throws Error for: none there, not JSON, a failing CRC, another format version, shards that do not follow each other.
Manifest read_manifest(const std::string& folder);

void write_manifest(const std::string& folder, const Manifest& manifest);

// What differs between two identities, "" when nothing: "target weights: the store says 4f0c1a, the target has 77ab12".
std::string identity_difference(const StoreIdentity& stored, const StoreIdentity& wanted);

}  // namespace draftsmith
