#include "data/feature_shard.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "launch/check.h"
#include "launch/file.h"

namespace draftsmith {
namespace {

constexpr int64_t kVersion = 1;
constexpr int64_t kChunkBytes = 1 << 20;  // a sample of a hundred tokens lies in two or three chunks
constexpr int64_t kTokenChunk = 1 << 14, kRowChunk = 1 << 10;

int64_t chunk_rows(int64_t row_bytes) {
  return std::max<int64_t>(1, kChunkBytes / row_bytes);
}

H5Type element_type(const StoreIdentity& identity) {
  return identity.dtype == "bfloat16" ? H5Type::u16 : H5Type::f32;
}

// The values as they stand on disk, contiguous.
at::Tensor stored(const at::Tensor& values, const StoreIdentity& identity) {
  return values.detach().to(at::kCPU).to(identity.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat).contiguous();
}

uint32_t crc_more(uint32_t crc, const at::Tensor& values) {
  return crc32(crc, values.const_data_ptr(), values.nbytes());
}

uint32_t sample_crc(const std::string& row_id, const at::Tensor& tokens, const at::Tensor& mask, const at::Tensor& taps,
                    const at::Tensor& last) {
  uint32_t crc = crc32(0, row_id.data(), row_id.size());
  for (const at::Tensor& part : {tokens, mask, taps, last}) {
    if (part.defined()) crc = crc_more(crc, part);
  }
  return crc;
}

}  // namespace

uint32_t ShardIndex::crc() const {
  uint32_t crc = crc32(0, &first_row, sizeof(first_row));
  crc = crc32(crc, offsets.data(), offsets.size() * sizeof(int64_t));
  crc = crc32(crc, crcs.data(), crcs.size() * sizeof(int64_t));
  for (const std::string& id : row_ids) crc = crc32(crc, id.c_str(), id.size() + 1);
  return crc;
}

ShardWriter::ShardWriter(const std::string& path, const StoreIdentity& identity, int64_t first_row)
    : identity_(identity), file_(H5File::create(path)) {
  index_.first_row = first_row;
  file_.set_attribute("format_version", kVersion);
  file_.set_attribute("target_hash", identity.target_hash);
  file_.set_attribute("corpus_id", identity.corpus_id);
  file_.set_attribute("tap_ids", fmt::format("{}", fmt::join(identity.taps, " ")));
  file_.set_attribute("first_row", first_row);
  const int64_t taps = static_cast<int64_t>(identity.taps.size()), hidden = identity.hidden_size;
  const H5Type type = element_type(identity);
  tokens_ = file_.create_dataset("tokens", H5Type::i32, {}, kTokenChunk, /*checksum=*/true);
  mask_ = file_.create_dataset("loss_mask", H5Type::u8, {}, kTokenChunk, /*checksum=*/true);
  taps_ = file_.create_dataset("taps", type, {taps, hidden}, chunk_rows(taps * hidden * h5_element_size(type)));
  taps_->set_attribute("dtype", identity.dtype);
  if (identity.with_last) {
    last_ = file_.create_dataset("last", type, {hidden}, chunk_rows(hidden * h5_element_size(type)));
    last_->set_attribute("dtype", identity.dtype);
  }
}

void ShardWriter::append(const FeatureSample& sample) {
  const int64_t length = sample.tokens.numel(), count = static_cast<int64_t>(identity_.taps.size()),
                hidden = identity_.hidden_size;
  const auto check = [&](bool right, const char* what, const at::Tensor& found) {
    DS_CHECK(right, "{}: sample {} (row {}) of {} tokens: {} has shape {}", file_.path(), sample.row_id, sample.row,
             length, what, found.defined() ? c10::str(found.sizes()) : "none");
  };
  check(sample.tokens.dim() == 1 && length > 0, "tokens", sample.tokens);
  check(sample.loss_mask.sizes() == sample.tokens.sizes(), "loss mask", sample.loss_mask);
  check(sample.taps.defined() && sample.taps.sizes() == at::IntArrayRef({length, count, hidden}), "taps", sample.taps);
  check(!identity_.with_last || (sample.last.defined() && sample.last.sizes() == at::IntArrayRef({length, hidden})),
        "last", sample.last);
  DS_CHECK(sample.tokens.min().item<int64_t>() >= 0 && sample.tokens.max().item<int64_t>() <= INT32_MAX,
           "{}: sample {} (row {}): a token id is no id", file_.path(), sample.row_id, sample.row);

  const at::Tensor tokens = sample.tokens.to(at::kCPU).to(at::kInt).contiguous(),
                   mask = sample.loss_mask.to(at::kCPU).to(at::kByte).contiguous();
  const at::Tensor taps = stored(sample.taps, identity_);
  const at::Tensor last = identity_.with_last ? stored(sample.last, identity_) : at::Tensor();
  tokens_->append(tokens.const_data_ptr(), H5Type::i32, length);
  mask_->append(mask.const_data_ptr(), H5Type::u8, length);
  taps_->append(taps.const_data_ptr(), element_type(identity_), length);
  if (last.defined()) last_->append(last.const_data_ptr(), element_type(identity_), length);
  index_.offsets.push_back(index_.offsets.back() + length);
  index_.crcs.push_back(sample_crc(sample.row_id, tokens, mask, taps, last));
  index_.row_ids.push_back(sample.row_id);
  feature_bytes_ += static_cast<int64_t>(taps.nbytes() + (last.defined() ? last.nbytes() : 0));
}

void ShardWriter::finish() {
  file_.create_dataset("offsets", H5Type::i64, {}, kRowChunk, /*checksum=*/true).append(index_.offsets);
  file_.create_dataset("crc", H5Type::i64, {}, kRowChunk, /*checksum=*/true).append(index_.crcs);
  file_.create_strings("row_id", index_.row_ids, kRowChunk);
  for (auto* dataset : {&tokens_, &mask_, &taps_, &last_}) dataset->reset();
  file_.close();
}

ShardReader::ShardReader(const std::string& path, const StoreIdentity& identity)
    : path_(path),
      bfloat16_(identity.dtype == "bfloat16"),
      taps_count_(static_cast<int64_t>(identity.taps.size())),
      hidden_(identity.hidden_size),
      file_(H5File::open(path)) {
  DS_CHECK(file_.int_attribute("format_version") == kVersion, "{}: format version {}, this program reads {}", path,
           file_.int_attribute("format_version"), kVersion);
  index_.first_row = file_.int_attribute("first_row");
  index_.offsets = file_.dataset("offsets", H5Type::i64, {}).read_all<int64_t>();
  index_.crcs = file_.dataset("crc", H5Type::i64, {}).read_all<int64_t>();
  const H5Dataset ids = file_.dataset("row_id", H5Type::string, {});
  index_.row_ids = ids.read_strings(0, ids.rows());
  DS_CHECK(index_.offsets.size() == index_.crcs.size() + 1 && index_.row_ids.size() == index_.crcs.size() &&
               index_.offsets[0] == 0 && std::is_sorted(index_.offsets.begin(), index_.offsets.end()),
           "{}: its index contradicts itself; the file is damaged", path);
  const H5Type type = element_type(identity);
  tokens_ = file_.dataset("tokens", H5Type::i32, {});
  mask_ = file_.dataset("loss_mask", H5Type::u8, {});
  taps_ = file_.dataset("taps", type, {taps_count_, hidden_});
  if (identity.with_last) last_ = file_.dataset("last", type, {hidden_});
  for (const auto* dataset : {&tokens_, &mask_, &taps_, &last_}) {
    DS_CHECK(!*dataset || (*dataset)->rows() == index_.tokens(), "{}: {} rows, the index says {}; the file is damaged",
             *dataset ? (*dataset)->where() : path, *dataset ? (*dataset)->rows() : 0, index_.tokens());
  }
}

FeatureSample ShardReader::read(int64_t n, bool features) const {
  const size_t at = static_cast<size_t>(n);
  const int64_t first = index_.offsets[at], length = index_.offsets[at + 1] - first;
  FeatureSample out;
  out.row_id = index_.row_ids[at];
  out.row = index_.first_row + n;
  const at::Tensor tokens = at::empty({length}, at::kInt);
  out.loss_mask = at::empty({length}, at::kByte);
  tokens_->read(first, length, tokens.data_ptr(), H5Type::i32);
  mask_->read(first, length, out.loss_mask.data_ptr(), H5Type::u8);
  out.tokens = tokens.to(at::kLong);
  if (!features) return out;

  const H5Type type = bfloat16_ ? H5Type::u16 : H5Type::f32;
  const auto options = at::TensorOptions().dtype(bfloat16_ ? at::kBFloat16 : at::kFloat);
  at::Tensor taps = at::empty({length, taps_count_, hidden_}, options), last;
  taps_->read(first, length, taps.data_ptr(), type);
  if (last_) {
    last = at::empty({length, hidden_}, options);
    last_->read(first, length, last.data_ptr(), type);
  }
  DS_CHECK(sample_crc(out.row_id, tokens, out.loss_mask, taps, last) == index_.crcs[at],
           "{}: sample {} (row {}) is not what was written: its CRC differs; the disk or a copy changed it\n"
           "       remove this file and capture again (the other shards before it are kept)",
           path_, out.row_id, out.row);
  out.taps = taps.to(at::kFloat);
  if (last.defined()) out.last = last.to(at::kFloat);
  return out;
}

ShardReader open_shard(const std::string& folder, const ManifestShard& listed, const StoreIdentity& identity) {
  const std::filesystem::path path = std::filesystem::path(folder) / listed.file;
  DS_CHECK(std::filesystem::exists(path), "{}: shard {} (rows {} to {}) is absent", folder, listed.file,
           listed.first_row, listed.first_row + listed.rows - 1);
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  DS_CHECK(bytes == listed.bytes, "{}: has {} bytes, {} were written; it was cut or changed", path.string(), bytes,
           listed.bytes);
  ShardReader reader(path.string(), identity);
  const ShardIndex& index = reader.index();
  DS_CHECK(index.first_row == listed.first_row && index.rows() == listed.rows && index.tokens() == listed.tokens &&
               index.crc() == listed.index_crc,
           "{}: its index is not the one that the manifest names: it is another shard, or was changed", path.string());
  return reader;
}

}  // namespace draftsmith
