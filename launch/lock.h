// One writer at a time in a folder.
#pragma once

#include <filesystem>

namespace draftsmith {

// Keeps a second writer out of the folder for as long as it lives; a killed process leaves no lock behind.
class FolderLock {
 public:
  // Throws Error when the folder cannot be opened or another process holds its lock; `what` says what the folder is:
  // "store", "run".
  FolderLock(const std::filesystem::path& folder, const char* what);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

}  // namespace draftsmith
