#include "data/conversations.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "launch/check.h"
#include "launch/file.h"

namespace draftsmith {
namespace {

using nlohmann::ordered_json;

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};

constexpr std::array<std::pair<std::string_view, std::string_view>, 15> kAliases = {{
    {"human", "user"},
    {"prompter", "user"},
    {"gpt", "assistant"},
    {"model", "assistant"},
    {"bot", "assistant"},
    {"ai", "assistant"},
    {"chatgpt", "assistant"},
    {"chatbot", "assistant"},
    {"function", "tool"},
    {"function_response", "tool"},
    {"tool_response", "tool"},
    {"tool_result", "tool"},
    {"tool_results", "tool"},
    {"observation", "tool"},
    {"ipython", "tool"},
}};

// A row that cannot be used; caught per row and counted.
struct Dropped {
  std::string reason, detail;
};

std::string known_roles() {
  std::string text;
  for (const std::string_view role : kRoles) text += fmt::format("{}{}", text.empty() ? "" : ", ", role);
  return text;
}

// The role's name here; empty when it is unknown.
std::string canonical_role(const std::string& name, const std::map<std::string, std::string>& role_map) {
  if (const auto mapped = role_map.find(name); mapped != role_map.end()) return mapped->second;
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (std::find(kRoles.begin(), kRoles.end(), lower) != kRoles.end()) return lower;
  for (const auto& [alias, role] : kAliases) {
    if (alias == lower) return std::string(role);
  }
  return "";
}

// Text of a content: a string, or a list of strings and {"type": "text", "text": ...} parts.
std::string text_of(const ordered_json& content) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array())
    throw Dropped{"content is not text", fmt::format("content is a JSON {}", content.type_name())};
  std::string text;
  for (const ordered_json& part : content) {
    const ordered_json* piece = &part;
    if (part.is_object()) {
      const std::string type =
          part.contains("type") && part["type"].is_string() ? part["type"].get<std::string>() : "text";
      if (type != "text" || !part.contains("text"))
        throw Dropped{"content is not text", fmt::format("a part of type \"{}\"", type)};
      piece = &part["text"];
    }
    if (!piece->is_string())
      throw Dropped{"content is not text", fmt::format("a part is a JSON {}", piece->type_name())};
    text += (text.empty() ? "" : "\n") + piece->get<std::string>();
  }
  return text;
}

void parse_arguments(ordered_json& message) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  for (ordered_json& call : *calls) {
    if (!call.is_object()) continue;
    ordered_json& function = call.contains("function") && call["function"].is_object() ? call["function"] : call;
    const auto arguments = function.find("arguments");
    if (arguments == function.end() || !arguments->is_string()) continue;
    ordered_json parsed = ordered_json::parse(arguments->get<std::string>(), nullptr, /*allow_exceptions=*/false);
    if (parsed.is_object()) *arguments = std::move(parsed);
  }
}

ordered_json convert_message(const ordered_json& raw, const std::string& role) {
  ordered_json message = {{"role", role}};
  for (const auto& [key, value] : raw.items()) {
    if (value.is_null() || key == "role" || key == "from") continue;
    if (key == "content" || (key == "value" && !raw.contains("content"))) {
      message["content"] = text_of(value);
    } else {
      message[key] = value;
    }
  }
  parse_arguments(message);
  const bool says_otherwise = message.contains("tool_calls") || message.contains("reasoning_content") ||
                              message.contains("thinking") || message.contains("reasoning");
  if (!message.contains("content") && !(role == "assistant" && says_otherwise)) {
    throw Dropped{"message without content", fmt::format("a message of role {}", role)};
  }
  return message;
}

bool is_answer(const ordered_json& message) {
  if (message["role"] != "assistant") return false;
  if (message.contains("content") && !message["content"].get_ref<const std::string&>().empty()) return true;
  return message.contains("tool_calls") || message.contains("reasoning_content") || message.contains("thinking") ||
         message.contains("reasoning");
}

// The first of `keys` that the row has as a string or a number.
std::string field(const ordered_json& row, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto found = row.find(key);
    if (found == row.end()) continue;
    if (found->is_string()) return found->get<std::string>();
    if (found->is_number_integer()) return found->dump();
  }
  return "";
}

