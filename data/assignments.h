// Options of commands that read conversations: role maps, variables of the chat template, its date.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace draftsmith {

// "name=value" -> name and value. Throws Error naming `option` when there is no name or no equals sign.
std::pair<std::string, std::string> split_assignment(const std::string& text, const char* option);

// Values of `--role-map`: name -> role.
std::map<std::string, std::string> role_map(const std::vector<std::string>& assignments);

// Values of `--template-variable`: an object; a value is JSON where it parses as such, else text.
nlohmann::ordered_json template_variables(const std::vector<std::string>& assignments);

// Throws Error unless `date`, the value of `--date`, is a day of the calendar, "2025-01-31", with or without a time
// behind it, "2025-01-31T12:00:00"; empty: none was given.
void check_date(const std::string& date);

}  // namespace draftsmith
