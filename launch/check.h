// The one error channel.
//
// DS_CHECK and DS_FAIL throw draftsmith::Error with a message that names the thing, the place and the remedy. main() catches it
// once, prints `error: ...` and exits non-zero. Libraries never abort and never return error codes.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace draftsmith {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace draftsmith

// DS_CHECK(condition, "{}: row {} has ...", path, row): throws Error with the formatted message when the condition is false.
#define DS_CHECK(condition, ...)                                        \
  do {                                                                  \
    if (!(condition)) throw ::draftsmith::Error(::fmt::format(__VA_ARGS__)); \
  } while (false)

// DS_FAIL("...", ...): throws Error; for the branch that has no condition left to test.
#define DS_FAIL(...) throw ::draftsmith::Error(::fmt::format(__VA_ARGS__))
