// A sample for a person's eyes: tokens separated, supervised text marked. A mask is believed once it was seen.
#pragma once

#include <string>

#include "data/chat.h"

namespace draftsmith {

// Supervised runs are green on a terminal and stand in 【...】 elsewhere; tokens are separated by "·", line breaks are
// shown and kept.
std::string marked_sample(const Tokenizer& tokenizer, const Sample& sample, bool colour);

// Prints it with a heading: row, part, tokens, supervised tokens.
void show_sample(const Tokenizer& tokenizer, const Sample& sample);

}  // namespace draftsmith
