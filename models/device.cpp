#include "models/device.h"

#include <ATen/Parallel.h>

#include "models/parts/device.h"

namespace draftsmith {

void add_device_options(CLI::App& command, DeviceOptions& options) {
  command.add_option("--threads", options.threads, "CPU threads (default: one per core)")->check(CLI::Range(1, 4096));
  command.add_option("--device", options.device, "cpu, cuda or cuda:N")->capture_default_str();
}

at::Device use_device(DeviceOptions& options) {
  if (options.threads > 0) at::set_num_threads(static_cast<int>(options.threads));
  options.threads = at::get_num_threads();
  return parse_device(options.device);
}

}  // namespace draftsmith
