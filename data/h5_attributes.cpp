#include "data/h5.h"
#include "data/h5_internal.h"
#include "launch/check.h"

namespace draftsmith {
namespace {

herr_t collect(unsigned, const H5E_error2_t* error, void* out) {
  auto& text = *static_cast<std::string*>(out);
  if (error->desc == nullptr || *error->desc == '\0') return 0;
  if (!text.empty()) text += "; ";
  text += error->desc;
  return 0;
}

}  // namespace

namespace h5_internal {

void quiet() {
  // At exit HDF5 would close what is still open, and crashes on a file that could not be written to a full disk. Files
  // are closed by their owners.
  static const bool no_exit_handler = H5dont_atexit() >= 0;
  (void)no_exit_handler;
  thread_local const bool done = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0;
  (void)done;
}

std::string error_stack() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, collect, &text);
  H5Eclear2(H5E_DEFAULT);
  return text.empty() ? "HDF5 gave no reason" : text;
}

std::string write_fault() {
  const std::string stack = error_stack();
  const std::string before = "error message = '";
  const size_t begin = stack.find(before), from = begin + before.size();
  const size_t end = begin == std::string::npos ? begin : stack.find('\'', from);
  return (end == std::string::npos ? stack : stack.substr(from, end - from)) +
         "\n       check the room on the disk and the permissions, then run the same command again";
}

H5Handle string_type(size_t bytes) {
  H5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), std::max<size_t>(bytes, 1));
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  return type;
}

}  // namespace h5_internal

using namespace h5_internal;

// ---- handles ----

H5Handle& H5Handle::operator=(H5Handle&& other) noexcept {
  if (this != &other) {
    reset();
    id_ = std::exchange(other.id_, -1);
    close_ = other.close_;
  }
  return *this;
}

herr_t H5Handle::reset() {
  if (id_ < 0) return 0;
  quiet();
  return close_(std::exchange(id_, -1));
}

// ---- attributes ----

bool H5Attributes::has_attribute(const std::string& name) const {
  quiet();
  const htri_t found = H5Aexists(handle_.get(), name.c_str());
  DS_CHECK(found >= 0, "{}: cannot look up attribute \"{}\": {}", where_, name, error_stack());
  return found > 0;
}

void H5Attributes::write_scalar(const std::string& name, hid_t file, hid_t memory, const void* value) {
  if (has_attribute(name)) {
    DS_CHECK(H5Adelete(handle_.get(), name.c_str()) >= 0, "{}: cannot replace attribute \"{}\": {}", where_, name,
             write_fault());
  }
  const H5Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  const H5Handle attribute(H5Acreate2(handle_.get(), name.c_str(), file, space.get(), H5P_DEFAULT, H5P_DEFAULT),
                           H5Aclose);
  DS_CHECK(attribute && H5Awrite(attribute.get(), memory, value) >= 0, "{}: cannot write attribute \"{}\": {}", where_,
           name, write_fault());
}

void H5Attributes::read_scalar(const std::string& name, H5T_class_t expected, hid_t memory, void* value) const {
  DS_CHECK(has_attribute(name), "{}: attribute \"{}\" is missing: the file was written by another program or version",
           where_, name);
  const H5Handle attribute(H5Aopen(handle_.get(), name.c_str(), H5P_DEFAULT), H5Aclose);
  DS_CHECK(attribute, "{}: cannot open attribute \"{}\": {}", where_, name, error_stack());
  const H5Handle type(H5Aget_type(attribute.get()), H5Tclose);
  const H5Handle space(H5Aget_space(attribute.get()), H5Sclose);
  DS_CHECK(H5Tget_class(type.get()) == expected && H5Sget_simple_extent_npoints(space.get()) == 1,
           "{}: attribute \"{}\" is not a single value of the expected kind", where_, name);
  DS_CHECK(H5Aread(attribute.get(), memory, value) >= 0, "{}: cannot read attribute \"{}\": {}", where_, name,
           error_stack());
}

void H5Attributes::set_attribute(const std::string& name, const std::string& value) {
  DS_CHECK(value.find('\0') == std::string::npos, "{}: the text of attribute \"{}\" holds a NUL byte", where_, name);
  const H5Handle type = string_type(value.size());
  write_scalar(name, type.get(), type.get(), value.empty() ? "" : value.data());
}

void H5Attributes::set_attribute(const std::string& name, int64_t value) {
  write_scalar(name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value);
}

void H5Attributes::set_attribute(const std::string& name, double value) {
  write_scalar(name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value);
}

std::string H5Attributes::string_attribute(const std::string& name) const {
  quiet();
  const H5Handle attribute(H5Aopen(handle_.get(), name.c_str(), H5P_DEFAULT), H5Aclose);
  const H5Handle stored(attribute ? H5Aget_type(attribute.get()) : -1, H5Tclose);
  const size_t bytes = stored && H5Tget_class(stored.get()) == H5T_STRING && H5Tis_variable_str(stored.get()) == 0
                           ? H5Tget_size(stored.get())
                           : 1;
  std::string value(bytes, '\0');
  const H5Handle type = string_type(bytes);
  read_scalar(name, H5T_STRING, type.get(), value.data());
  return value.substr(0, value.find('\0'));
}

int64_t H5Attributes::int_attribute(const std::string& name) const {
  int64_t value = 0;
  read_scalar(name, H5T_INTEGER, H5T_NATIVE_INT64, &value);
  return value;
}

double H5Attributes::double_attribute(const std::string& name) const {
  double value = 0;
  read_scalar(name, H5T_FLOAT, H5T_NATIVE_DOUBLE, &value);
  return value;
}

}  // namespace draftsmith
