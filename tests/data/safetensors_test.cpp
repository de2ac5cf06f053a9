#include "data/safetensors.h"

#include <ATen/ATen.h>
#include <sys/stat.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "launch/file.h"
#include "tests/data/text_fixture.h"

namespace draftsmith {
namespace {

using testing::message_of;
using testing::TemporaryFolder;

// A file with this header text and so many bytes of data.
std::string raw_file(const std::string& header, size_t data, int64_t stated = -1) {
  const uint64_t length = stated >= 0 ? static_cast<uint64_t>(stated) : header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data, '\x01');
}

std::string fault_of(const TemporaryFolder& folder, const std::string& bytes) {
  folder.write("x.safetensors", bytes);
  return message_of([&] { SafetensorsFile::open(folder.file("x.safetensors")); });
}

TEST(Safetensors, WhatIsWrittenIsReadBackMapped) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.safetensors");
  NamedTensors tensors;
  for (const auto type :
       {at::kBool, at::kByte, at::kChar, at::kInt, at::kLong, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    tensors.emplace_back(std::string("t.") + c10::toString(type), (at::arange(6).reshape({2, 3}) % 2).to(type));
  }
  tensors.emplace_back("scalar", at::tensor(2.5f).squeeze());
  tensors.emplace_back("empty", at::empty({0, 4}, at::kFloat));
  tensors.emplace_back("strided", at::arange(12, at::kFloat).reshape({3, 4}).t());
  write_safetensors(path, tensors, {{"made_by", "a test"}});

  at::Tensor kept;
  {
    const SafetensorsFile file = SafetensorsFile::open(path);
    EXPECT_EQ(file.entries().size(), tensors.size());
    EXPECT_EQ(file.metadata().at("format"), "pt");
    EXPECT_EQ(file.metadata().at("made_by"), "a test");
    for (const auto& [name, value] : tensors) {
      const at::Tensor read = file.tensor(name);
      EXPECT_EQ(read.scalar_type(), value.scalar_type()) << name;
      EXPECT_TRUE(read.sizes() == value.sizes() && read.equal(value)) << name;
    }
    EXPECT_EQ(file.tensor("strided").data_ptr(), file.tensor("strided").data_ptr());  // the same pages, no copies
    EXPECT_CONTAINS(message_of([&] { file.tensor("nope"); }), "a.safetensors: holds no tensor \"nope\"");
    kept = file.tensor("strided");
  }
  EXPECT_TRUE(kept.equal(tensors.back().second));  // the mapping outlives the file object

  uint64_t header = 0;
  std::memcpy(&header, read_file(path).data(), 8);
  EXPECT_EQ(header % 8, 0u);
}

TEST(Safetensors, MisalignedTensorsOfAnOddHeaderAreCopied) {
  const TemporaryFolder folder;
  std::string header = R"({"a":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]}})";
  if (header.size() % 2 == 0) header += " ";
  const at::Tensor value = at::tensor({1.0f, -2.0f, 3.5f}).to(at::kBFloat16);
  std::string bytes = raw_file(header, 0);
  bytes.append(static_cast<const char*>(value.const_data_ptr()), 6);
  write_file(folder.file("odd.safetensors"), bytes);
  const at::Tensor read = SafetensorsFile::open(folder.file("odd.safetensors")).tensor("a");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(read.data_ptr()) % 2, 0u);
  EXPECT_TRUE(read.equal(value));
}

TEST(Safetensors, EveryFaultOfAHeaderIsNamed) {
  const TemporaryFolder folder;
  const auto fault = [&](const std::string& header, size_t data = 8, int64_t stated = -1) {
    return fault_of(folder, raw_file(header, data, stated));
  };
  EXPECT_CONTAINS(fault_of(folder, ""), "the file is empty");
  EXPECT_CONTAINS(fault_of(folder, "1234567"), "too few");
  EXPECT_CONTAINS(fault("{}", 0, 500), "the file is cut");
  EXPECT_CONTAINS(fault("{}", 0, 1'000'000'000'000), "not a safetensors file");
  EXPECT_CONTAINS(fault("[]", 0), "does not begin with an object");
  EXPECT_CONTAINS(fault("{\"a\":", 0), "is not JSON");
  EXPECT_CONTAINS(fault(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,8]}})"),
                  "tensor \"a\" has dtype F4, which draftsmith cannot read");
  EXPECT_CONTAINS(fault(R"({"a":{"dtype":"F32","shape":[2]}})"), "lacks dtype, shape or data_offsets");
  EXPECT_CONTAINS(fault(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,9]}})"),
                  "lie outside the 8 bytes of data");
  EXPECT_CONTAINS(fault(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})"), "lie outside");
  EXPECT_CONTAINS(fault(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}})"),
                  "not a whole number below 2^63");
  EXPECT_CONTAINS(fault(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})"), "not a whole number below 2^63");
  EXPECT_CONTAINS(fault(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}})"), "overflows");
  EXPECT_CONTAINS(fault(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})"),
                  "needs 12 bytes, its range has 8");
  EXPECT_CONTAINS(fault(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})"), "4 bytes after the last tensor");
  EXPECT_CONTAINS(fault(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})"), "leaves a hole");
  EXPECT_CONTAINS(
      fault(
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})"),
      "\"b\" overlaps");
  EXPECT_CONTAINS(
      fault(
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})"),
      "the header names \"a\" twice");
  EXPECT_CONTAINS(message_of([&] { SafetensorsFile::open(folder.file("absent")); }), "cannot be opened: No such file");
  EXPECT_CONTAINS(message_of([&] { SafetensorsFile::open(folder.path().string()); }), "is a folder");
}

