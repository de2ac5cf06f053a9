#include "data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "launch/check.h"

namespace draftsmith {

MappedFile::MappedFile(std::string path, const unsigned char* data, size_t size)
    : path_(std::move(path)), data_(data), size_(size) {}

MappedFile::~MappedFile() {
  ::munmap(const_cast<unsigned char*>(data_), size_);
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  DS_CHECK(fd >= 0, "{}: cannot be opened: {}", path, std::strerror(errno));
  struct stat status {};
  const bool known = ::fstat(fd, &status) == 0;
  if (!known || !S_ISREG(status.st_mode) || status.st_size == 0) {
    const char* what = !known ? std::strerror(errno) : status.st_size == 0 ? "the file is empty" : "is not a file";
    ::close(fd);
    DS_FAIL("{}: {}", path, S_ISDIR(status.st_mode) ? "is a folder, a file is needed" : what);
  }
  const size_t size = static_cast<size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  ::close(fd);
  DS_CHECK(data != MAP_FAILED, "{}: {} bytes cannot be mapped: {}", path, size, std::strerror(error));
  return std::shared_ptr<const MappedFile>(new MappedFile(path, static_cast<const unsigned char*>(data), size));
}

}  // namespace draftsmith
