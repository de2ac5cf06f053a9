// The process itself: what must be settled before any library starts a thread.
#pragma once

namespace draftsmith {

// Settles how OpenMP threads wait (libgomp reads that once, when it is loaded) and executes the program again when the environment did not
// say so yet. Two thread pools live in this process, LibTorch's and OpenBLAS's; spinning threads of one cost the other half of its speed.
// A variable that the caller set is left as it is. Call first in main().
void prepare_process(char** argv);

}  // namespace draftsmith
