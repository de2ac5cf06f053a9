#include "launch/process.h"

#include <unistd.h>

#include <cstdlib>

namespace draftsmith {

void prepare_process(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  // A decode step is some 500 short parallel regions. With libgomp's default the threads spin at the end of each, which
  // costs nothing where both cores are ours and most of the speed where they are not: median of a SmolLM2 step on two
  // cores with other work on them 99 ms asleep, 64 to 720 ms with GOMP_SPINCOUNT 500 to 20000, 210 to 300 ms by
  // default. Waking a sleeping thread took 5 us on a quiet core.
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  // OpenBLAS is called with one thread (models/parts/library_product.h); it would start a pool of its own while it is
  // loaded.
  ::setenv("OPENBLAS_NUM_THREADS", "1", 0);
  ::execv("/proc/self/exe", argv);
  // Without /proc the program goes on as it is: slower in the worst case, never different.
}

}  // namespace draftsmith
