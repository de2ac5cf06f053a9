// A file mapped for reading. The mapping lives as long as any shared pointer to it, so tensors may stand on its pages.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace draftsmith {

class MappedFile {
 public:
  // Throws Error when the file is absent, is no regular file, is empty or cannot be mapped.
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const unsigned char* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, const unsigned char* data, size_t size);
  std::string path_;
  const unsigned char* data_;
  size_t size_;
};

}  // namespace draftsmith
