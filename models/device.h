// Where a command computes: `--threads` and `--device`, the same for every command that runs a model.
#pragma once

#include <ATen/core/Tensor.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace draftsmith {

struct DeviceOptions {
  int64_t threads = 0;         // of this process on the CPU; 0: one per core it may use
  std::string device = "cpu";  // cpu, cuda, cuda:N
};

// Adds the two options; `options` must outlive the parsing.
void add_device_options(CLI::App& command, DeviceOptions& options);

// Sets the threads and gives the device. Throws Error when it is unknown or not there. Call before any tensor is
// computed.
at::Device use_device(DeviceOptions& options);

}  // namespace draftsmith
