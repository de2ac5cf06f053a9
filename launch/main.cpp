// draftsmith <command>: a table of commands and nothing else.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "launch/check.h"
#include "launch/process.h"

namespace {

using AddCommand = void (*)(CLI::App&);

// In the order of the work: a target, its text, its features, a drafter, its proof.
constexpr AddCommand kCommands[] = {};

}  // namespace

int main(int argc, char** argv) {
  try {
    draftsmith::prepare_process(argv);
    CLI::App app("draftsmith makes draft models that make a language model answer faster without changing a token", "draftsmith");
    app.require_subcommand(1);
    app.fallthrough(false);
    for (AddCommand add : kCommands) add(app);
    CLI11_PARSE(app, argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
