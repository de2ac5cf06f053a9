#include "launch/machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

namespace draftsmith {

namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

int64_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return ::sysconf(_SC_NPROCESSORS_ONLN);
  return CPU_COUNT(&set);
}

}  // namespace

Machine describe_machine() {
  Machine machine;
  machine.cpu = cpu_name();
  machine.cores = usable_cores();
  machine.memory_bytes = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  utsname name{};
  if (::uname(&name) == 0) machine.system = std::string(name.sysname) + " " + name.machine;
  return machine;
}

nlohmann::ordered_json to_json(const Machine& machine) {
  return {{"cpu", machine.cpu},
          {"cores", machine.cores},
          {"memory_bytes", machine.memory_bytes},
          {"system", machine.system}};
}

}  // namespace draftsmith
