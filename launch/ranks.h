// Who am I among the processes of this job: torchrun's variables, read once and validated.
//
// A bare call is rank 0 of 1. Commands that run on one process call require_single_rank(); the many-rank ones do not.
#pragma once

#include <cstdint>
#include <string_view>

namespace draftsmith {

struct Ranks {
  int64_t rank = 0, world_size = 1, local_rank = 0, local_world_size = 1;
};

// Read from RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE at the first call. Throws Error when they contradict each other.
const Ranks& ranks();

// Throws Error naming `command` when the job has more than one rank.
void require_single_rank(std::string_view command);

}  // namespace draftsmith
