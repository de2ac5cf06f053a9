#include "data/gguf.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include "data/gguf_blocks.h"
#include "data/mapped_file.h"
#include "launch/check.h"

namespace draftsmith {
namespace {

enum ValueType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

constexpr int64_t kMaxDimensions = 4;

// Reads forward through the file; whatever would pass its end is an error with the byte and what was read.
class Cursor {
 public:
  explicit Cursor(const MappedFile& file) : file_(file) {}

  template <typename T>
  T value(const char* what) {
    need(sizeof(T), what);
    T out;
    std::memcpy(&out, file_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return out;
  }

  std::string text(const char* what) {
    const uint64_t length = value<uint64_t>(what);
    need(length, what);
    std::string out(reinterpret_cast<const char*>(file_.data()) + at_, length);
    at_ += length;
    return out;
  }

  // A count of things that take at least `least` bytes each, so that no allocation can exceed the file.
  uint64_t count(uint64_t least, const char* what) {
    const size_t begin = at_;
    const uint64_t n = value<uint64_t>(what);
    DS_CHECK(n <= (file_.size() - at_) / least,
             "{}: byte {}: {} says {}, more than the file can hold; it is cut or damaged", file_.path(), begin, what,
             n);
    return n;
  }

  size_t at() const { return at_; }

 private:
  void need(uint64_t bytes, const char* what) {
    DS_CHECK(bytes <= file_.size() - at_, "{}: byte {}: {} needs {} bytes, {} are left; the file is cut or damaged",
             file_.path(), at_, what, bytes, file_.size() - at_);
  }
  const MappedFile& file_;
  size_t at_ = 0;
};

uint64_t least_bytes(uint32_t type) {
  constexpr uint64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
  return type < std::size(kBytes) ? kBytes[type] : 0;
}

int64_t read_integer(Cursor& in, uint32_t type) {
  switch (type) {
    case kU8:
      return in.value<uint8_t>("a value");
    case kI8:
      return in.value<int8_t>("a value");
    case kU16:
      return in.value<uint16_t>("a value");
    case kI16:
      return in.value<int16_t>("a value");
    case kU32:
      return in.value<uint32_t>("a value");
    case kI32:
      return in.value<int32_t>("a value");
    default:
      return in.value<int64_t>("a value");
  }
}

GgufValue read_array(Cursor& in, const std::string& path, const std::string& key) {
  const uint32_t type = in.value<uint32_t>("an array's type");
  DS_CHECK(least_bytes(type) > 0 && type != kArray, "{}: key {}: array of value type {} is not known", path, key, type);
  const uint64_t n = in.count(least_bytes(type), "an array's length");
  if (type == kString) {
    std::vector<std::string> out(n);
    for (std::string& item : out) item = in.text("a text");
    return out;
  }
  if (type == kBool) {
    std::vector<bool> out(n);
    for (uint64_t i = 0; i < n; ++i) out[i] = in.value<uint8_t>("a value") != 0;
    return out;
  }
  if (type == kF32 || type == kF64) {
    std::vector<double> out(n);
    for (double& item : out) item = type == kF32 ? in.value<float>("a value") : in.value<double>("a value");
    return out;
  }
  std::vector<int64_t> out(n);
  for (int64_t& item : out) {
    item = read_integer(in, type);
    DS_CHECK(type != kU64 || item >= 0, "{}: key {}: an element of 2^63 or more is too large", path, key);
  }
  return out;
}

GgufValue read_value(Cursor& in, const std::string& path, const std::string& key) {
  const uint32_t type = in.value<uint32_t>("a value's type");
  switch (type) {
    case kBool:
      return in.value<uint8_t>("a value") != 0;
    case kF32:
      return static_cast<double>(in.value<float>("a value"));
    case kF64:
      return in.value<double>("a value");
    case kString:
      return in.text("a text");
    case kArray:
      return read_array(in, path, key);
    case kU64:
      return in.value<uint64_t>("a value");
    default:
      DS_CHECK(least_bytes(type) > 0, "{}: key {}: value type {} is not known; the file is damaged or newer", path, key,
               type);
      return read_integer(in, type);
  }
}

// Bytes of a tensor, or -1 for a type that ggml does not use.
int64_t stored_bytes(const GgufTensor& tensor, const std::string& path) {
  int64_t elements = 1;
  for (const int64_t extent : tensor.shape) {
    DS_CHECK(extent > 0 && !__builtin_mul_overflow(elements, extent, &elements),
             "{}: tensor \"{}\": its shape is empty or overflows", path, tensor.name);
  }
  const BlockFormat* format = block_format(tensor.type);
  if (!format) return -1;
  DS_CHECK(tensor.shape.back() % format->elements == 0,
           "{}: tensor \"{}\": rows of {} elements are no whole blocks of {}", path, tensor.name, tensor.shape.back(),
           format->elements);
  int64_t bytes = 0;
  DS_CHECK(!__builtin_mul_overflow(elements / format->elements, format->bytes, &bytes),
           "{}: tensor \"{}\": its size overflows", path, tensor.name);
  return bytes;
}

GgufTensor read_tensor_info(Cursor& in, const std::string& path) {
  GgufTensor out;
  out.name = in.text("a tensor's name");
  const uint32_t dimensions = in.value<uint32_t>("a tensor's number of dimensions");
  DS_CHECK(dimensions >= 1 && dimensions <= kMaxDimensions, "{}: tensor \"{}\": {} dimensions, 1 to {} are possible",
           path, out.name, dimensions, kMaxDimensions);
  for (uint32_t i = 0; i < dimensions; ++i) {
    const uint64_t extent = in.value<uint64_t>("a tensor's shape");
    DS_CHECK(extent <= static_cast<uint64_t>(INT64_MAX), "{}: tensor \"{}\": extent {} is too large", path, out.name,
             extent);
    out.shape.insert(out.shape.begin(), static_cast<int64_t>(extent));
  }
  out.type = in.value<uint32_t>("a tensor's type");
  out.offset = in.value<uint64_t>("a tensor's offset");
  return out;
}

}  // namespace

struct GgufFile::Impl {
  std::shared_ptr<const MappedFile> file;
  std::map<std::string, GgufValue> metadata;
  std::vector<GgufTensor> tensors;
  std::map<std::string, size_t> by_name;
  uint64_t data_begin = 0;

