#include <filesystem>
#include <optional>
#include <set>

#include "data/feature_shard.h"
#include "data/feature_store.h"
#include "data/manifest.h"
#include "launch/check.h"
#include "launch/file.h"
#include "launch/lock.h"
#include "launch/log.h"
#include "launch/ranks.h"

namespace draftsmith {
namespace {

namespace fs = std::filesystem;

bool is_shard(const std::string& name) {
  return name.rfind("shard-", 0) == 0;
}

void check_identity(const StoreIdentity& identity) {
  DS_CHECK(identity.dtype == "float32" || identity.dtype == "bfloat16", "feature dtype {} is not float32 or bfloat16",
           identity.dtype);
  DS_CHECK(!identity.taps.empty() && identity.hidden_size > 0, "a feature store needs taps and a hidden size");
}

}  // namespace

struct FeatureStoreWriter::Impl {
  std::string folder;
  std::optional<FolderLock> lock;
  Manifest manifest;
  int64_t shard_bytes = 0;
  std::optional<ShardWriter> shard;
  fs::path shard_path, shard_part;

  // What an earlier run finished; everything else of its making is removed. A store without a shard binds nothing: a
  // run that failed before its first one, say by a damaged target, must not stand in the way of the mended one.
  void resume(const StoreIdentity& identity, int64_t rows_total) {
    const bool store = has_manifest(folder);
    if (store) manifest = read_manifest(folder);
    if (!manifest.shards.empty()) {
      const std::string difference = identity_difference(manifest.identity, identity);
      DS_CHECK(difference.empty(),
               "{}: holds a store of something else\n       {}\n       choose another folder, or remove this one and "
               "capture again",
               folder, difference);
      DS_CHECK(manifest.rows_total == rows_total, "{}: was begun for {} rows, the corpus has {}", folder,
               manifest.rows_total, rows_total);
      drop_damaged();
    } else {
      for (const auto& entry : fs::directory_iterator(folder)) {
        const std::string name = entry.path().filename().string();
        DS_CHECK(store || is_shard(name) || name.rfind("manifest.json.part-", 0) == 0,
                 "{}: is not empty and is no feature store ({} is in it); choose another folder", folder, name);
      }
      manifest = {};
      manifest.identity = identity;
      manifest.rows_total = rows_total;
      write_manifest(folder, manifest);
    }
    std::set<std::string> keep;
    for (const ManifestShard& listed : manifest.shards) keep.insert(listed.file);
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (is_shard(name) && !keep.count(name)) fs::remove(entry.path());  // parts of a killed run among them
    }
  }

  void drop_damaged() {
    for (size_t i = 0; i < manifest.shards.size(); ++i) {
      try {
        open_shard(folder, manifest.shards[i], manifest.identity);
      } catch (const Error& error) {
        warn("{}; capturing goes on at row {}", error.what(), manifest.shards[i].first_row);
        manifest.shards.resize(i);
        manifest.complete = false;
        write_manifest(folder, manifest);
        return;
      }
    }
  }

  int64_t rows_done() const { return manifest.rows() + (shard ? shard->index().rows() : 0); }

  void begin_shard() {
    const std::string name = fmt::format("shard-{:03d}-{:05d}.h5", ranks().rank, manifest.shards.size());
    shard_path = fs::path(folder) / name;
    shard_part = new_part(shard_path);
    shard.emplace(shard_part.string(), manifest.identity, manifest.rows());
  }

  void end_shard() {
    shard->finish();
    const ShardIndex& index = shard->index();
    const int64_t bytes = static_cast<int64_t>(fs::file_size(shard_part));
    commit_file(shard_part, shard_path);
    manifest.shards.push_back(
        {shard_path.filename().string(), index.first_row, index.rows(), index.tokens(), bytes, index.crc()});
    shard.reset();
    write_manifest(folder, manifest);
  }
};

FeatureStoreWriter::FeatureStoreWriter(const std::string& folder, const StoreIdentity& identity, int64_t rows_total,
                                       int64_t shard_bytes)
    : impl_(std::make_unique<Impl>()) {
  check_identity(identity);
  check_writable_folder(folder);
  impl_->folder = folder;
  impl_->shard_bytes = shard_bytes;
  impl_->lock.emplace(folder, "store");
  impl_->resume(identity, rows_total);
}

FeatureStoreWriter::~FeatureStoreWriter() {
  if (!impl_->shard) return;
  impl_->shard.reset();
  std::error_code ignored;
  fs::remove(impl_->shard_part, ignored);
}

int64_t FeatureStoreWriter::rows_done() const {
  return impl_->rows_done();
}

void FeatureStoreWriter::append(const FeatureSample& sample) {
  const int64_t next = impl_->rows_done();
  DS_CHECK(sample.row == next && next < impl_->manifest.rows_total, "{}: row {} was appended where row {} of {} stands",
           impl_->folder, sample.row, next, impl_->manifest.rows_total);
  if (!impl_->shard) impl_->begin_shard();
  impl_->shard->append(sample);
  if (impl_->shard->feature_bytes() >= impl_->shard_bytes) impl_->end_shard();
}

void FeatureStoreWriter::finish() {
  DS_CHECK(impl_->rows_done() == impl_->manifest.rows_total, "{}: ended after {} of {} rows", impl_->folder,
           impl_->rows_done(), impl_->manifest.rows_total);
  if (impl_->shard) impl_->end_shard();
  if (impl_->manifest.complete) return;
  impl_->manifest.complete = true;
  write_manifest(impl_->folder, impl_->manifest);
}

}  // namespace draftsmith
