#include <ATen/ATen.h>

#include <cstring>
#include <set>

#include "data/gguf.h"
#include "data/gguf_blocks.h"
#include "launch/check.h"
#include "launch/file.h"

namespace draftsmith {
namespace {

constexpr int64_t kAlignment = 32;  // the format's default, so that no key needs to state it

template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

std::string raw_text(const std::string& value) {
  return raw<uint64_t>(value.size()) + value;
}

std::string raw_array(uint32_t type, size_t n) {
  return raw<uint32_t>(9) + raw<uint32_t>(type) + raw<uint64_t>(n);
}

int64_t padding(int64_t bytes) {
  return (kAlignment - bytes % kAlignment) % kAlignment;
}

int64_t stored_bytes(const at::Tensor& tensor, GgufType type) {
  const BlockFormat* format = block_format(static_cast<uint32_t>(type));
  return tensor.numel() / format->elements * format->bytes;
}

// The tensor's bytes as the file holds them. Throws when a value does not fit the type.
at::Tensor converted(const std::string& name, const at::Tensor& tensor, GgufType type) {
  const at::Tensor plain = tensor.detach().to(at::kCPU);
  if (type == GgufType::kI64) return plain.contiguous();
  const at::ScalarType dtype = type == GgufType::kF16    ? at::kHalf
                               : type == GgufType::kBF16 ? at::kBFloat16
                                                         : at::kFloat;
  at::Tensor out = plain.to(dtype).contiguous();
  DS_CHECK(at::isfinite(out).all().item<bool>(), "tensor \"{}\" holds values that {} cannot hold", name,
           block_format_name(static_cast<uint32_t>(type)));
  if (type != GgufType::kQ8_0) return out;
  at::Tensor packed = at::empty({stored_bytes(tensor, type)}, at::kByte);
  pack_q8_0(out.data_ptr<float>(), out.numel() / 32, packed.data_ptr<uint8_t>());
  return packed;
}

}  // namespace

void GgufWriter::u32(const std::string& key, uint32_t value) {
  metadata_.push_back({key, raw<uint32_t>(4) + raw(value)});
}
void GgufWriter::i32(const std::string& key, int32_t value) {
  metadata_.push_back({key, raw<uint32_t>(5) + raw(value)});
}
void GgufWriter::f32(const std::string& key, float value) {
  metadata_.push_back({key, raw<uint32_t>(6) + raw(value)});
}

void GgufWriter::boolean(const std::string& key, bool value) {
  metadata_.push_back({key, raw<uint32_t>(7) + raw<uint8_t>(value)});
}

void GgufWriter::text(const std::string& key, const std::string& value) {
  metadata_.push_back({key, raw<uint32_t>(8) + raw_text(value)});
}

void GgufWriter::texts(const std::string& key, const std::vector<std::string>& values) {
  std::string bytes = raw_array(8, values.size());
  for (const std::string& value : values) bytes += raw_text(value);
  metadata_.push_back({key, std::move(bytes)});
}

void GgufWriter::i32s(const std::string& key, const std::vector<int32_t>& values) {
  std::string bytes = raw_array(5, values.size());
  for (const int32_t value : values) bytes += raw(value);
  metadata_.push_back({key, std::move(bytes)});
}

void GgufWriter::f32s(const std::string& key, const std::vector<float>& values) {
  std::string bytes = raw_array(6, values.size());
  for (const float value : values) bytes += raw(value);
  metadata_.push_back({key, std::move(bytes)});
}

void GgufWriter::booleans(const std::string& key, const std::vector<bool>& values) {
  std::string bytes = raw_array(7, values.size());
  for (const bool value : values) bytes += raw<uint8_t>(value);
  metadata_.push_back({key, std::move(bytes)});
}

void GgufWriter::tensor(const std::string& name, const at::Tensor& tensor, GgufType type) {
  DS_CHECK(tensor.dim() >= 1 && tensor.dim() <= 4 && tensor.numel() > 0,
           "tensor \"{}\": {} dimensions, {} elements do not fit GGUF", name, tensor.dim(), tensor.numel());
  DS_CHECK(type != GgufType::kQ8_0 || tensor.size(-1) % 32 == 0,
           "tensor \"{}\": rows of {} elements are no whole Q8_0 blocks of 32", name, tensor.size(-1));
  DS_CHECK(type == GgufType::kI64 ? tensor.scalar_type() == at::kLong : tensor.is_floating_point(),
           "tensor \"{}\" of {} cannot be written as {}", name, c10::toString(tensor.scalar_type()),
           block_format_name(static_cast<uint32_t>(type)));
  tensors_.push_back({name, tensor, type});
}

void GgufWriter::write(const std::string& path) const {
  std::set<std::string> names;
  std::string header = "GGUF" + raw<uint32_t>(3) + raw<uint64_t>(tensors_.size()) + raw<uint64_t>(metadata_.size());
  for (const Item& item : metadata_) {
    DS_CHECK(names.insert("key " + item.key).second, "{}: key {} is written twice", path, item.key);
    header += raw_text(item.key) + item.bytes;
  }
  int64_t offset = 0;
  for (const Pending& pending : tensors_) {
    DS_CHECK(names.insert("tensor " + pending.name).second, "{}: tensor \"{}\" is written twice", path, pending.name);
    header += raw_text(pending.name) + raw<uint32_t>(static_cast<uint32_t>(pending.tensor.dim()));
    for (int64_t i = pending.tensor.dim() - 1; i >= 0; --i)
      header += raw<uint64_t>(static_cast<uint64_t>(pending.tensor.size(i)));
    header += raw<uint32_t>(static_cast<uint32_t>(pending.type)) + raw<uint64_t>(static_cast<uint64_t>(offset));
    const int64_t bytes = stored_bytes(pending.tensor, pending.type);
    offset += bytes + padding(bytes);
  }
  header.append(static_cast<size_t>(padding(static_cast<int64_t>(header.size()))), '\0');

  const char zeros[kAlignment] = {};
  AtomicFile file(path);
  file.write(header.data(), header.size());
  for (const Pending& pending : tensors_) {
    const at::Tensor bytes = converted(pending.name, pending.tensor, pending.type);
    file.write(bytes.const_data_ptr(), bytes.nbytes());
    file.write(zeros, static_cast<size_t>(padding(static_cast<int64_t>(bytes.nbytes()))));
  }
  file.commit();
}

}  // namespace draftsmith
