// Many prompts answered at once: the engine of `generate`.
//
// A group of prompts is run together from its first token to its last; finished rows leave the batch. Nothing outside
// the group reaches its answers, so a run that repeats a group repeats its bytes. Each row has its own random stream,
// so its text does not depend on who else is in the group (up to the last bits of the sums, which can only matter where
// two tokens are equally likely).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/decoding/sampling.h"
#include "models/targets/target.h"

namespace draftsmith {

struct BatchPrompt {
  std::vector<int64_t> tokens;
  uint64_t seed = 0;  // of this row's draws
};

struct BatchOptions {
  int64_t max_new_tokens = 256;
  std::vector<int64_t> stop;      // ends a row; the stop token is part of its answer
  SamplingOptions sampling;       // temperature 0: greedy
  int64_t prefill_tokens = 4096;  // most tokens (padding included) of one forward over prompts: bounds its memory
};

struct BatchAnswer {
  std::vector<int64_t> tokens;
  bool stopped = false;  // by a stop token (else by the limit)
};

// Answers in the order of the prompts. `progress`, when given, is called with the tokens made and the rows finished
// since its last call. Throws Error for an empty prompt or one that fills the model's positions.
std::vector<BatchAnswer> generate_group(const Target& target, const std::vector<BatchPrompt>& prompts,
                                        const BatchOptions& options,
                                        const std::function<void(int64_t tokens, int64_t rows)>& progress = {});

}  // namespace draftsmith
