// What h5.cpp and h5_attributes.cpp share: the error stack and the text type.
#pragma once

#include <hdf5.h>

#include <string>

namespace draftsmith::h5_internal {

// HDF5 prints its error stack to stderr unless told otherwise; the setting is per thread. Called before every first
// call.
void quiet();

// The error stack from the API call down to the cause, as one line; empties the stack.
std::string error_stack();

// UTF-8 of variable length. Lives as long as the process.
hid_t string_type();

}  // namespace draftsmith::h5_internal
