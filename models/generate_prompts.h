// The prompts of `generate`: rows read, rendered as the target is served, tokenised; every row accounted for.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "configs/hf_config.h"
#include "data/conversations.h"
#include "data/text.h"
#include "launch/summary.h"
#include "models/decoding/sampling.h"

namespace draftsmith {

struct PromptOptions {
  std::vector<std::string> files;
  ReadOptions read;
  std::string system;    // put in front of rows that have no system message; empty: none
  RenderOptions render;  // add_generation_prompt is always on
  int64_t limit = 0;     // use the first so many usable rows; 0: all
};

struct GeneratePrompt {
  Conversation conversation;    // without the answers that stood at its end; id is the content id of the prompt
  std::vector<int64_t> tokens;  // rendered with the generation prompt
};

struct GeneratePrompts {
  std::vector<GeneratePrompt> rows;
  int64_t replaced = 0;  // rows whose last turn was an answer, which the target's own takes the place of
};

// Reads all files, counting rows in and drops in `summary` (reasons: those of ConversationReader, "template refused",
// "duplicate", "prompt too long", "beyond --limit"). Throws Error when the date is none, no row is left or a token is
// outside the target's vocabulary.
GeneratePrompts read_prompts(const PromptOptions& options, const Tokenizer& tokenizer, const ChatTemplate& chat,
                             const HfConfig& target, Summary& summary);

// Throws Error when more of the rows than this share cannot be used.
void check_drops(const Summary& summary, double max_drop_fraction);

// Throws Error for sampling options that cannot be (check_sampling), and for those that a greedy run would not read.
void check_sampling_options(const SamplingOptions& options);

// What ends an answer, ascending: the end tokens of the target's configuration, and the end token that its template's
// turns carry. Throws Error when there is none.
std::vector<int64_t> stop_tokens(const HfConfig& config, const Tokenizer& tokenizer, const ChatTemplate& chat,
                                 const std::string& folder);

}  // namespace draftsmith
