// draftsmith <command>: a table of commands and nothing else.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "data/prepare_command.h"
#include "data/store_command.h"
#include "export/evaluate_command.h"
#include "export/export_command.h"
#include "launch/check.h"
#include "launch/process.h"
#include "models/capture_command.h"
#include "models/generate_command.h"
#include "models/import_command.h"
#include "train/report_command.h"
#include "train/train_command.h"

namespace {

using AddCommand = void (*)(CLI::App&);

// In the order of the work: a target, its text, its features, a drafter, its proof.
constexpr AddCommand kCommands[] = {
    draftsmith::add_import_command,
    draftsmith::add_generate_command,
    draftsmith::add_prepare_command,
    draftsmith::add_capture_command,
    draftsmith::add_store_command,
    draftsmith::add_train_command,
    draftsmith::add_export_command,
    draftsmith::add_evaluate_command,
    draftsmith::add_report_command,
};

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
