// What this machine is, in words and numbers: printed beside every measured speed, because a speed without its machine
// says nothing.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace draftsmith {

struct Machine {
  std::string cpu;           // model name; "unknown" where the system does not tell
  int64_t cores = 0;         // logical cores this process may use
  int64_t memory_bytes = 0;  // physical memory
  std::string system;        // kernel name and architecture
};

Machine describe_machine();

nlohmann::ordered_json to_json(const Machine& machine);

}  // namespace draftsmith
