// safetensors files: a checked reader that maps the file, and an atomic writer.
//
// Reading: tensors share the mapped pages (no copy) where their bytes are aligned for the dtype; misaligned ones are
// copied. The mapping lives as long as any tensor made from it. Header lengths, offsets, products and overlaps are
// checked before any data is touched. Format: https://github.com/huggingface/safetensors (8-byte little-endian header
// length, JSON header, buffer).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace draftsmith {

struct TensorEntry {
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // byte range in the file
};

class SafetensorsFile {
 public:
  // Throws Error naming the file and the fault: too short, header length out of range, not JSON, unknown dtype, offsets
  // outside the file, shape product that does not match the range, holes or overlaps, duplicate names.
  static SafetensorsFile open(const std::string& path);

  const std::map<std::string, TensorEntry>& entries() const;
  const std::map<std::string, std::string>& metadata() const;
  bool has(const std::string& name) const;
  // The tensor as stored (dtype and shape of the file), CPU, read-only by convention. Throws Error when absent.
  at::Tensor tensor(const std::string& name) const;
  const std::string& path() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Writes `tensors` (any device; made contiguous one at a time) atomically. Order in the file: descending element size,
// then name; header padded to 8 bytes. `metadata` gets "format": "pt" added. Throws Error for a name that stands twice
// and a dtype the format lacks.
void write_safetensors(const std::string& path, const NamedTensors& tensors,
                       std::map<std::string, std::string> metadata = {});

// A tensor that is made only when its turn to be written comes.
struct PlannedTensor {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  std::function<at::Tensor()> make;  // must give this dtype and shape
};

// As above; holds one tensor at a time.
void write_safetensors(const std::string& path, std::vector<PlannedTensor> tensors,
                       std::map<std::string, std::string> metadata = {});

// The weights of an HF folder: model.safetensors when it is there (as Transformers decides), else the shards named by
// model.safetensors.index.json.
class WeightFolder {
 public:
  // Throws Error when neither is there, when the index names a shard that is absent or a tensor its shard lacks (the
  // first is named, with the count), or when two shards hold the same tensor.
  static WeightFolder open(const std::string& folder);

  std::vector<std::string> names() const;  // sorted
  bool has(const std::string& name) const;
  at::Tensor tensor(const std::string& name) const;
  std::vector<int64_t> shape(const std::string& name) const;
  // sha256 over (name, dtype, shape, sha256 of the bytes) of all tensors in name order: the identity of the weights,
  // independent of sharding. Reads every byte (about a second per GiB) and keeps nothing: call once.
  std::string weight_hash() const;
  const std::string& folder() const;

 private:
  std::string folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t> where_;
};

}  // namespace draftsmith
