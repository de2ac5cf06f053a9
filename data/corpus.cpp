#include "data/corpus.h"

#include <algorithm>
#include <filesystem>
#include <unordered_set>

#include "data/h5.h"
#include "launch/check.h"
#include "launch/file.h"

namespace draftsmith {
namespace {

constexpr int64_t kFormatVersion = 1;
constexpr int64_t kChunkTokens = 1 << 18;  // 1 MiB of int32
constexpr int64_t kChunkRows = 1 << 12;
constexpr int64_t kIdDigits = 32;  // of a conversation's content id

std::string row_digest(const CorpusRow& row) {
  std::string bytes = row.row_id + '\n' + row.source + '\n' + row.category + '\n';
  bytes.append(reinterpret_cast<const char*>(row.tokens.data()), row.tokens.size() * sizeof(int32_t));
  bytes.append(reinterpret_cast<const char*>(row.mask.data()), row.mask.size());
  return sha256(bytes);
}

std::string corpus_id(const CorpusOrigin& origin, const std::string& row_digests) {
  return sha256(fmt::format("{}\n{}\n{}\n{}\n{}\n{}", kFormatVersion, origin.tokenizer_hash, origin.template_hash,
                            origin.template_switches, origin.max_length, row_digests));
}

// Over everything but the tokens, which carry checksums of their own: strings in HDF5 do not.
std::string index_hash(const CorpusOrigin& origin, const std::string& id, const std::vector<int64_t>& offsets,
                       std::initializer_list<const std::vector<std::string>*> columns) {
  std::string bytes = corpus_id(origin, id);
  bytes.append(reinterpret_cast<const char*>(offsets.data()), offsets.size() * sizeof(int64_t));
  for (const std::vector<std::string>* column : columns) {
    for (const std::string& value : *column) bytes += value + '\n';
  }
  return sha256(bytes);
}

}  // namespace

bool is_corpus(const std::string& path) {
  try {
    const H5File file = H5File::open(path);
    return file.has_attribute("template_hash") && file.has("loss_mask");
  } catch (const Error&) {
    return false;
  }
}

std::string conversation_of(const std::string& row_id) {
  return row_id.substr(0, std::min<size_t>(row_id.size(), kIdDigits));
}

// ---- reading ----

struct Corpus::Handle {
  std::string path, id;
  CorpusOrigin origin;
  nlohmann::ordered_json dropped;
  std::vector<int64_t> offsets;
  std::vector<std::string> row_ids, sources, categories;
  H5Dataset tokens, mask;
};

Corpus Corpus::open(const std::string& path) {
  const H5File file = H5File::open(path);
  DS_CHECK(file.has_attribute("format_version") && file.has("loss_mask") && file.has("row_id"),
           "{}: is an HDF5 file but no corpus; make one with `draftsmith prepare`", path);
  const int64_t version = file.int_attribute("format_version");
  DS_CHECK(version == kFormatVersion, "{}: corpus format {}, this program reads format {}; prepare the corpus again",
           path, version, kFormatVersion);
  auto handle = std::shared_ptr<Handle>(new Handle{
      path,
      file.string_attribute("id"),
      {file.string_attribute("tokenizer_hash"), file.string_attribute("template_hash"),
       file.string_attribute("template_switches"), file.int_attribute("max_length")},
      nlohmann::ordered_json::parse(file.string_attribute("dropped"), nullptr, /*allow_exceptions=*/false),
      file.dataset("offsets", H5Type::i64, {}).read_all<int64_t>(),
      {},
      {},
      {},
      file.dataset("tokens", H5Type::i32, {}),
      file.dataset("loss_mask", H5Type::u8, {}),
  });
  const std::vector<int64_t>& offsets = handle->offsets;
  DS_CHECK(offsets.size() > 1 && offsets.front() == 0 && std::is_sorted(offsets.begin(), offsets.end()),
           "{}: the row offsets are not ascending from 0; prepare the corpus again", path);
  DS_CHECK(handle->tokens.rows() == offsets.back() && handle->mask.rows() == offsets.back(),
           "{}: {} tokens and {} mask values, but the rows end at {}; prepare the corpus again", path,
           handle->tokens.rows(), handle->mask.rows(), offsets.back());
  const int64_t rows = static_cast<int64_t>(offsets.size()) - 1;
  const auto strings = [&](const char* name) {
    const H5Dataset set = file.dataset(name, H5Type::string, {});
    DS_CHECK(set.rows() == rows, "{}: {} values for {} rows; prepare the corpus again", set.where(), set.rows(), rows);
    return set.read_strings(0, rows);
  };
  handle->row_ids = strings("row_id");
  handle->sources = strings("source");
  handle->categories = strings("category");
  DS_CHECK(file.string_attribute("index_hash") == index_hash(handle->origin, handle->id, offsets,
                                                             {&handle->row_ids, &handle->sources, &handle->categories}),
           "{}: row ids, sources or attributes are not those that were written: the file is damaged; prepare the "
           "corpus again",
           path);
  return Corpus(std::move(handle));
}

int64_t Corpus::rows() const {
  return static_cast<int64_t>(handle_->row_ids.size());
}
int64_t Corpus::tokens() const {
  return handle_->offsets.back();
}
const std::string& Corpus::path() const {
  return handle_->path;
}
const std::string& Corpus::id() const {
  return handle_->id;
}
const CorpusOrigin& Corpus::origin() const {
  return handle_->origin;
}
nlohmann::ordered_json Corpus::dropped() const {
  return handle_->dropped;
}

int64_t Corpus::length(int64_t i) const {
  DS_CHECK(i >= 0 && i < rows(), "{}: row {} asked of {}", path(), i, rows());
  return handle_->offsets[static_cast<size_t>(i) + 1] - handle_->offsets[static_cast<size_t>(i)];
}

const std::string& Corpus::row_id(int64_t i) const {
  DS_CHECK(i >= 0 && i < rows(), "{}: row {} asked of {}", path(), i, rows());
  return handle_->row_ids[static_cast<size_t>(i)];
}

CorpusRow Corpus::row(int64_t i) const {
  const int64_t count = length(i);
  const size_t at = static_cast<size_t>(i);
  const int64_t first = handle_->offsets[at];
  return {handle_->row_ids[at], handle_->sources[at], handle_->categories[at],
          handle_->tokens.read<int32_t>(first, count), handle_->mask.read<uint8_t>(first, count)};
}

// ---- writing ----

struct CorpusWriter::Handle {
  Handle(std::string path, std::string part, CorpusOrigin origin, H5File file)
      : path(std::move(path)), part(std::move(part)), origin(std::move(origin)), file(std::move(file)) {}

