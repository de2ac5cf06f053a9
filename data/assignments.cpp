#include "data/assignments.h"

#include <chrono>
#include <regex>

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

void check_date(const std::string& date) {
  if (date.empty()) return;
  static const std::regex form("([0-9]{4})-([0-9]{2})-([0-9]{2})(T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9])?");
  std::smatch part;
  const bool formed = std::regex_match(date, part, form);
  const auto number = [&](size_t i) { return std::stoi(part[i].str()); };
  DS_CHECK(formed && std::chrono::year_month_day(std::chrono::year(number(1)),
                                                 std::chrono::month(static_cast<unsigned>(number(2))),
                                                 std::chrono::day(static_cast<unsigned>(number(3))))
                         .ok(),
           "--date {}: is no date; the form is 2025-01-31, or 2025-01-31T12:00:00", date);
}

}  // namespace draftsmith
