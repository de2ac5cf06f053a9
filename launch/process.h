// The process itself: what must be settled before any library starts a thread.
#pragma once

namespace draftsmith {

// Settles how OpenMP threads wait (libgomp reads that once, when it is loaded) and executes the program again when the
// environment did not say so yet. A variable that the caller set is left as it is. Call first in main(). Programs with
// a main of their own (tests, benches) take what the environment says; results are the same, only times differ. The
// tests' CMake file sets the same for ctest, tests/bench/run for the benches.
void prepare_process(char** argv);

}  // namespace draftsmith
