// How the program speaks: labelled lines on standard output, warnings and errors on standard error.
//
// Colour appears only on a terminal. Ranks other than 0 say nothing but warnings and errors.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace draftsmith {

// `label    text`: what a person reads; the label is padded to one column.
void say_line(std::string_view label, std::string_view text);
void warn_line(std::string_view text);

template <typename... Args>
void say(std::string_view label, fmt::format_string<Args...> format, Args&&... args) {
  say_line(label, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  warn_line(fmt::format(format, std::forward<Args>(args)...));
}

// True when standard output is a terminal that shows colour (NO_COLOR unset).
bool colour_terminal();

// "1,234,567"; "1.31 M"; "2.1 GiB"; "5:12" (minutes:seconds, hours before when there are any).
std::string with_commas(int64_t n);
std::string short_count(double n);
std::string short_bytes(double bytes);
std::string short_time(double seconds);

}  // namespace draftsmith
