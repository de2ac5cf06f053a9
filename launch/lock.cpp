#include "launch/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "launch/check.h"

namespace draftsmith {

FolderLock::FolderLock(const std::filesystem::path& folder, const char* what)
    : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  DS_CHECK(fd_ >= 0, "{}: cannot be opened: {}", folder.string(), std::strerror(errno));
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(fd_);
    DS_FAIL("{}: another process is writing this {}; wait for it or end it", folder.string(), what);
  }
}

FolderLock::~FolderLock() {
  ::close(fd_);
}

}  // namespace draftsmith
