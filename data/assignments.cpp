#include "data/assignments.h"

#include "launch/check.h"

namespace draftsmith {

std::pair<std::string, std::string> split_assignment(const std::string& text, const char* option) {
  const size_t at = text.find('=');
  DS_CHECK(at != std::string::npos && at > 0, "{} {}: the form is name=value", option, text);
  return {text.substr(0, at), text.substr(at + 1)};
}

std::map<std::string, std::string> role_map(const std::vector<std::string>& assignments) {
  std::map<std::string, std::string> roles;
  for (const std::string& text : assignments) roles.insert(split_assignment(text, "--role-map"));
  return roles;
}

nlohmann::ordered_json template_variables(const std::vector<std::string>& assignments) {
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  for (const std::string& text : assignments) {
    const auto [name, value] = split_assignment(text, "--template-variable");
    const auto parsed = nlohmann::ordered_json::parse(value, nullptr, /*allow_exceptions=*/false);
    variables[name] = parsed.is_discarded() ? nlohmann::ordered_json(value) : parsed;
  }
  return variables;
}

}  // namespace draftsmith
