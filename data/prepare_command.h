// `draftsmith prepare`: conversations -> corpus.h5.
//
// Reads rows (data/conversations.h), renders, masks and tokenises them with the target's own files (data/chat.h) on all
// cores, cuts them to the maximum length and writes the corpus. Every row is either kept or counted under a reason.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "data/chat.h"
#include "launch/summary.h"

namespace draftsmith {

struct PrepareOptions {
  std::string target;               // HF folder: tokenizer and chat template
  std::vector<std::string> inputs;  // JSON or JSON Lines files
  std::string output;               // corpus.h5
  int64_t max_length = 2048;        // tokens; longer samples are cut at the end
  double max_drop_fraction = 0.5;   // more dropped rows than this fail the command
  int64_t show = 0;                 // samples printed with their supervised text marked
  std::string json;                 // the summary goes there too; empty: nowhere
  ReadOptions read;
  ChatOptions chat;
};

// Throws Error when nothing, or less than 1 - max_drop_fraction, survives; the corpus is then not written. A corpus at
// `output` is replaced by a whole one only, a file of another kind never.
Summary prepare(const PrepareOptions& options);

void add_prepare_command(CLI::App& app);

}  // namespace draftsmith
