// Conversations out of JSON files: one shape whatever the data set called things, every row accounted for.
//
// Understood: keys `messages` or `conversations`; messages {role, content} or ShareGPT's {from, value}; the usual role
// aliases; content as text or as a list of text parts (joined by a newline, as vLLM does for templates that take text);
// sibling keys `system`, `tools` (list or JSON text), `id`, `source`, `category`, `finish_reason`. Null keys are
// dropped. Arguments of tool calls written as JSON text become objects, as serving engines hand them to templates.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "data/json_rows.h"

namespace draftsmith {

struct Conversation {
  std::string id;  // content hash: 32 hex digits over messages and tools, independent of file, order and metadata
  std::string source, category;     // `source` falls back to the file's stem; `category` may be empty
  nlohmann::ordered_json messages;  // [{role, content, ...}], roles system, developer, user, assistant, tool
  nlohmann::ordered_json tools;     // null or a list
  std::string original_id;          // the row's own id, may be empty
  bool cut = false;                 // `finish_reason` says that a limit ended the last answer, not the model; no part
                                    // of the id: two rows of one text are one conversation however each ended
};

// 32 hex digits over the messages and tools: the identity of a row everywhere in the program.
std::string content_id(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools);

struct ReadOptions {
  bool require_answer = true;  // false for prompts to be answered
  // Role name in the data -> system, developer, user, assistant, tool; or "drop", which drops such rows.
  std::map<std::string, std::string> role_map;
};

// One row of input: either a conversation, or the reason why it was dropped.
struct ConversationRow {
  std::optional<Conversation> conversation;
  std::string dropped;  // reason, as counted in summaries: "not JSON", "no assistant answer", "duplicate", ...
  std::string detail;   // what exactly, for a warning; may be empty
  std::string where;    // file and line
};

class ConversationReader {
 public:
  // Opens all files first: a missing or empty one is an error before any work. Throws Error on a bad role map.
  ConversationReader(const std::vector<std::string>& files, ReadOptions options);

  // False at the end of the last file. Throws Error on a role that is neither known nor mapped, since dropping such
  // rows would lose whole turns of every conversation; the message says how to map it.
  bool next(ConversationRow& row);

 private:
  void convert(const JsonRow& raw, const std::string& source, ConversationRow& row);

  ReadOptions options_;
  std::vector<std::string> files_;
  std::vector<std::unique_ptr<JsonRows>> rows_;
  size_t file_ = 0;
  std::unordered_set<std::string> seen_;
};

}  // namespace draftsmith
