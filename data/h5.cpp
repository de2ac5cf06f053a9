#include "data/h5.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>

#include "data/h5_internal.h"
#include "launch/check.h"

namespace draftsmith {

using namespace h5_internal;

namespace {

// On disk always little-endian, so that a file means the same everywhere.
hid_t file_type(H5Type type) {
  switch (type) {
    case H5Type::u8:
      return H5T_STD_U8LE;
    case H5Type::u16:
      return H5T_STD_U16LE;
    case H5Type::i32:
      return H5T_STD_I32LE;
    case H5Type::i64:
      return H5T_STD_I64LE;
    case H5Type::f32:
      return H5T_IEEE_F32LE;
    case H5Type::f64:
      return H5T_IEEE_F64LE;
    case H5Type::string:
      break;  // its size belongs to the dataset: create_strings(), read_strings()
  }
  DS_FAIL("h5: element type {} is not known", static_cast<int>(type));
}

hid_t memory_type(H5Type type) {
  switch (type) {
    case H5Type::u8:
      return H5T_NATIVE_UINT8;
    case H5Type::u16:
      return H5T_NATIVE_UINT16;
    case H5Type::i32:
      return H5T_NATIVE_INT32;
    case H5Type::i64:
      return H5T_NATIVE_INT64;
    case H5Type::f32:
      return H5T_NATIVE_FLOAT;
    case H5Type::f64:
      return H5T_NATIVE_DOUBLE;
    case H5Type::string:
      break;  // its size belongs to the dataset: create_strings(), read_strings()
  }
  DS_FAIL("h5: element type {} is not known", static_cast<int>(type));
}

std::optional<H5Type> type_on_disk(hid_t type) {
  if (H5Tget_class(type) == H5T_STRING) {
    return H5Tis_variable_str(type) > 0 ? std::nullopt : std::optional(H5Type::string);
  }
  for (const H5Type candidate : {H5Type::u8, H5Type::u16, H5Type::i32, H5Type::i64, H5Type::f32, H5Type::f64}) {
    if (H5Tequal(type, file_type(candidate)) > 0) return candidate;
  }
  return std::nullopt;
}

int64_t product(const std::vector<int64_t>& sizes, size_t from = 0) {
  return std::accumulate(sizes.begin() + static_cast<std::ptrdiff_t>(from), sizes.end(), int64_t{1},
                         std::multiplies<>());
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace

int64_t h5_element_size(H5Type type) {
  switch (type) {
    case H5Type::u8:
      return 1;
    case H5Type::u16:
      return 2;
    case H5Type::i32:
    case H5Type::f32:
      return 4;
    case H5Type::i64:
    case H5Type::f64:
      return 8;
    case H5Type::string:
      return 0;
  }
  return 0;
}

const char* h5_type_name(H5Type type) {
  switch (type) {
    case H5Type::u8:
      return "uint8";
    case H5Type::u16:
      return "uint16";
    case H5Type::i32:
      return "int32";
    case H5Type::i64:
      return "int64";
    case H5Type::f32:
      return "float32";
    case H5Type::f64:
      return "float64";
    case H5Type::string:
      return "string";
  }
  return "unknown";
}

// ---- datasets ----

std::vector<int64_t> H5Dataset::shape() const {
  quiet();
  const H5Handle space(H5Dget_space(handle_.get()), H5Sclose);
  DS_CHECK(space, "{}: cannot read the shape: {}", where_, error_stack());
  std::vector<hsize_t> sizes(static_cast<size_t>(std::max(H5Sget_simple_extent_ndims(space.get()), 0)));
  H5Sget_simple_extent_dims(space.get(), sizes.data(), nullptr);
  return {sizes.begin(), sizes.end()};
}

int64_t H5Dataset::row_elements() const {
  return product(shape(), 1);
}

int64_t H5Dataset::checked_rows(int64_t elements) const {
  const int64_t per_row = row_elements();
  DS_CHECK(per_row > 0 && elements % per_row == 0, "{}: {} elements are no whole number of rows of {}", where_,
           elements, per_row);
  return elements / per_row;
}

void H5Dataset::check_range(int64_t first, int64_t count) const {
  const int64_t total = rows();
  DS_CHECK(first >= 0 && count >= 0 && first <= total && count <= total - first, "{}: rows [{}, {}) asked of {} rows",
           where_, first, first + count, total);
}

void H5Dataset::transfer(int64_t first, int64_t count, void* memory, hid_t type, bool writing) const {
  check_range(first, count);
  if (count == 0) return;
  const std::vector<int64_t> sizes = shape();
  std::vector<hsize_t> start(sizes.size(), 0), extent(sizes.begin(), sizes.end());
  start[0] = static_cast<hsize_t>(first);
  extent[0] = static_cast<hsize_t>(count);
  const int rank = static_cast<int>(sizes.size());
  const H5Handle disk(H5Dget_space(handle_.get()), H5Sclose);
  const H5Handle here(H5Screate_simple(rank, extent.data(), nullptr), H5Sclose);
  DS_CHECK(disk && here &&
               H5Sselect_hyperslab(disk.get(), H5S_SELECT_SET, start.data(), nullptr, extent.data(), nullptr) >= 0,
           "{}: cannot select rows [{}, {}): {}", where_, first, first + count, error_stack());
  const herr_t status = writing ? H5Dwrite(handle_.get(), type, here.get(), disk.get(), H5P_DEFAULT, memory)
                                : H5Dread(handle_.get(), type, here.get(), disk.get(), H5P_DEFAULT, memory);
  DS_CHECK(status >= 0, "{}: cannot {} rows [{}, {}): {}", where_, writing ? "write" : "read", first, first + count,
           writing ? write_fault() : error_stack());
}

void H5Dataset::append(const void* values, H5Type type, int64_t count) {
  const std::vector<int64_t> before = shape();
  std::vector<hsize_t> grown(before.begin(), before.end());
  grown[0] += static_cast<hsize_t>(count);
  quiet();
  DS_CHECK(H5Dset_extent(handle_.get(), grown.data()) >= 0, "{}: cannot grow to {} rows: {}", where_, grown[0],
           write_fault());
  write(before[0], values, type, count);
}

void H5Dataset::write(int64_t first, const void* values, H5Type type, int64_t count) {
  DS_CHECK(type == type_ && type != H5Type::string, "{}: holds {}, asked to write {}", where_, h5_type_name(type_),
           h5_type_name(type));
  transfer(first, count, const_cast<void*>(values), memory_type(type), /*writing=*/true);
}

void H5Dataset::read(int64_t first, int64_t count, void* out, H5Type type) const {
  DS_CHECK(type == type_ && type != H5Type::string, "{}: holds {}, asked to read {}", where_, h5_type_name(type_),
           h5_type_name(type));
  transfer(first, count, out, memory_type(type), /*writing=*/false);
}

std::vector<std::string> H5Dataset::read_strings(int64_t first, int64_t count) const {
  DS_CHECK(type_ == H5Type::string, "{}: holds {}, asked to read strings", where_, h5_type_name(type_));
  check_range(first, count);
  const H5Handle stored(H5Dget_type(handle_.get()), H5Tclose);
  const size_t bytes = H5Tget_size(stored.get());
  std::string block(bytes * static_cast<size_t>(count), '\0');
  transfer(first, count, block.data(), string_type(bytes).get(), /*writing=*/false);
  std::vector<std::string> values;
  values.reserve(static_cast<size_t>(count));
  for (size_t at = 0; at < block.size(); at += bytes) {
    const std::string padded = block.substr(at, bytes);
    values.push_back(padded.substr(0, padded.find('\0')));
  }
  return values;
}

// ---- files ----

H5File H5File::create(const std::string& path) {
  quiet();
  // The newest format keeps checksums over its own metadata, so that a flipped byte there is an error and not a wild
  // pointer.
  const H5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_libver_bounds(access.get(), H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
  const H5Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  H5Pset_obj_track_times(creation.get(), false);  // of the root group: the same content gives the same bytes
  H5Handle file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), H5Fclose);
  DS_CHECK(file, "{}: cannot create the file: {}", path, write_fault());
  return {std::move(file), path};
}

H5File H5File::open(const std::string& path) {
  quiet();
  std::error_code ignored;
  DS_CHECK(std::filesystem::exists(path, ignored), "{}: no such file", path);
  DS_CHECK(std::filesystem::is_regular_file(path, ignored), "{}: not a file", path);
  DS_CHECK(std::filesystem::file_size(path, ignored) > 0, "{}: the file is empty", path);
  H5Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
  DS_CHECK(file, "{}: not an HDF5 file, or cut short: {}", path, error_stack());
  return {std::move(file), path};
}

bool H5File::has(const std::string& name) const {
  quiet();
  const htri_t found = H5Lexists(handle_.get(), name.c_str(), H5P_DEFAULT);
  DS_CHECK(found >= 0, "{}: cannot look up \"{}\": {}", where_, name, error_stack());
  return found > 0;
}

H5Dataset H5File::create_dataset(const std::string& name, H5Type type, const std::vector<int64_t>& row_shape,
                                 int64_t chunk_rows, bool checksum) {
  DS_CHECK(type != H5Type::string, "{}:{}: strings are written by create_strings()", where_, name);
  return create(name, type, file_type(type), h5_element_size(type), row_shape, chunk_rows, checksum);
}

void H5File::create_strings(const std::string& name, const std::vector<std::string>& values, int64_t chunk_rows) {
  size_t bytes = 1;
  for (const std::string& value : values) {
    DS_CHECK(value.find('\0') == std::string::npos, "{}:{}: a string holds a NUL byte", where_, name);
    bytes = std::max(bytes, value.size());
  }
  const H5Handle type = string_type(bytes);
  H5Dataset made =
      create(name, H5Type::string, type.get(), static_cast<int64_t>(bytes), {}, chunk_rows, /*checksum=*/true);
  std::string block(bytes * values.size(), '\0');
  for (size_t i = 0; i < values.size(); ++i) values[i].copy(block.data() + i * bytes, bytes);
  hsize_t rows = values.size();
  DS_CHECK(H5Dset_extent(made.handle_.get(), &rows) >= 0, "{}: cannot grow to {} rows: {}", made.where(), rows,
           write_fault());
  made.transfer(0, static_cast<int64_t>(rows), block.data(), type.get(), /*writing=*/true);
}

H5Dataset H5File::create(const std::string& name, H5Type type, hid_t stored, int64_t stored_bytes,
                         const std::vector<int64_t>& row_shape, int64_t chunk_rows, bool checksum) {
  const std::string where = where_ + ":" + name;
  DS_CHECK(chunk_rows > 0 && product(row_shape) > 0, "{}: chunk of {} rows of shape {} is empty", where, chunk_rows,
           shape_text(row_shape));
  std::vector<hsize_t> size{0}, limit{H5S_UNLIMITED}, chunk{static_cast<hsize_t>(chunk_rows)};
  for (const int64_t extent : row_shape) {
    for (auto* sizes : {&size, &limit, &chunk}) sizes->push_back(static_cast<hsize_t>(extent));
  }
  const H5Handle space(H5Screate_simple(static_cast<int>(size.size()), size.data(), limit.data()), H5Sclose);
  const H5Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_chunk(creation.get(), static_cast<int>(chunk.size()), chunk.data());
  H5Pset_obj_track_times(creation.get(), false);  // the same content gives the same bytes
  if (checksum) H5Pset_fletcher32(creation.get());
  // Writing is sequential: a cache of two chunks with w0 = 1 evicts whole finished chunks first.
  const H5Handle access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
  const int64_t chunk_bytes = chunk_rows * product(row_shape) * stored_bytes;
  H5Pset_chunk_cache(access.get(), 521, static_cast<size_t>(std::max<int64_t>(2 * chunk_bytes, 1 << 20)), 1.0);
  H5Handle made(H5Dcreate2(handle_.get(), name.c_str(), stored, space.get(), H5P_DEFAULT, creation.get(), access.get()),
                H5Dclose);
  DS_CHECK(made, "{}: cannot create the dataset: {}", where, write_fault());
  return {std::move(made), where, type};
}

H5Dataset H5File::dataset(const std::string& name) const {
  const std::string where = where_ + ":" + name;
  DS_CHECK(has(name), "{}: the dataset is missing: the file was written by another program or version", where);
  H5Handle opened(H5Dopen2(handle_.get(), name.c_str(), H5P_DEFAULT), H5Dclose);
  DS_CHECK(opened, "{}: cannot open the dataset: {}", where, error_stack());
  const H5Handle type(H5Dget_type(opened.get()), H5Tclose);
  const std::optional<H5Type> known = type_on_disk(type.get());
  DS_CHECK(known, "{}: its element type is none that draftsmith writes", where);

  const H5Handle creation(H5Dget_create_plist(opened.get()), H5Pclose);
  hsize_t chunk[H5S_MAX_RANK] = {};
  const int rank = H5Pget_layout(creation.get()) == H5D_CHUNKED ? H5Pget_chunk(creation.get(), H5S_MAX_RANK, chunk) : 0;
  int64_t bytes = static_cast<int64_t>(H5Tget_size(type.get()));
  for (int d = 0; d < rank; ++d) bytes *= static_cast<int64_t>(chunk[d]);
  if (rank > 0 && 4 * bytes > (1 << 20)) {
    const H5Handle access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
    H5Pset_chunk_cache(access.get(), 521, static_cast<size_t>(4 * bytes), H5D_CHUNK_CACHE_W0_DEFAULT);
    opened.reset();  // HDF5 gives an already open dataset its old cache again
    opened = H5Handle(H5Dopen2(handle_.get(), name.c_str(), access.get()), H5Dclose);
    DS_CHECK(opened, "{}: cannot open the dataset: {}", where, error_stack());
  }
  H5Dataset made(std::move(opened), where, *known);
  DS_CHECK(!made.shape().empty(), "{}: a scalar where rows are expected", where);
  return made;
}

H5Dataset H5File::dataset(const std::string& name, H5Type type, const std::vector<int64_t>& row_shape) const {
  H5Dataset found = dataset(name);
  const std::vector<int64_t> shape = found.shape();
  DS_CHECK(found.type() == type, "{}: holds {}, expected {}", found.where(), h5_type_name(found.type()),
           h5_type_name(type));
  DS_CHECK(std::equal(shape.begin() + 1, shape.end(), row_shape.begin(), row_shape.end()),
           "{}: has shape {}, expected rows of {}", found.where(), shape_text(shape), shape_text(row_shape));
  return found;
}

void H5File::flush() {
  quiet();
  DS_CHECK(H5Fflush(handle_.get(), H5F_SCOPE_LOCAL) >= 0, "{}: cannot write to disk: {}", where_, write_fault());
}

void H5File::close() {
  flush();
  DS_CHECK(H5Fget_obj_count(handle_.get(), H5F_OBJ_DATASET | H5F_OBJ_ATTR | H5F_OBJ_LOCAL) == 0,
           "{}: closed while a dataset is still open", where_);
  DS_CHECK(handle_.reset() >= 0, "{}: cannot finish the file: {}", where_, write_fault());
}

}  // namespace draftsmith
