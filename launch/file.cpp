#include "launch/file.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "launch/check.h"
#include "launch/log.h"

namespace draftsmith {
namespace {

namespace fs = std::filesystem;

void sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;  // some network file systems refuse to open folders; the rename itself has happened
  ::fsync(fd);
  ::close(fd);
}

// Calls `use(data, bytes)` over the file in pieces of 1 MiB.
template <typename Use>
void stream_file(const fs::path& path, Use use) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  DS_CHECK(fd >= 0, "{}: cannot be opened: {}", path.string(), std::strerror(errno));
  std::vector<char> buffer(1 << 20);
  while (true) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      ::close(fd);
      DS_FAIL("{}: cannot be read: {}", path.string(), std::strerror(error));
    }
    if (n == 0) break;
    use(buffer.data(), static_cast<size_t>(n));
  }
  ::close(fd);
}

}  // namespace

std::string read_file(const fs::path& path) {
  DS_CHECK(!fs::is_directory(path), "{}: is a folder, a file is needed", path.string());
  std::string out;
  stream_file(path, [&](const char* data, size_t bytes) { out.append(data, bytes); });
  return out;
}

void write_file(const fs::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

fs::path new_part(const fs::path& path) {
  const std::string prefix = path.filename().string() + ".part-";
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(prefix, 0) != 0) continue;
    const pid_t writer = static_cast<pid_t>(std::atol(name.c_str() + prefix.size()));
    if (writer > 0 && ::kill(writer, 0) != 0 && errno == ESRCH) fs::remove(entry.path(), error);
  }
  return path.parent_path() / fmt::format("{}{}", prefix, ::getpid());
}

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)), part_(new_part(path_)) {
  fd_ = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  DS_CHECK(fd_ >= 0, "{}: cannot be written: {}", path_.string(), std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(part_.c_str());
}

void AtomicFile::write(const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  size_t left = bytes;
  while (left > 0) {
    const ssize_t n = ::write(fd_, next, left);
    if (n < 0 && errno == EINTR) continue;
    DS_CHECK(n >= 0, "{}: cannot be written after {} bytes: {}", path_.string(), written_, std::strerror(errno));
    next += n;
    left -= static_cast<size_t>(n);
    written_ += n;
  }
}

void AtomicFile::commit() {
  DS_CHECK(::fsync(fd_) == 0, "{}: cannot be flushed to disk: {}", path_.string(), std::strerror(errno));
  DS_CHECK(::close(fd_) == 0, "{}: cannot be closed: {}", path_.string(), std::strerror(errno));
  fd_ = -1;
  DS_CHECK(::rename(part_.c_str(), path_.c_str()) == 0, "{}: cannot be renamed from {}: {}", path_.string(),
           part_.string(), std::strerror(errno));
  sync_folder(path_.parent_path());
}

void commit_file(const fs::path& part, const fs::path& path) {
  const int fd = ::open(part.c_str(), O_RDONLY | O_CLOEXEC);
  DS_CHECK(fd >= 0, "{}: cannot be opened: {}", part.string(), std::strerror(errno));
  const bool synced = ::fsync(fd) == 0;
  const int error = errno;
  ::close(fd);
  DS_CHECK(synced, "{}: cannot be flushed to disk: {}", part.string(), std::strerror(error));
  DS_CHECK(::rename(part.c_str(), path.c_str()) == 0, "{}: cannot be renamed from {}: {}", path.string(), part.string(),
           std::strerror(errno));
  sync_folder(path.parent_path());
}

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  DS_CHECK(context_->evp != nullptr && EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1,
           "libcrypto offers no SHA-256");
}

Sha256::~Sha256() = default;

void Sha256::update(const void* data, size_t bytes) {
  EVP_DigestUpdate(context_->evp, data, bytes);
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  EVP_DigestFinal_ex(context_->evp, digest.data(), &size);
  std::string out;
  for (unsigned int i = 0; i < size; ++i) out += fmt::format("{:02x}", digest[i]);
  return out;
}

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

std::string sha256_file(const fs::path& path) {
  Sha256 hash;
  stream_file(path, [&](const char* data, size_t bytes) { hash.update(data, bytes); });
  return hash.hex();
}

uint32_t crc32(uint32_t crc, const void* data, size_t bytes) {
  return static_cast<uint32_t>(::crc32_z(crc, static_cast<const Bytef*>(data), bytes));
}

void check_writable_folder(const fs::path& folder, int64_t bytes) {
  const fs::path where = folder.empty() ? fs::path(".") : folder;
  std::error_code error;
  fs::path existing = fs::absolute(where);
  while (!fs::exists(existing, error) && existing.has_relative_path()) existing = existing.parent_path();
  const auto space = fs::space(existing, error);
  DS_CHECK(error || static_cast<int64_t>(space.available) >= bytes,
           "{}: {} are needed and {} are free; free some space or choose another folder", where.string(),
           short_bytes(static_cast<double>(bytes)), short_bytes(static_cast<double>(space.available)));
  fs::create_directories(where, error);
  DS_CHECK(!error && fs::is_directory(where), "{}: cannot be made as a folder: {}", where.string(),
           error ? error.message() : "a file of that name is in the way");
  const fs::path probe = where / fmt::format(".probe-{}", ::getpid());
  const int fd = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  DS_CHECK(fd >= 0, "{}: cannot be written to: {}; choose another folder or change its permissions", where.string(),
           std::strerror(errno));
  ::close(fd);
  ::unlink(probe.c_str());
}

void check_output(const fs::path& output, const std::vector<fs::path>& inputs, const char* option) {
  DS_CHECK(!output.empty(), "{}: a file name is needed", option);
  DS_CHECK(!fs::is_directory(output), "{} {}: is a folder, a file is written", option, output.string());
  std::error_code error;
  for (const fs::path& input : inputs) {
    const bool same = fs::equivalent(output, input, error) ||
                      fs::absolute(output).lexically_normal() == fs::absolute(input).lexically_normal();
    DS_CHECK(!same, "{} {}: is also read ({}); writing it would destroy it; name another file", option, output.string(),
             input.string());
  }
  check_writable_folder(output.parent_path());
}

}  // namespace draftsmith
