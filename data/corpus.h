// corpus.h5: tokenised conversations with their loss mask, ready to be captured and trained on.
//
// Datasets: tokens int32 [N], loss_mask uint8 [N], offsets int64 [rows + 1], row_id, source, category (text, [rows]).
// Attributes: format_version, id, tokenizer_hash, template_hash, template_switches (JSON), max_length, dropped (JSON:
// reason -> rows). The id is a hash over the rows and over everything that decided how they were made, so that a store
// made from a corpus can tell whether it still is that corpus. Chunks carry checksums: a flipped byte is an error when
// it is read.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace draftsmith {

struct CorpusRow {
  std::string row_id;  // unique in a corpus: content id of the conversation, followed by "-k" for its k-th further
                       // sample (k >= 1)
  std::string source, category;
  std::vector<int32_t> tokens;
  std::vector<uint8_t> mask;  // 1: supervised; as long as tokens
};

// True when `path` is an HDF5 file that `prepare` wrote, whatever version: what `prepare` may replace.
bool is_corpus(const std::string& path);

// The conversation a row belongs to: its content id without the part's number. Split by this, not by row_id, so that
// the samples of one conversation never end on both sides.
std::string conversation_of(const std::string& row_id);

// What decided how the rows were made.
struct CorpusOrigin {
  std::string tokenizer_hash, template_hash;
  std::string template_switches = "{}";  // ChatEncoder::switches()
  int64_t max_length = 0;                // tokens
};

class Corpus {
 public:
  // Throws Error when the file is missing, cut, of another version, or inconsistent in itself.
  static Corpus open(const std::string& path);

  int64_t rows() const;
  int64_t tokens() const;
  int64_t length(int64_t i) const;  // tokens of row i
  CorpusRow row(int64_t i) const;   // reads from disk; throws Error on a damaged chunk
  const std::string& row_id(int64_t i) const;

  const std::string& path() const;
  const std::string& id() const;  // hash over content, 64 hex digits
  const CorpusOrigin& origin() const;
  const std::string& tokenizer_hash() const { return origin().tokenizer_hash; }
  const std::string& template_hash() const { return origin().template_hash; }
  int64_t max_length() const { return origin().max_length; }
  nlohmann::ordered_json dropped() const;  // reason -> rows, as counted by `prepare`

 private:
  struct Handle;
  explicit Corpus(std::shared_ptr<Handle> handle) : handle_(std::move(handle)) {}
  std::shared_ptr<Handle> handle_;
};

// Written aside; appears under its name only with finish().
class CorpusWriter {
 public:
  CorpusWriter(const std::string& path, CorpusOrigin origin);
  ~CorpusWriter();
  CorpusWriter(const CorpusWriter&) = delete;
  CorpusWriter& operator=(const CorpusWriter&) = delete;

  // Throws Error when the row is empty, longer than max_length, not supervised anywhere, or its id was there before.
  void add(const CorpusRow& row);
  int64_t rows() const;
  int64_t tokens() const;
  // Writes what is buffered, the attributes, renames. Returns the corpus id. Throws Error when no row was added.
  std::string finish(const nlohmann::ordered_json& dropped = nlohmann::ordered_json::object());

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

}  // namespace draftsmith
