#include "launch/process.h"

#include <unistd.h>

#include <cstdlib>

namespace draftsmith {

void prepare_process(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  ::execv("/proc/self/exe", argv);
  // Without /proc the program goes on as it is: slower in the worst case, never different.
}

}  // namespace draftsmith
