// What h5.cpp and h5_attributes.cpp share: the error stack and the text type.
#pragma once

#include <hdf5.h>

#include <string>

#include "data/h5.h"

namespace draftsmith::h5_internal {

// HDF5 prints its error stack to stderr unless told otherwise; the setting is per thread. Called before every first
// call.
void quiet();

// The error stack from the API call down to the cause, as one line; empties the stack.
std::string error_stack();

// Why a write failed, and what to do: the operating system's words where the stack holds them ("No space left on
// device"), else the stack. Empties it.
std::string write_fault();

// UTF-8 of `bytes` bytes at most, padded with NUL. Never of variable length: HDF5 1.10 keeps those in a heap without
// checksums, and a flipped byte there can send it round in circles.
H5Handle string_type(size_t bytes);

}  // namespace draftsmith::h5_internal
