#include "data/h5.h"

#include "tests/data/text_fixture.h"

namespace draftsmith {
namespace {

using testing::message_of;
using testing::TemporaryFolder;

TEST(H5, RowsOfAnyShapeGrowAndAreReadInPieces) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.h5");
  std::vector<uint16_t> values(10 * 6);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i * 1000);
  {
    H5File file = H5File::create(path);
    {
      H5Dataset taps = file.create_dataset("taps", H5Type::u16, {2, 3}, 4);
      taps.append(std::span<const uint16_t>(values.data(), 18));
      taps.append(std::span<const uint16_t>(values.data() + 18, 42));
      taps.set_attribute("dtype", "bfloat16");
      const std::vector<uint16_t> patch(6, 7);
      taps.write(1, patch.data(), H5Type::u16, 1);
    }
    file.close();
  }
  std::copy_n(std::vector<uint16_t>(6, 7).begin(), 6, values.begin() + 6);
  const H5File file = H5File::open(path);
  const H5Dataset taps = file.dataset("taps", H5Type::u16, {2, 3});
  EXPECT_EQ(taps.shape(), (std::vector<int64_t>{10, 2, 3}));
  EXPECT_EQ(taps.string_attribute("dtype"), "bfloat16");
  EXPECT_EQ(taps.read_all<uint16_t>(), values);
  EXPECT_EQ(taps.read<uint16_t>(5, 2), std::vector<uint16_t>(values.begin() + 30, values.begin() + 42));
  EXPECT_TRUE(taps.read<uint16_t>(10, 0).empty());
  EXPECT_CONTAINS(message_of([&] { taps.read<uint16_t>(9, 2); }), "a.h5:taps: rows [9, 11) asked of 10 rows");
  EXPECT_CONTAINS(message_of([&] { taps.read<int32_t>(0, 1); }), "holds uint16, asked to read int32");
  EXPECT_CONTAINS(message_of([&] { file.dataset("taps", H5Type::u16, {3, 2}); }), "expected rows of [3, 2]");
  EXPECT_CONTAINS(message_of([&] { file.dataset("taps", H5Type::f32, {2, 3}); }), "holds uint16, expected float32");
  EXPECT_CONTAINS(message_of([&] { file.dataset("nope"); }), "a.h5:nope: the dataset is missing");
}

TEST(H5, AttributesAndStringsKeepTheirBytes) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.h5");
  const std::vector<std::string> texts = {"", "größer 🦙", std::string(5000, 'x')};
  {
    H5File file = H5File::create(path);
    file.set_attribute("name", "first");
    file.set_attribute("name", "größer");
    file.set_attribute("count", int64_t{-5});
    file.set_attribute("share", 0.1);
    file.create_strings("texts", texts, 2);
    EXPECT_CONTAINS(message_of([&] { file.set_attribute("bad", std::string("a\0b", 3)); }), "NUL");
    EXPECT_CONTAINS(message_of([&] { file.create_strings("more", {std::string("a\0b", 3)}, 2); }), "NUL");
    file.close();
  }
  const H5File file = H5File::open(path);
  EXPECT_EQ(file.string_attribute("name"), "größer");
  EXPECT_EQ(file.int_attribute("count"), -5);
  EXPECT_EQ(file.double_attribute("share"), 0.1);
  EXPECT_EQ(file.dataset("texts").read_strings(0, 3), texts);
  EXPECT_CONTAINS(message_of([&] { file.int_attribute("name"); }),
                  "attribute \"name\" is not a single value of the expected kind");
  EXPECT_CONTAINS(message_of([&] { file.string_attribute("gone"); }), "attribute \"gone\" is missing");
}

TEST(H5, ChecksummedChunksRefuseAFlippedByte) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.h5");
  const std::vector<int32_t> values(1000, 0x5A5A5A5A);
  {
    H5File file = H5File::create(path);
    file.create_dataset("v", H5Type::i32, {}, 1000, /*checksum=*/true).append(values);
    file.close();
  }
  std::string bytes = read_file(path);
  bytes[bytes.find(std::string(400, '\x5A')) + 100] = 0;
  folder.write("a.h5", bytes);
  EXPECT_CONTAINS(message_of([&] { H5File::open(path).dataset("v").read_all<int32_t>(); }),
                  "cannot read rows [0, 1000)");
}

TEST(H5, ClosingWithAnOpenDatasetIsAnError) {
  const TemporaryFolder folder;
  H5File file = H5File::create(folder.file("a.h5"));
  H5Dataset dataset = file.create_dataset("v", H5Type::i32, {}, 10);
  EXPECT_CONTAINS(message_of([&] { file.close(); }), "still open");
}

}  // namespace
}  // namespace draftsmith