  void check_ranges(uint64_t alignment) const;
};

// Every tensor lies inside the data section, aligned, and on nobody else's bytes.
void GgufFile::Impl::check_ranges(uint64_t alignment) const {
  const std::string& path = file->path();
  const uint64_t available = file->size() - data_begin;
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  for (const GgufTensor& tensor : tensors) {
    const int64_t bytes = stored_bytes(tensor, path);
    DS_CHECK(tensor.offset % alignment == 0, "{}: tensor \"{}\": offset {} is no multiple of {}", path, tensor.name,
             tensor.offset, alignment);
    const uint64_t needed = static_cast<uint64_t>(std::max<int64_t>(bytes, 0));
    DS_CHECK(
        tensor.offset <= available && needed <= available - tensor.offset,
        "{}: tensor \"{}\": {} bytes at offset {} pass the end of the {} bytes of data; the file is cut or damaged",
        path, tensor.name, needed, tensor.offset, available);
    ranges.emplace_back(tensor.offset, tensor.offset + needed);
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    DS_CHECK(ranges[i].first >= ranges[i - 1].second, "{}: two tensors share the bytes at offset {}", path,
             ranges[i].first);
  }
}

GgufFile GgufFile::open(const std::string& path) {
  auto impl = std::make_shared<Impl>();
  impl->file = MappedFile::open(path);
  Cursor in(*impl->file);
  DS_CHECK(impl->file->size() >= 4 && std::memcmp(impl->file->data(), "GGUF", 4) == 0, "{}: is not a GGUF file", path);
  in.value<uint32_t>("the magic");
  const uint32_t version = in.value<uint32_t>("the version");
  DS_CHECK(version == 2 || version == 3, "{}: GGUF version {}; 2 and 3, little endian, are read", path, version);
  const uint64_t tensors = in.count(8 + 4 + 8 + 4 + 8, "the number of tensors");
  const uint64_t keys = in.count(8 + 4 + 1, "the number of keys");

  for (uint64_t i = 0; i < keys; ++i) {
    const std::string key = in.text("a key");
    DS_CHECK(impl->metadata.emplace(key, read_value(in, path, key)).second, "{}: key {} stands twice", path, key);
  }
  for (uint64_t i = 0; i < tensors; ++i) {
    impl->tensors.push_back(read_tensor_info(in, path));
    DS_CHECK(impl->by_name.emplace(impl->tensors.back().name, i).second, "{}: tensor \"{}\" stands twice", path,
             impl->tensors.back().name);
  }

  GgufFile out;
  out.impl_ = impl;
  const int64_t alignment = out.has("general.alignment") ? out.integer("general.alignment") : 32;
  DS_CHECK(alignment > 0 && alignment <= (1 << 30) && (alignment & (alignment - 1)) == 0,
           "{}: general.alignment {} is no power of two", path, alignment);
  const uint64_t step = static_cast<uint64_t>(alignment);
  impl->data_begin = (in.at() + step - 1) / step * step;
  DS_CHECK(impl->tensors.empty() || impl->data_begin <= impl->file->size(), "{}: ends before its data; the file is cut",
           path);
  impl->data_begin = std::min<uint64_t>(impl->data_begin, impl->file->size());
  impl->check_ranges(step);
  return out;
}

const std::map<std::string, GgufValue>& GgufFile::metadata() const {
  return impl_->metadata;
}
const std::vector<GgufTensor>& GgufFile::tensors() const {
  return impl_->tensors;
}
const std::string& GgufFile::path() const {
  return impl_->file->path();
}
bool GgufFile::has(const std::string& key) const {
  return impl_->metadata.count(key) > 0;
}

namespace {

const GgufValue& value_of(const GgufFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  DS_CHECK(found != file.metadata().end(), "{}: key {} is missing", file.path(), key);
  return found->second;
}

template <typename T>
const T& value_as(const GgufFile& file, const std::string& key, const char* what) {
  const T* value = std::get_if<T>(&value_of(file, key));
  DS_CHECK(value, "{}: key {} is not {}", file.path(), key, what);
  return *value;
}

}  // namespace

int64_t GgufFile::integer(const std::string& key) const {
  if (const auto* large = std::get_if<uint64_t>(&value_of(*this, key))) {
    DS_CHECK(*large <= static_cast<uint64_t>(INT64_MAX), "{}: key {}: {} is too large", path(), key, *large);
    return static_cast<int64_t>(*large);
  }
  return value_as<int64_t>(*this, key, "a whole number");
}

double GgufFile::number(const std::string& key) const {
  return value_as<double>(*this, key, "a number with a fraction");
}
std::string GgufFile::text(const std::string& key) const {
  return value_as<std::string>(*this, key, "text");
}

const std::vector<std::string>& GgufFile::texts(const std::string& key) const {
  return value_as<std::vector<std::string>>(*this, key, "a list of texts");
}

std::vector<int64_t> GgufFile::integers(const std::string& key) const {
  return value_as<std::vector<int64_t>>(*this, key, "a list of whole numbers");
}

at::Tensor GgufFile::tensor(const std::string& name) const {
  const auto found = impl_->by_name.find(name);
  DS_CHECK(found != impl_->by_name.end(), "{}: holds no tensor \"{}\"", path(), name);
  const GgufTensor& info = impl_->tensors[found->second];
  const uint8_t* bytes = impl_->file->data() + impl_->data_begin + info.offset;
  const int64_t stored = stored_bytes(info, path());
  if (info.type == static_cast<uint32_t>(GgufType::kI64)) {
    at::Tensor out = at::empty(info.shape, at::kLong);
    std::memcpy(out.data_ptr(), bytes, static_cast<size_t>(stored));
    return out;
  }
  const BlockFormat* format = block_format(info.type);
  DS_CHECK(format && format->expand, "{}: tensor \"{}\" is stored as {}, which is not read; {} are", path(), name,
           block_format_name(info.type), expandable_formats());
  at::Tensor out = at::empty(info.shape, at::kFloat);
  float* values = out.data_ptr<float>();
  const int64_t blocks = stored / format->bytes, grain = std::max<int64_t>(1, 16384 / format->elements);
  at::parallel_for(0, blocks, grain, [&](int64_t begin, int64_t end) {
    format->expand(bytes + begin * format->bytes, end - begin, values + begin * format->elements);
  });
  return out;
}

}  // namespace draftsmith
