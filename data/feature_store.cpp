#include "data/feature_store.h"

#include <algorithm>
#include <list>

#include "data/feature_shard.h"
#include "data/manifest.h"
#include "launch/check.h"
#include "launch/log.h"

namespace draftsmith {

struct FeatureStore::Impl {
  static constexpr size_t kOpenShards = 16;

  std::string folder;
  Manifest manifest;
  std::vector<ShardIndex> indices;  // of each shard; rows need no file to be found
  int64_t tokens = 0;
  mutable std::list<std::pair<size_t, ShardReader>> open;  // most recently used first

  size_t shard_of(int64_t row) const {
    DS_CHECK(row >= 0 && row < manifest.rows(), "{}: row {} of {} asked for", folder, row, manifest.rows());
    const auto after = std::upper_bound(manifest.shards.begin(), manifest.shards.end(), row,
                                        [](int64_t r, const ManifestShard& shard) { return r < shard.first_row; });
    return static_cast<size_t>(after - manifest.shards.begin()) - 1;
  }

  const ShardReader& reader(size_t shard) const {
    const auto found = std::find_if(open.begin(), open.end(), [&](const auto& entry) { return entry.first == shard; });
    if (found != open.end()) {
      open.splice(open.begin(), open, found);
    } else {
      open.emplace_front(shard, open_shard(folder, manifest.shards[shard], manifest.identity));
      if (open.size() > kOpenShards) open.pop_back();
    }
    return open.front().second;
  }

  void load_index(size_t shard) {
    try {
      indices.push_back(reader(shard).index());
    } catch (const Error& error) {
      DS_FAIL("{}\n       capture again with the same command: it makes what is missing", error.what());
    }
    tokens += indices.back().tokens();
  }
};

FeatureStore FeatureStore::open(const std::string& folder, bool whole) {
  auto impl = std::make_shared<Impl>();
  impl->folder = folder;
  impl->manifest = read_manifest(folder);
  DS_CHECK(!whole || impl->manifest.complete,
           "{}: holds {} of {} rows: its capture has not ended; the same capture command goes on with it", folder,
           impl->manifest.rows(), impl->manifest.rows_total);
  for (size_t shard = 0; shard < impl->manifest.shards.size(); ++shard) impl->load_index(shard);
  FeatureStore out;
  out.impl_ = std::move(impl);
  return out;
}

const StoreIdentity& FeatureStore::identity() const {
  return impl_->manifest.identity;
}
int64_t FeatureStore::rows() const {
  return impl_->manifest.rows();
}
int64_t FeatureStore::tokens() const {
  return impl_->tokens;
}
const std::string& FeatureStore::folder() const {
  return impl_->folder;
}

int64_t FeatureStore::length(int64_t row) const {
  const ShardIndex& index = impl_->indices[impl_->shard_of(row)];
  const size_t n = static_cast<size_t>(row - index.first_row);
  return index.offsets[n + 1] - index.offsets[n];
}

const std::string& FeatureStore::row_id(int64_t row) const {
  const ShardIndex& index = impl_->indices[impl_->shard_of(row)];
  return index.row_ids[static_cast<size_t>(row - index.first_row)];
}

FeatureSample FeatureStore::read(int64_t row) const {
  const size_t shard = impl_->shard_of(row);
  return impl_->reader(shard).read(row - impl_->manifest.shards[shard].first_row, /*features=*/true);
}

FeatureSample FeatureStore::read_tokens(int64_t row) const {
  const size_t shard = impl_->shard_of(row);
  return impl_->reader(shard).read(row - impl_->manifest.shards[shard].first_row, /*features=*/false);
}

int64_t FeatureStore::verify(const std::string& folder) {
  Impl impl;
  impl.folder = folder;
  impl.manifest = read_manifest(folder);
  int64_t faulty = 0;
  const auto count = [&](int64_t rows, const auto& work) {
    try {
      work();
      return true;
    } catch (const Error& error) {
      warn("{}", error.what());
      faulty += rows;
      return false;
    }
  };
  for (size_t shard = 0; shard < impl.manifest.shards.size(); ++shard) {
    const int64_t rows = impl.manifest.shards[shard].rows;
    if (!count(rows, [&] { impl.load_index(shard); })) continue;
    for (int64_t row = 0; row < rows; ++row) {
      count(1, [&] { impl.reader(shard).read(row, /*features=*/true); });
    }
  }
  return faulty;
}

}  // namespace draftsmith