TEST(Safetensors, CutAnywhereItIsRefused) {
  const TemporaryFolder folder;
  write_safetensors(folder.file("a.safetensors"), {{"w", at::ones({5, 7})}, {"v", at::ones({3}, at::kHalf)}});
  const std::string whole = read_file(folder.file("a.safetensors"));
  for (size_t at = 0; at < whole.size(); ++at)
    EXPECT_CONTAINS(fault_of(folder, whole.substr(0, at)), "x.safetensors: ") << at;
}

TEST(Safetensors, PlannedTensorsAreMadeWhenTheirTurnComes) {
  const TemporaryFolder folder;
  int made = 0;
  std::vector<PlannedTensor> planned;
  for (const char* name : {"b", "a"}) {
    planned.push_back({name, at::kFloat, {2}, [&made] { return at::full({2}, static_cast<float>(made++)); }});
  }
  write_safetensors(folder.file("p.safetensors"), planned);
  EXPECT_TRUE(SafetensorsFile::open(folder.file("p.safetensors")).tensor("a").equal(at::zeros({2})));
  planned[0].shape = {3};
  EXPECT_CONTAINS(message_of([&] { write_safetensors(folder.file("q.safetensors"), planned); }),
                  "planned was Float [3]");
  EXPECT_FALSE(std::filesystem::exists(folder.file("q.safetensors")));
  EXPECT_CONTAINS(message_of([&] {
                    write_safetensors(folder.file("q.safetensors"), {{"a", at::ones(1)}, {"a", at::ones(1)}});
                  }),
                  "two tensors are named \"a\"");
}

void write_sharded(const TemporaryFolder& folder, const nlohmann::json& map) {
  write_safetensors(folder.file("model-1.safetensors"), {{"a", at::ones({2})}});
  write_safetensors(folder.file("model-2.safetensors"), {{"b", at::zeros({3})}});
  write_file(folder.file("model.safetensors.index.json"), nlohmann::json{{"weight_map", map}}.dump());
}

TEST(WeightFolder, ShardsAndOneFileHaveTheSameHash) {
  const TemporaryFolder sharded, single;
  write_sharded(sharded, {{"a", "model-1.safetensors"}, {"b", "model-2.safetensors"}});
  write_safetensors(single.file("model.safetensors"), {{"b", at::zeros({3})}, {"a", at::ones({2})}});
  const WeightFolder left = WeightFolder::open(sharded.path().string()),
                     right = WeightFolder::open(single.path().string());
  EXPECT_EQ(left.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(left.shape("b"), std::vector<int64_t>{3});
  EXPECT_EQ(left.weight_hash(), right.weight_hash());
  const TemporaryFolder other;
  write_safetensors(other.file("model.safetensors"), {{"b", at::zeros({3})}, {"a", at::tensor({1.0f, 1.0000001f})}});
  EXPECT_NE(WeightFolder::open(other.path().string()).weight_hash(), left.weight_hash());
  EXPECT_CONTAINS(message_of([&] { left.tensor("c"); }), "the weights hold no tensor \"c\"");
}

TEST(WeightFolder, FaultsOfTheIndexAreNamed) {
  const TemporaryFolder folder;
  const auto fault = [&](const nlohmann::json& map) {
    write_sharded(folder, map);
    return message_of([&] { WeightFolder::open(folder.path().string()); });
  };
  EXPECT_CONTAINS(fault({{"a", "model-1.safetensors"}, {"b", "model-3.safetensors"}}),
                  "1 of 2 shards are absent from the folder, the first is model-3");
  EXPECT_CONTAINS(fault({{"a", "model-1.safetensors"}, {"c", "model-2.safetensors"}}),
                  "1 tensors are not in the shard named for them, the first is \"c\"");
  EXPECT_CONTAINS(fault({{"a", "../model-1.safetensors"}}), "is not the name of a file in this folder");
  EXPECT_CONTAINS(fault({{"a", 3}}), "is not the name of a file");
  write_file(folder.file("model.safetensors.index.json"), "{");
  EXPECT_CONTAINS(message_of([&] { WeightFolder::open(folder.path().string()); }), "is not JSON with a weight_map");
  const TemporaryFolder empty;
  EXPECT_CONTAINS(message_of([&] { WeightFolder::open(empty.path().string()); }),
                  "holds neither model.safetensors nor");
}

}  // namespace
}  // namespace draftsmith
