// Files that are either whole or absent.
//
// Everything the program writes goes through AtomicFile or write_file: a temporary name in the same folder, fsync,
// rename, fsync of the folder. A process killed at any byte leaves the old file or the new one, never a part. Errors
// carry the path and errno's text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace draftsmith {

// Whole content of a file. Throws Error when it cannot be opened or read.
std::string read_file(const std::filesystem::path& path);

// Writes `bytes` to `path` atomically. Throws Error (the target keeps its former content) when the disk is full or not
// writable.
void write_file(const std::filesystem::path& path, std::string_view bytes);

// Name under which `path` is written until it is whole: beside it, the process's number in it. Parts of `path` that
// processes which are no more left behind are removed.
std::filesystem::path new_part(const std::filesystem::path& path);

// A file that is written aside (new_part) and appears under its name only with commit(). Without commit() the part is
// deleted.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);  // appends
  int64_t written() const { return written_; }
  // Name of the part while it is written: for libraries (HDF5) that open files by name themselves.
  const std::filesystem::path& part() const { return part_; }
  void commit();  // fsync, rename, fsync of the folder

 private:
  std::filesystem::path path_, part_;
  int fd_ = -1;
  int64_t written_ = 0;
};

// fsync of an existing file by name, then rename to `path` and fsync of the folder: commit for a part that a library
// wrote.
void commit_file(const std::filesystem::path& part, const std::filesystem::path& path);

// SHA-256 in pieces; hex() ends it and gives lower-case hex.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void update(const void* data, size_t bytes);
  void update(std::string_view bytes) { update(bytes.data(), bytes.size()); }
  std::string hex();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// Lower-case hex SHA-256 of a string, of a file (streamed).
std::string sha256(std::string_view bytes);
std::string sha256_file(const std::filesystem::path& path);

// CRC-32 (zlib's polynomial) continued from `crc`; start with 0.
uint32_t crc32(uint32_t crc, const void* data, size_t bytes);

// Throws Error unless the file system of `folder` has `bytes` free, and `folder` exists or can be made and can be
// written to. Called before costly work; where room is short nothing is made.
void check_writable_folder(const std::filesystem::path& folder, int64_t bytes = 0);

// Throws Error unless `output`, the value of `option`, is a file that may be written: not one of the `inputs` (by
// whatever path), not a folder, in a folder that exists or can be made and written to. Called before the work, for
// --output and --json alike.
void check_output(const std::filesystem::path& output, const std::vector<std::filesystem::path>& inputs,
                  const char* option);

}  // namespace draftsmith