  std::string path, part;
  CorpusOrigin origin;
  H5File file;
  std::vector<int32_t> tokens;
  std::vector<uint8_t> mask;
  std::vector<int64_t> offsets{0};
  std::vector<std::string> row_ids, sources, categories;
  std::unordered_set<std::string> seen;
  std::string digests;
  bool finished = false;

  // Appends the buffered tokens, creating the datasets at the first call.
  void flush() {
    if (!file.has("tokens")) {
      file.create_dataset("tokens", H5Type::i32, {}, kChunkTokens, /*checksum=*/true);
      file.create_dataset("loss_mask", H5Type::u8, {}, kChunkTokens, /*checksum=*/true);
    }
    file.dataset("tokens").append(tokens);
    file.dataset("loss_mask").append(mask);
    tokens.clear();
    mask.clear();
  }
};

CorpusWriter::CorpusWriter(const std::string& path, CorpusOrigin origin) {
  const std::string part = new_part(path).string();
  handle_ = std::make_unique<Handle>(path, part, std::move(origin), H5File::create(part));
}

CorpusWriter::~CorpusWriter() {
  if (handle_->finished) return;
  const std::string part = handle_->part;
  handle_.reset();
  std::error_code ignored;
  std::filesystem::remove(part, ignored);
}

void CorpusWriter::add(const CorpusRow& row) {
  Handle& h = *handle_;
  const int64_t length = static_cast<int64_t>(row.tokens.size());
  DS_CHECK(length > 0 && row.mask.size() == row.tokens.size(), "{}: row {} has {} tokens and {} mask values", h.path,
           row.row_id, length, row.mask.size());
  DS_CHECK(length <= h.origin.max_length, "{}: row {} has {} tokens, the corpus holds rows of at most {}", h.path,
           row.row_id, length, h.origin.max_length);
  DS_CHECK(std::find(row.mask.begin(), row.mask.end(), 1) != row.mask.end(), "{}: row {} has no supervised token",
           h.path, row.row_id);
  DS_CHECK(h.seen.insert(row.row_id).second, "{}: row {} is there already", h.path, row.row_id);
  h.tokens.insert(h.tokens.end(), row.tokens.begin(), row.tokens.end());
  h.mask.insert(h.mask.end(), row.mask.begin(), row.mask.end());
  h.offsets.push_back(h.offsets.back() + length);
  h.row_ids.push_back(row.row_id);
  h.sources.push_back(row.source);
  h.categories.push_back(row.category);
  h.digests += row_digest(row);
  if (static_cast<int64_t>(h.tokens.size()) >= 4 * kChunkTokens) h.flush();
}

int64_t CorpusWriter::rows() const {
  return static_cast<int64_t>(handle_->row_ids.size());
}
int64_t CorpusWriter::tokens() const {
  return handle_->offsets.back();
}

std::string CorpusWriter::finish(const nlohmann::ordered_json& dropped) {
  Handle& h = *handle_;
  DS_CHECK(!h.row_ids.empty(), "{}: there is no row to write", h.path);
  h.flush();
  h.file.create_dataset("offsets", H5Type::i64, {}, kChunkRows, /*checksum=*/true).append(h.offsets);
  h.file.create_strings("row_id", h.row_ids, kChunkRows);
  h.file.create_strings("source", h.sources, kChunkRows);
  h.file.create_strings("category", h.categories, kChunkRows);
  const std::string id = corpus_id(h.origin, h.digests);
  h.file.set_attribute("format_version", kFormatVersion);
  h.file.set_attribute("id", id);
  h.file.set_attribute("tokenizer_hash", h.origin.tokenizer_hash);
  h.file.set_attribute("template_hash", h.origin.template_hash);
  h.file.set_attribute("template_switches", h.origin.template_switches);
  h.file.set_attribute("max_length", h.origin.max_length);
  h.file.set_attribute("index_hash", index_hash(h.origin, id, h.offsets, {&h.row_ids, &h.sources, &h.categories}));
  h.file.set_attribute("dropped", dropped.dump());
  h.file.close();
  commit_file(h.part, h.path);
  h.finished = true;
  return id;
}

}  // namespace draftsmith
