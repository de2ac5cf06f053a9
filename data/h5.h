// HDF5 files as draftsmith uses them: attributes, and datasets whose first dimension ("rows") grows.
//
// An H5File owns the file, an H5Dataset owns its handle and keeps the file alive in HDF5's own reference count, so
// either may be destroyed first. Nothing is converted: a read or an append with another element type than the one on
// disk is an error, because HDF5 would clip without a word. Every failure carries HDF5's own error stack.
//
// Files are written under a temporary name and renamed by the caller (launch/file.h): an HDF5 file whose writer died is
// never repaired. One H5File must not be used by two threads at once; several files may (HDF5 takes one global lock
// inside).
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace draftsmith {

enum class H5Type { u8, u16, i32, i64, f32, f64, string };

// Bytes of one element; a string has none that is fixed and gives 0.
int64_t h5_element_size(H5Type type);
const char* h5_type_name(H5Type type);

template <class T>
constexpr H5Type h5_type_of() {
  if constexpr (std::is_same_v<T, uint8_t>)
    return H5Type::u8;
  else if constexpr (std::is_same_v<T, uint16_t>)
    return H5Type::u16;
  else if constexpr (std::is_same_v<T, int32_t>)
    return H5Type::i32;
  else if constexpr (std::is_same_v<T, int64_t>)
    return H5Type::i64;
  else if constexpr (std::is_same_v<T, float>)
    return H5Type::f32;
  else {
    static_assert(std::is_same_v<T, double>, "h5: element type without a mapping");
    return H5Type::f64;
  }
}

// An HDF5 identifier with its close function. Move-only; closing errors in the destructor are dropped, so writers call
// H5File::close(), which reports them.
class H5Handle {
 public:
  using Close = herr_t (*)(hid_t);
  H5Handle() = default;
  H5Handle(hid_t id, Close close) : id_(id), close_(close) {}
  ~H5Handle() { reset(); }
  H5Handle(H5Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  H5Handle& operator=(H5Handle&& other) noexcept;
  H5Handle(const H5Handle&) = delete;
  H5Handle& operator=(const H5Handle&) = delete;

  hid_t get() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }
  herr_t reset();

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

// Attributes of a file's root or of a dataset. Scalars only; a missing one or one of another kind is an error naming
// it.
class H5Attributes {
 public:
  bool has_attribute(const std::string& name) const;
  void set_attribute(const std::string& name, const std::string& value);
  void set_attribute(const std::string& name, const char* value) { set_attribute(name, std::string(value)); }
  void set_attribute(const std::string& name, int64_t value);
  void set_attribute(const std::string& name, double value);
  std::string string_attribute(const std::string& name) const;
  int64_t int_attribute(const std::string& name) const;
  double double_attribute(const std::string& name) const;

 protected:
  H5Attributes(H5Handle handle, std::string where) : handle_(std::move(handle)), where_(std::move(where)) {}
  H5Attributes(H5Attributes&&) = default;
  H5Attributes& operator=(H5Attributes&&) = default;
  ~H5Attributes() = default;

  void write_scalar(const std::string& name, hid_t file_type, hid_t memory_type, const void* value);
  void read_scalar(const std::string& name, H5T_class_t expected, hid_t memory_type, void* value) const;

  H5Handle handle_;
  std::string where_;  // "file" or "file:dataset", for messages
};

// A dataset [rows, row_shape...].
class H5Dataset : public H5Attributes {
 public:
  H5Type type() const { return type_; }
  std::vector<int64_t> shape() const;  // rows first
  int64_t rows() const { return shape()[0]; }
  int64_t row_elements() const;  // elements of one row
  const std::string& where() const { return where_; }

  // `values` holds count * row_elements() elements of `type`, row-major.
  void append(const void* values, H5Type type, int64_t count);
  // Overwrites rows [first, first + count), which must exist.
  void write(int64_t first, const void* values, H5Type type, int64_t count);
  // Reads rows [first, first + count) into `out`; a range outside the dataset is an error.
  void read(int64_t first, int64_t count, void* out, H5Type type) const;

  template <class T>
  void append(std::span<const T> values) {
    append(values.data(), h5_type_of<T>(), checked_rows(static_cast<int64_t>(values.size())));
  }
  template <class T>
  void append(const std::vector<T>& values) {
    append(std::span<const T>(values));
  }
  template <class T>
  std::vector<T> read(int64_t first, int64_t count) const {
    check_range(first, count);
    std::vector<T> out(static_cast<size_t>(count * row_elements()));
    read(first, count, out.data(), h5_type_of<T>());
    return out;
  }
  template <class T>
  std::vector<T> read_all() const {
    return read<T>(0, rows());
  }

  // Of a dataset made by create_strings().
  std::vector<std::string> read_strings(int64_t first, int64_t count) const;

 private:
  friend class H5File;
  H5Dataset(H5Handle handle, std::string where, H5Type type)
      : H5Attributes(std::move(handle), std::move(where)), type_(type) {}
  int64_t checked_rows(int64_t elements) const;
  void check_range(int64_t first, int64_t count) const;
  void transfer(int64_t first, int64_t count, void* memory, hid_t memory_type, bool writing) const;

  H5Type type_;
};

class H5File : public H5Attributes {
 public:
  // Creates or empties the file.
  static H5File create(const std::string& path);
  // Opens for reading; says whether the file is missing, empty, cut or not HDF5.
  static H5File open(const std::string& path);

  bool has(const std::string& name) const;
  // An empty growing dataset [0, row_shape...], chunked by `chunk_rows` rows. Aim for chunks of 1-4 MiB. `checksum`:
  // HDF5 keeps a Fletcher-32 sum per chunk and reading a damaged chunk is an error.
  H5Dataset create_dataset(const std::string& name, H5Type type, const std::vector<int64_t>& row_shape,
                           int64_t chunk_rows, bool checksum = false);
  // A whole 1-D dataset of UTF-8 strings with checksums: each takes the room of the longest. A NUL inside is refused.
  void create_strings(const std::string& name, const std::vector<std::string>& values, int64_t chunk_rows);
  // Opens with a chunk cache of at least four chunks (HDF5's 1 MiB default thrashes on larger chunks).
  H5Dataset dataset(const std::string& name) const;
  // As above, and checks element type and row shape: the message names what was found.
  H5Dataset dataset(const std::string& name, H5Type type, const std::vector<int64_t>& row_shape) const;

  // Pushes everything to the operating system.
  void flush();
  // Flushes and closes; throws if anything could not be written (a full disk shows here). Datasets must be closed
  // before.
  void close();
  const std::string& path() const { return where_; }

 private:
  H5File(H5Handle handle, std::string path) : H5Attributes(std::move(handle), std::move(path)) {}
  H5Dataset create(const std::string& name, H5Type type, hid_t stored, int64_t stored_bytes, const std::vector<int64_t>& row_shape,
                   int64_t chunk_rows, bool checksum);
};

}  // namespace draftsmith
