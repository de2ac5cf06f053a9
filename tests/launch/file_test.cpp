// Files that are whole or absent; hashes against published values.
#include "launch/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "launch/check.h"
#include "tests/support.h"

namespace draftsmith {
namespace {

namespace fs = std::filesystem;
using testing::message_of;

class Files : public ::testing::Test {
 protected:
  const testing::TemporaryFolder temporary;
  const fs::path folder = temporary.path();
};

TEST_F(Files, WrittenBytesAreReadBack) {
  const std::string bytes("a\0b\n", 4);
  write_file(folder / "x", bytes);
  EXPECT_EQ(read_file(folder / "x"), bytes);
}

TEST_F(Files, WithoutCommitTheFormerContentStaysAndNoPartIsLeft) {
  write_file(folder / "x", "old");
  {
    AtomicFile file(folder / "x");
    file.write("new", 3);
  }
  EXPECT_EQ(read_file(folder / "x"), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

TEST_F(Files, APartOfAKilledProcessIsRemovedWhenTheFileIsWrittenAgain) {
  const pid_t child = fork();
  if (child == 0) {
    AtomicFile file(folder / "x");
    file.write("torn", 4);
    std::raise(SIGKILL);
  }
  waitpid(child, nullptr, 0);
  ASSERT_TRUE(fs::exists(folder / fmt::format("x.part-{}", child)));
  write_file(folder / "x", "whole");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

TEST_F(Files, AFullDiskNamesTheFileAndLeavesTheFormerContent) {
  write_file(folder / "x", "old");
  // A limit on file size stands for a full disk; it would stay in force, so another process gets it.
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string message = message_of([&] { write_file(folder / "x", std::string(100000, 'n')); });
    _exit(message.find((folder / "x").string()) != std::string::npos ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_file(folder / "x"), "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

TEST_F(Files, AnAbsentFileAFolderAndABlockedFolderAreNamed) {
  EXPECT_CONTAINS(message_of([&] { read_file(folder / "none"); }), "none: cannot be opened");
  EXPECT_CONTAINS(message_of([&] { read_file(folder); }), "is a folder");
  write_file(folder / "file", "");
  EXPECT_CONTAINS(message_of([&] { check_writable_folder(folder / "file"); }), "file: cannot be made as a folder");
  EXPECT_CONTAINS(message_of([&] { check_writable_folder(folder / "full" / "deep", int64_t{1} << 60); }),
                  "deep: 1048576.0 TiB are needed and ");
  EXPECT_FALSE(fs::exists(folder / "full"));
  check_writable_folder(folder / "new" / "deep", 1);
  EXPECT_TRUE(fs::is_directory(folder / "new" / "deep"));
}

TEST_F(Files, AnOutputIsNeitherAnInputNorAFolder) {
  write_file(folder / "in", "rows");
  fs::create_symlink(folder / "in", folder / "link");
  const auto refused = [&](const fs::path& output) {
    return message_of([&] { check_output(output, {folder / "other", folder / "in"}, "--output"); });
  };
  EXPECT_CONTAINS(refused(folder / "in"), "is also read");
  EXPECT_CONTAINS(refused(folder / "." / "in"), "is also read");
  EXPECT_CONTAINS(refused(folder / "link"), "is also read");
  EXPECT_CONTAINS(refused(folder), "--output " + folder.string() + ": is a folder");
  EXPECT_CONTAINS(refused(folder / "in" / "deeper"), "cannot be made as a folder");
  EXPECT_CONTAINS(refused(""), "a file name is needed");
  EXPECT_EQ(refused(folder / "new" / "out"), "no error was thrown");
  EXPECT_TRUE(fs::is_directory(folder / "new"));
  EXPECT_EQ(read_file(folder / "in"), "rows");
}

TEST_F(Files, HashesAreThePublishedOnes) {
  // FIPS 180-4 example "abc"; the check value of CRC-32/ISO-HDLC.
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  write_file(folder / "x", "abc");
  EXPECT_EQ(sha256_file(folder / "x"), sha256("abc"));
  EXPECT_EQ(crc32(0, "123456789", 9), 0xCBF43926u);
  EXPECT_EQ(crc32(crc32(0, "1234", 4), "56789", 5), 0xCBF43926u);
}

}  // namespace
}  // namespace draftsmith
