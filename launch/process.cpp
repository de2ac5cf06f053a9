#include "launch/process.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>

namespace draftsmith {

void prepare_process(char** argv) {
  ::prctl(PR_SET_NAME, "draftsmith");  // executed again below, the process would be called `exe`
  if (std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  // A decode step is hundreds of short parallel regions. With libgomp's default the threads spin at the end of each:
  // free where both cores are ours, ruinous where they are not. Median of a SmolLM2 step on two cores of which another
  // process takes more than one: 31 ms asleep, 1.9 s by default; GOMP_SPINCOUNT 500 to 20000 lay between. Waking a
  // sleeping thread took 5 us.
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  // OpenBLAS is called with one thread (models/parts/library_product.h); it would start a pool of its own while it is
  // loaded.
  ::setenv("OPENBLAS_NUM_THREADS", "1", 0);
  ::execv("/proc/self/exe", argv);
  // Without /proc the program goes on as it is: slower in the worst case, never different.
}

}  // namespace draftsmith
