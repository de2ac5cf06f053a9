#include "data/safetensors.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "data/json_rows.h"
#include "data/mapped_file.h"
#include "launch/check.h"
#include "launch/file.h"

namespace draftsmith {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kMaxHeader = 100'000'000;  // the format's own limit

struct NamedType {
  const char* name;
  at::ScalarType type;
};

constexpr NamedType kTypes[] = {
    {"BOOL", at::kBool},
    {"U8", at::kByte},
    {"I8", at::kChar},
    {"I16", at::kShort},
    {"U16", at::kUInt16},
    {"F16", at::kHalf},
    {"BF16", at::kBFloat16},
    {"I32", at::kInt},
    {"U32", at::kUInt32},
    {"F32", at::kFloat},
    {"I64", at::kLong},
    {"U64", at::kUInt64},
    {"F64", at::kDouble},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E5M2", at::kFloat8_e5m2},
    {"F8_E8M0", at::kFloat8_e8m0fnu},
};

const char* type_name(at::ScalarType type) {
  for (const NamedType& known : kTypes) {
    if (known.type == type) return known.name;
  }
  return nullptr;
}

// Parses the header; a name that stands twice is an error, which JSON parsers else swallow.
json parse_header(const std::string& path, std::string_view text) {
  std::vector<std::set<std::string>> names;
  const auto watch = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) names.emplace_back();
    if (event == json::parse_event_t::object_end) names.pop_back();
    if (event == json::parse_event_t::key) {
      DS_CHECK(names.back().insert(value.get<std::string>()).second, "{}: the header names \"{}\" twice", path,
               value.get<std::string>());
    }
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::exception& error) {
    DS_FAIL("{}: the header of {} bytes is not JSON: {}; the file is damaged or is not safetensors", path, text.size(),
            json_words(error));
  }
}

// A whole number in [0, 2^63), as sizes and offsets must be.
int64_t whole(const json& value, const std::string& path, const std::string& name, const char* what) {
  DS_CHECK(value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX),
           "{}: tensor \"{}\": {} {} is not a whole number below 2^63", path, name, what, value.dump());
  return value.get<int64_t>();
}

TensorEntry parse_entry(const json& value, const std::string& path, const std::string& name, int64_t data_begin,
                        int64_t data_bytes) {
  DS_CHECK(value.is_object() && value.contains("dtype") && value.contains("shape") && value.contains("data_offsets"),
           "{}: tensor \"{}\" lacks dtype, shape or data_offsets", path, name);
  const json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
  DS_CHECK(dtype.is_string() && shape.is_array() && offsets.is_array() && offsets.size() == 2,
           "{}: tensor \"{}\": dtype, shape or data_offsets are not text, a list and a pair", path, name);

  TensorEntry entry;
  const std::string wanted = dtype.get<std::string>();
  const auto* known =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& t) { return wanted == t.name; });
  DS_CHECK(known != std::end(kTypes), "{}: tensor \"{}\" has dtype {}, which draftsmith cannot read", path, name,
           wanted);
  entry.dtype = known->type;

  int64_t bytes = static_cast<int64_t>(c10::elementSize(entry.dtype));
  bool overflow = false;
  for (const json& extent : shape) {
    entry.shape.push_back(whole(extent, path, name, "shape"));
    overflow |= __builtin_mul_overflow(bytes, entry.shape.back(), &bytes);
  }
  DS_CHECK(!overflow, "{}: tensor \"{}\": the product of its shape {} overflows", path, name, shape.dump());
  const int64_t begin = whole(offsets[0], path, name, "offset"), end = whole(offsets[1], path, name, "offset");
  DS_CHECK(begin <= end && end <= data_bytes,
           "{}: tensor \"{}\": bytes [{}, {}) lie outside the {} bytes of data; the file is cut or damaged", path, name,
           begin, end, data_bytes);
  DS_CHECK(end - begin == bytes, "{}: tensor \"{}\": shape {} of {} needs {} bytes, its range has {}", path, name,
           shape.dump(), wanted, bytes, end - begin);
  entry.begin = data_begin + begin;
  entry.end = data_begin + end;
  return entry;
}

// The ranges must follow each other from the first byte of data to the last.
void check_cover(const std::string& path, const std::map<std::string, TensorEntry>& entries, int64_t begin,
                 int64_t end) {
  std::vector<const std::pair<const std::string, TensorEntry>*> order;
  for (const auto& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  for (const auto* entry : order) {
    DS_CHECK(entry->second.begin == begin, "{}: tensor \"{}\" {} the tensor before it ({} bytes)", path, entry->first,
             entry->second.begin < begin ? "overlaps" : "leaves a hole after", std::abs(entry->second.begin - begin));
    begin = entry->second.end;
  }
  DS_CHECK(begin == end, "{}: {} bytes after the last tensor belong to none", path, end - begin);
}

}  // namespace