const ordered_json& message_list(const ordered_json& row) {
  if (!row.is_object()) throw Dropped{"no messages", fmt::format("the row is a JSON {}", row.type_name())};
  for (const char* key : {"messages", "conversations"}) {
    const auto found = row.find(key);
    if (found == row.end() || found->is_null()) continue;
    if (!found->is_array())
      throw Dropped{"no messages", fmt::format("\"{}\" is a JSON {}, a list is needed", key, found->type_name())};
    if (found->empty()) throw Dropped{"no messages", fmt::format("\"{}\" is empty", key)};
    return *found;
  }
  throw Dropped{"no messages", "neither \"messages\" nor \"conversations\" is there"};
}

ordered_json tools_of(const ordered_json& row) {
  const auto found = row.find("tools");
  if (found == row.end() || found->is_null()) return nullptr;
  ordered_json tools = *found;
  if (tools.is_string()) {
    const std::string text = tools.get<std::string>();
    if (text.empty()) return nullptr;
    tools = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  }
  if (!tools.is_array()) throw Dropped{"tools are not a list", ""};
  return tools.empty() ? ordered_json(nullptr) : tools;
}

}  // namespace

std::string content_id(const ordered_json& messages, const ordered_json& tools) {
  return sha256(ordered_json{{"messages", messages}, {"tools", tools}}.dump()).substr(0, 32);
}

ConversationReader::ConversationReader(const std::vector<std::string>& files, ReadOptions options)
    : options_(std::move(options)), files_(files) {
  for (const auto& [name, role] : options_.role_map) {
    DS_CHECK(role == "drop" || std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end(),
             "role map: \"{}\" cannot become \"{}\"; the roles are {}, or drop", name, role, known_roles());
  }
  for (const std::string& file : files) rows_.push_back(std::make_unique<JsonRows>(file));
}

bool ConversationReader::next(ConversationRow& row) {
  JsonRow raw;
  while (file_ < rows_.size() && !rows_[file_]->next(raw)) ++file_;
  if (file_ == rows_.size()) return false;
  row = {};
  row.where = rows_[file_]->where(raw.number);
  if (!raw.problem.empty()) {
    row.dropped = raw.problem;
    row.detail = raw.detail;
    return true;
  }
  try {
    convert(raw, std::filesystem::path(files_[file_]).stem().string(), row);
  } catch (const Dropped& dropped) {
    row.conversation.reset();
    row.dropped = dropped.reason;
    row.detail = dropped.detail;
  }
  return true;
}

void ConversationReader::convert(const JsonRow& raw, const std::string& source, ConversationRow& row) {
  Conversation out;
  out.messages = ordered_json::array();
  bool answered = false;
  for (const ordered_json& message : message_list(raw.value)) {
    if (!message.is_object()) throw Dropped{"no messages", fmt::format("a message is a JSON {}", message.type_name())};
    const std::string name = field(message, {"role", "from"});
    if (name.empty()) throw Dropped{"message without role", ""};
    const std::string role = canonical_role(name, options_.role_map);
    DS_CHECK(!role.empty(),
             "{}: unknown role \"{}\"\n       known: {} and their usual aliases\n       say what it stands for:  "
             "--role-map {}=assistant"
             "  (or user, system, tool, developer; drop leaves such rows out)",
             row.where, name, known_roles(), name);
    if (role == "drop") throw Dropped{"role dropped on request", name};
    out.messages.push_back(convert_message(message, role));
    answered = answered || is_answer(out.messages.back());
  }
  if (const auto system = raw.value.find("system"); system != raw.value.end() && system->is_string() &&
                                                    !system->get_ref<const std::string&>().empty() &&
                                                    out.messages[0]["role"] != "system") {
    out.messages.insert(out.messages.begin(), ordered_json{{"role", "system"}, {"content", *system}});
  }
  const auto first = std::find_if(out.messages.begin(), out.messages.end(), [](const ordered_json& message) {
    return message["role"] != "system" && message["role"] != "developer";
  });
  if (first == out.messages.end()) throw Dropped{"no user turn", "only system messages"};
  if ((*first)["role"] == "assistant") throw Dropped{"assistant turn first", ""};
  if (options_.require_answer && !answered) throw Dropped{"no assistant answer", ""};
  out.tools = tools_of(raw.value);
  out.id = content_id(out.messages, out.tools);
  if (!seen_.insert(out.id).second) throw Dropped{"duplicate", out.id};
  out.source = field(raw.value, {"source", "dataset"});
  if (out.source.empty()) out.source = source;
  out.category = field(raw.value, {"category"});
  out.cut = field(raw.value, {"finish_reason"}) == "length";
  out.original_id = field(raw.value, {"id", "conversation_id", "question_id"});
  row.conversation = std::move(out);
}

}  // namespace draftsmith
