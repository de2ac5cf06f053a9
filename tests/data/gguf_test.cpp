#include "data/gguf.h"

#include <ATen/ATen.h>

#include <cstring>
#include <random>

#include "data/gguf_blocks.h"
#include "data/safetensors.h"
#include "launch/file.h"
#include "tests/data/text_fixture.h"

namespace draftsmith {
namespace {

using testing::message_of;
using testing::TemporaryFolder;

std::string golden(const char* name) {
  return std::string(DRAFTSMITH_GOLDENS) + "/gguf/" + name;
}

TEST(Gguf, EveryFormatIsDequantisedLikeThePythonPackage) {
  const GgufFile file = GgufFile::open(golden("formats.gguf"));
  const SafetensorsFile expected = SafetensorsFile::open(golden("formats.safetensors"));
  EXPECT_EQ(file.tensors().size(), 11u);
  for (const GgufTensor& tensor : file.tensors()) {
    const at::Tensor found = file.tensor(tensor.name), wanted = expected.tensor(tensor.name);
    ASSERT_EQ(found.sizes(), wanted.sizes()) << tensor.name;
    // Bit for bit: both do the same fp32 operations in the same order.
    EXPECT_TRUE(found.equal(wanted)) << tensor.name << " differs by " << (found - wanted).abs().max().item<float>();
  }
}

TEST(Gguf, EveryKindOfValueIsRead) {
  const GgufFile file = GgufFile::open(golden("formats.gguf"));
  EXPECT_EQ(file.text("general.architecture"), "llama");
  EXPECT_EQ(file.integer("test.u8"), 200);
  EXPECT_EQ(file.integer("test.i8"), -3);
  EXPECT_EQ(file.integer("test.u16"), 65000);
  EXPECT_EQ(file.integer("test.i16"), -30000);
  EXPECT_EQ(file.integer("test.u32"), 4000000000);
  EXPECT_EQ(file.integer("test.i32"), -2000000000);
  EXPECT_EQ(file.integer("test.i64"), -(int64_t{1} << 60));
  EXPECT_CONTAINS(message_of([&] { file.integer("test.u64"); }), "key test.u64: 9223372036854775813 is too large");
  EXPECT_EQ(file.number("test.f32"), 0.5);
  EXPECT_EQ(file.number("test.f64"), 0.1);
  EXPECT_TRUE(std::get<bool>(file.metadata().at("test.bool")));
  EXPECT_EQ(file.text("test.text"), "hé 日");
  EXPECT_EQ(file.texts("test.texts"), (std::vector<std::string>{"a", "", "ß"}));
  EXPECT_EQ(file.integers("test.integers"), (std::vector<int64_t>{3, -1, 7}));
  EXPECT_EQ(std::get<std::vector<double>>(file.metadata().at("test.numbers")), (std::vector<double>{0.25, -8.0}));
  EXPECT_EQ(std::get<std::vector<bool>>(file.metadata().at("test.booleans")), (std::vector<bool>{true, false, true}));
  EXPECT_CONTAINS(message_of([&] { file.text("test.u8"); }), "formats.gguf: key test.u8 is not text");
  EXPECT_CONTAINS(message_of([&] { file.integer("none"); }), "formats.gguf: key none is missing");
}

TEST(Gguf, WhatIsWrittenIsReadBack) {
  const TemporaryFolder folder;
  const at::Tensor wide = SafetensorsFile::open(golden("formats.safetensors")).tensor("wide");
  GgufWriter writer;
  writer.text("general.architecture", "dflash");
  writer.u32("u", 7);
  writer.i32("i", -7);
  writer.f32("f", 1e-5f);
  writer.boolean("b", false);
  writer.texts("texts", {"x", "y z"});
  writer.i32s("ids", {2, 9});
  writer.f32s("scales", {0.5f});
  writer.booleans("pattern", {true, false});
  writer.tensor("norm", wide[0], GgufType::kF32);
  writer.tensor("half", wide, GgufType::kF16);
  writer.tensor("brain", wide.t(), GgufType::kBF16);
  writer.tensor("eight", wide, GgufType::kQ8_0);
  writer.tensor("ids64", at::arange(5, at::kLong), GgufType::kI64);
  writer.write(folder.file("w.gguf"));

  const GgufFile file = GgufFile::open(folder.file("w.gguf"));
  EXPECT_EQ(file.integer("u"), 7);
  EXPECT_EQ(file.integer("i"), -7);
  EXPECT_EQ(file.number("f"), static_cast<double>(1e-5f));
  EXPECT_EQ(file.texts("texts"), (std::vector<std::string>{"x", "y z"}));
  EXPECT_EQ(file.integers("ids"), (std::vector<int64_t>{2, 9}));
  EXPECT_EQ(std::get<std::vector<bool>>(file.metadata().at("pattern")), (std::vector<bool>{true, false}));
  EXPECT_TRUE(file.tensor("norm").equal(wide[0]));
  EXPECT_TRUE(file.tensor("half").equal(wide.to(at::kHalf).to(at::kFloat)));
  EXPECT_TRUE(file.tensor("brain").equal(wide.t().to(at::kBFloat16).to(at::kFloat)));
  EXPECT_TRUE(file.tensor("ids64").equal(at::arange(5, at::kLong)));
  // Half a step of the block's scale, and half a step of the scale's own 11 bits.
  const at::Tensor limit = wide.view({-1, 32}).abs().amax(1, true) / 127 * (0.5 + 127.0 / 2048);
  EXPECT_TRUE(((file.tensor("eight") - wide).view({-1, 32}).abs() <= limit).all().item<bool>());
}

TEST(Gguf, Q8PackingEqualsThePythonPackage) {
  const SafetensorsFile expected = SafetensorsFile::open(golden("formats.safetensors"));
  const at::Tensor wide = expected.tensor("wide"), packed = at::empty_like(expected.tensor("wide_packed_q8_0"));
  pack_q8_0(wide.data_ptr<float>(), wide.numel() / 32, packed.data_ptr<uint8_t>());
  EXPECT_TRUE(packed.equal(expected.tensor("wide_packed_q8_0")));
}

TEST(Gguf, WhatDoesNotFitAFormatIsRefused) {
  const TemporaryFolder folder;
  GgufWriter writer;
  EXPECT_CONTAINS(message_of([&] { writer.tensor("w", at::ones({2, 33}), GgufType::kQ8_0); }), "no whole Q8_0 blocks");
  EXPECT_CONTAINS(message_of([&] { writer.tensor("w", at::ones({2}, at::kLong), GgufType::kF32); }),
                  "of Long cannot be written as F32");
  writer.tensor("w", at::full({2}, 1e6f), GgufType::kF16);
  EXPECT_CONTAINS(message_of([&] { writer.write(folder.file("w.gguf")); }),
                  "tensor \"w\" holds values that F16 cannot hold");
  EXPECT_FALSE(std::filesystem::exists(folder.file("w.gguf")));
}

// Opens and reads everything: what a damaged file may do is throw Error.
void read_all(const std::string& path) {
  const GgufFile file = GgufFile::open(path);
  for (const GgufTensor& tensor : file.tensors()) file.tensor(tensor.name);
}

TEST(Gguf, CutAnywhereItIsRefused) {
  const TemporaryFolder folder;
  const std::string whole = read_file(golden("formats.gguf")), path = folder.file("cut.gguf");
  // The last tensor ends inside the last alignment step: what follows is padding.
  for (size_t at = 0; at + 32 < whole.size(); at += at < 2000 ? 3 : 97) {
    folder.write("cut.gguf", whole.substr(0, at));
    EXPECT_CONTAINS(message_of([&] { read_all(path); }), "cut.gguf: ") << at;
  }
}

TEST(Gguf, FlippedBytesEndInAnErrorOrInOtherValuesButNeverInACrash) {
  const TemporaryFolder folder;
  const std::string whole = read_file(golden("formats.gguf")), path = folder.file("flip.gguf");
  std::mt19937 random(3);
  int refused = 0;
  for (size_t at = 0; at < 1900; at += 2) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(at % 3 == 0 ? 0xff : random());
    folder.write("flip.gguf", bytes);
    try {
      read_all(path);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 150);
}

TEST(Gguf, FaultsAreNamed) {
  const TemporaryFolder folder;
  const std::string path = folder.file("x.gguf");
  const auto fault = [&](const std::string& bytes) {
    folder.write("x.gguf", bytes);
    return message_of([&] { read_all(path); });
  };
  const auto number = [](auto value) { return std::string(reinterpret_cast<const char*>(&value), sizeof(value)); };
  const auto text = [&](const std::string& value) { return number(uint64_t{value.size()}) + value; };
  const auto head = [&](uint64_t tensors, uint64_t keys) {
    return "GGUF" + number(uint32_t{3}) + number(tensors) + number(keys);
  };
  const auto tensor = [&](const std::string& name, uint64_t extent, uint32_t type, uint64_t offset) {
    return text(name) + number(uint32_t{1}) + number(extent) + number(type) + number(offset);
  };
  const auto padded = [](std::string bytes, size_t data) {
    bytes.resize((bytes.size() + 31) / 32 * 32 + data);
    return bytes;
  };
  EXPECT_CONTAINS(fault("hello, world"), "is not a GGUF file");
  EXPECT_CONTAINS(fault("GGUF" + number(uint32_t{1}) + std::string(40, '\0')), "GGUF version 1");
  EXPECT_CONTAINS(fault(head(uint64_t{1} << 60, 0)), "more than the file can hold");
  EXPECT_CONTAINS(fault(head(0, 1) + text("k") + number(uint32_t{77}) + std::string(9, '\0')),
                  "key k: value type 77 is not known");
  const std::string key = text("k") + number(uint32_t{0}) + std::string(1, '\x05');
  EXPECT_CONTAINS(fault(head(0, 2) + key + key), "key k stands twice");
  EXPECT_CONTAINS(fault(padded(head(2, 0) + tensor("t", 4, 0, 0) + tensor("t", 4, 0, 32), 64)),
                  "tensor \"t\" stands twice");
  EXPECT_CONTAINS(fault(padded(head(2, 0) + tensor("t", 16, 0, 0) + tensor("u", 4, 0, 32), 64)),
                  "share the bytes at offset 32");
  EXPECT_CONTAINS(fault(padded(head(1, 0) + tensor("t", 4, 0, 8), 64)), "offset 8 is no multiple of 32");
  EXPECT_CONTAINS(fault(padded(head(1, 0) + tensor("t", 4, 0, uint64_t{1} << 63), 64)),
                  "pass the end of the 64 bytes of data");
  EXPECT_CONTAINS(fault(padded(head(1, 0) + tensor("t", uint64_t{1} << 62, 0, 0), 64)), "overflows");
  EXPECT_CONTAINS(fault(padded(head(1, 0) + tensor("t", 33, 8, 0), 64)), "no whole blocks of 32");
  EXPECT_CONTAINS(fault(padded(head(1, 0) + tensor("t", 32, 99, 0), 64)),
                  "tensor \"t\" is stored as type 99 (unknown), which is not read; F32, F16, Q4_0");
  EXPECT_CONTAINS(fault(padded(head(1, 0) + tensor("t", 256, 17, 0), 96)), "is stored as IQ2_XS");
}

}  // namespace
}  // namespace draftsmith
