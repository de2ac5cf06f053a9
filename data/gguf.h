// GGUF files (llama.cpp's container): a checked reader with dequantisation to fp32, and an atomic writer of version 3.
//
// The reader maps the file; every length, count, offset and type is checked against the file's size before it is used.
// Shapes are given in row-major (HF) order, the reverse of the file's `ne`. How elements are stored:
// data/gguf_blocks.h. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace draftsmith {

// Integers are widened to int64 (uint64 stays), floats to double.
using GgufValue = std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<bool>, std::vector<int64_t>,
                               std::vector<double>, std::vector<std::string>>;

struct GgufTensor {
  std::string name;
  uint32_t type = 0;  // ggml type id
  std::vector<int64_t> shape;
  uint64_t offset = 0;  // from the start of the data section
};

class GgufFile {
 public:
  // Throws Error naming the byte and the fault: cut anywhere, counts and lengths beyond the file, unknown value types,
  // a key or tensor that stands twice, shapes that overflow, data outside the file, misaligned or overlapping.
  static GgufFile open(const std::string& path);
  const std::map<std::string, GgufValue>& metadata() const;
  // Value of `key` as the wanted type (int64 accepts any integer type; double accepts floats). Throws Error naming file
  // and key when absent or of another type.
  int64_t integer(const std::string& key) const;
  double number(const std::string& key) const;
  std::string text(const std::string& key) const;
  const std::vector<std::string>& texts(const std::string& key) const;
  std::vector<int64_t> integers(const std::string& key) const;
  bool has(const std::string& key) const;
  const std::vector<GgufTensor>& tensors() const;
  // fp32 [shape], dequantised, a tensor of its own. Types: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K,
  // Q6_K; I64 gives int64; another one is named in the error.
  at::Tensor tensor(const std::string& name) const;
  const std::string& path() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

enum class GgufType : uint32_t { kF32 = 0, kF16 = 1, kQ8_0 = 8, kI64 = 27, kBF16 = 30 };

// Collects metadata and tensors, writes them at once. Keys keep their order; values state their type by the method.
class GgufWriter {
 public:
  void u32(const std::string& key, uint32_t value);
  void i32(const std::string& key, int32_t value);
  void f32(const std::string& key, float value);
  void boolean(const std::string& key, bool value);
  void text(const std::string& key, const std::string& value);
  void texts(const std::string& key, const std::vector<std::string>& values);
  void i32s(const std::string& key, const std::vector<int32_t>& values);
  void f32s(const std::string& key, const std::vector<float>& values);
  void booleans(const std::string& key, const std::vector<bool>& values);
  // `tensor` in HF shape order; converted to `type` when written, one at a time. Throws Error when the type does not
  // fit: kQ8_0 needs the last dimension to be a multiple of 32, kI64 takes int64 tensors; a value that overflows the
  // type is found by write().
  void tensor(const std::string& name, const at::Tensor& tensor, GgufType type);
  // Atomically; tensors are in the file in the order they were added.
  void write(const std::string& path) const;

 private:
  struct Item {
    std::string key, bytes;  // bytes: value type and value as the file holds them
  };
  std::vector<Item> metadata_;
  struct Pending {
    std::string name;
    at::Tensor tensor;
    GgufType type;
  };
  std::vector<Pending> tensors_;
};

}  // namespace draftsmith