struct SafetensorsFile::Impl {
  std::shared_ptr<const MappedFile> file;
  std::map<std::string, TensorEntry> entries;
  std::map<std::string, std::string> metadata;
};

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  auto impl = std::make_shared<Impl>();
  impl->file = MappedFile::open(path);
  const size_t size = impl->file->size();
  DS_CHECK(size >= 8, "{}: {} bytes are too few for a safetensors file", path, size);
  uint64_t header = 0;
  std::memcpy(&header, impl->file->data(), 8);
  DS_CHECK(header <= kMaxHeader && header >= 2, "{}: a header of {} bytes: not a safetensors file", path, header);
  DS_CHECK(header <= size - 8, "{}: the header says {} bytes, the file has {} after it; the file is cut", path, header,
           size - 8);
  const std::string_view text(reinterpret_cast<const char*>(impl->file->data()) + 8, header);
  DS_CHECK(text.front() == '{', "{}: the header does not begin with an object: not a safetensors file", path);
  const json parsed = parse_header(path, text);
  DS_CHECK(parsed.is_object(), "{}: the header is not an object", path);

  const int64_t begin = static_cast<int64_t>(8 + header), bytes = static_cast<int64_t>(size) - begin;
  for (const auto& [name, value] : parsed.items()) {
    if (name == "__metadata__") {
      DS_CHECK(value.is_object(), "{}: __metadata__ is not an object", path);
      for (const auto& [key, item] : value.items()) {
        DS_CHECK(item.is_string(), "{}: __metadata__ \"{}\" is not text", path, key);
        impl->metadata[key] = item.get<std::string>();
      }
      continue;
    }
    impl->entries[name] = parse_entry(value, path, name, begin, bytes);
  }
  check_cover(path, impl->entries, begin, static_cast<int64_t>(size));
  SafetensorsFile out;
  out.impl_ = std::move(impl);
  return out;
}

const std::map<std::string, TensorEntry>& SafetensorsFile::entries() const {
  return impl_->entries;
}
const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return impl_->metadata;
}
bool SafetensorsFile::has(const std::string& name) const {
  return impl_->entries.count(name) > 0;
}
const std::string& SafetensorsFile::path() const {
  return impl_->file->path();
}

at::Tensor SafetensorsFile::tensor(const std::string& name) const {
  const auto found = impl_->entries.find(name);
  DS_CHECK(found != impl_->entries.end(), "{}: holds no tensor \"{}\"", path(), name);
  const TensorEntry& entry = found->second;
  const auto options = at::TensorOptions().dtype(entry.dtype);
  if (entry.begin == entry.end) return at::empty(entry.shape, options);
  const unsigned char* bytes = impl_->file->data() + entry.begin;
  if (reinterpret_cast<uintptr_t>(bytes) % c10::elementSize(entry.dtype) != 0) {
    at::Tensor copy = at::empty(entry.shape, options);
    std::memcpy(copy.data_ptr(), bytes, static_cast<size_t>(entry.end - entry.begin));
    return copy;
  }
  return at::from_blob(
      const_cast<unsigned char*>(bytes), entry.shape, [file = impl_->file](void*) {}, options);
}

void write_safetensors(const std::string& path, const NamedTensors& tensors,
                       std::map<std::string, std::string> metadata) {
  std::vector<PlannedTensor> planned;
  for (const auto& [name, tensor] : tensors) {
    planned.push_back({name, tensor.scalar_type(), tensor.sizes().vec(), [&value = tensor] { return value; }});
  }
  write_safetensors(path, std::move(planned), std::move(metadata));
}

void write_safetensors(const std::string& path, std::vector<PlannedTensor> tensors,
                       std::map<std::string, std::string> metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    const size_t left = c10::elementSize(a.dtype), right = c10::elementSize(b.dtype);
    return left != right ? left > right : a.name < b.name;
  });
  nlohmann::ordered_json header;
  metadata.emplace("format", "pt");
  header["__metadata__"] = metadata;
  int64_t at = 0;
  std::set<std::string> names{"__metadata__"};
  for (const PlannedTensor& tensor : tensors) {
    DS_CHECK(names.insert(tensor.name).second, "{}: two tensors are named \"{}\"", path, tensor.name);
    DS_CHECK(type_name(tensor.dtype) != nullptr, "{}: tensor \"{}\" has dtype {}, which the format lacks", path,
             tensor.name, c10::toString(tensor.dtype));
    const int64_t end =
        at + c10::multiply_integers(tensor.shape) * static_cast<int64_t>(c10::elementSize(tensor.dtype));
    header[tensor.name] = {{"dtype", type_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  // The data begins at a whole cache line: a mapped matrix is then read without loads that straddle two.
  text.append((64 - (8 + text.size()) % 64) % 64, ' ');

  AtomicFile file(path);
  const uint64_t length = text.size();
  file.write(&length, 8);
  file.write(text.data(), text.size());
  for (const PlannedTensor& tensor : tensors) {
    const at::Tensor plain = tensor.make().detach().to(at::kCPU).contiguous();
    DS_CHECK(plain.scalar_type() == tensor.dtype && plain.sizes() == at::IntArrayRef(tensor.shape),
             "{}: tensor \"{}\" is {} {}, planned was {} [{}]", path, tensor.name, c10::toString(plain.scalar_type()),
             c10::str(plain.sizes()), c10::toString(tensor.dtype), fmt::join(tensor.shape, ", "));
    file.write(plain.const_data_ptr(), plain.nbytes());
  }
  file.commit();
}

WeightFolder WeightFolder::open(const std::string& folder) {
  WeightFolder out;
  out.folder_ = folder;
  const fs::path single = fs::path(folder) / "model.safetensors",
                 index = fs::path(folder) / "model.safetensors.index.json";
  if (fs::exists(single)) {
    out.files_.push_back(SafetensorsFile::open(single.string()));
    for (const auto& [name, entry] : out.files_[0].entries()) out.where_[name] = 0;
    return out;
  }
  DS_CHECK(fs::exists(index), "{}: holds neither model.safetensors nor model.safetensors.index.json{}", folder,
           fs::exists(fs::path(folder) / "pytorch_model.bin") ? "; save pytorch_model.bin as safetensors first" : "");
  const json parsed = json::parse(read_file(index), nullptr, /*allow_exceptions=*/false);
  DS_CHECK(parsed.is_object() && parsed.contains("weight_map") && parsed["weight_map"].is_object(),
           "{}: is not JSON with a weight_map", index.string());

  std::map<std::string, size_t> shards;
  std::vector<std::string> absent;
  for (const auto& [name, shard] : parsed["weight_map"].items()) {
    DS_CHECK(shard.is_string() && fs::path(shard.get<std::string>()).filename() == shard.get<std::string>(),
             "{}: tensor \"{}\": {} is not the name of a file in this folder", index.string(), name, shard.dump());
    const std::string file = shard.get<std::string>();
    if (!shards.emplace(file, shards.size()).second) continue;
    if (!fs::exists(fs::path(folder) / file)) absent.push_back(file);
  }
  DS_CHECK(absent.empty(), "{}: {} of {} shards are absent from the folder, the first is {}; fetch them again",
           index.string(), absent.size(), shards.size(), absent.front());
  out.files_.resize(shards.size());
  for (const auto& [file, number] : shards) {
    out.files_[number] = SafetensorsFile::open((fs::path(folder) / file).string());
    for (const auto& [name, entry] : out.files_[number].entries()) {
      const auto placed = out.where_.emplace(name, number);
      DS_CHECK(placed.second, "{}: tensor \"{}\" stands in two shards, {} and {}", folder, name,
               out.files_[placed.first->second].path(), file);
    }
  }
  std::vector<std::string> lacking;
  for (const auto& [name, shard] : parsed["weight_map"].items()) {
    if (!out.files_[shards.at(shard.get<std::string>())].has(name)) lacking.push_back(name);
  }
  DS_CHECK(lacking.empty(), "{}: {} tensors are not in the shard named for them, the first is \"{}\" ({})",
           index.string(), lacking.size(), lacking.front(), parsed["weight_map"][lacking.front()].get<std::string>());
  return out;
}

std::vector<std::string> WeightFolder::names() const {
  std::vector<std::string> out;
  for (const auto& [name, file] : where_) out.push_back(name);
  return out;
}

bool WeightFolder::has(const std::string& name) const {
  return where_.count(name) > 0;
}
const std::string& WeightFolder::folder() const {
  return folder_;
}

at::Tensor WeightFolder::tensor(const std::string& name) const {
  const auto found = where_.find(name);
  DS_CHECK(found != where_.end(), "{}: the weights hold no tensor \"{}\"", folder_, name);
  return files_[found->second].tensor(name);
}

std::vector<int64_t> WeightFolder::shape(const std::string& name) const {
  const auto found = where_.find(name);
  DS_CHECK(found != where_.end(), "{}: the weights hold no tensor \"{}\"", folder_, name);
  return files_[found->second].entries().at(name).shape;
}

std::string WeightFolder::weight_hash() const {
  const std::vector<std::string> all = names();
  std::vector<std::string> digests(all.size());
  at::parallel_for(0, static_cast<int64_t>(all.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const at::Tensor value = tensor(all[static_cast<size_t>(i)]);
      digests[static_cast<size_t>(i)] = sha256({static_cast<const char*>(value.const_data_ptr()), value.nbytes()});
    }
  });
  Sha256 hash;
  for (size_t i = 0; i < all.size(); ++i) {
    const TensorEntry& entry = files_[where_.at(all[i])].entries().at(all[i]);
    hash.update(
        fmt::format("{}\n{} {}\n{}\n", all[i], type_name(entry.dtype), fmt::join(entry.shape, ","), digests[i]));
  }
  return hash.hex();
}

}  // namespace draftsmith
