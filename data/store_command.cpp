#include "data/store_command.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "data/manifest.h"
#include "launch/check.h"
#include "launch/file.h"
#include "launch/log.h"
#include "launch/ranks.h"
#include "launch/summary.h"

namespace draftsmith {
namespace {

struct StoreOptions {
  std::string folder, json;
};

Summary describe(const Manifest& store, const std::string& command, const StoreOptions& options) {
  const StoreIdentity& id = store.identity;
  int64_t tokens = 0, bytes = 0;
  for (const ManifestShard& shard : store.shards) {
    tokens += shard.tokens;
    bytes += shard.bytes;
  }
  say("store", "{}  {} of {} rows, {} tokens, {} in {} shards{}", options.folder, with_commas(store.rows()),
      with_commas(store.rows_total), with_commas(tokens), short_bytes(static_cast<double>(bytes)), store.shards.size(),
      store.complete ? "" : "; its capture has not ended");
  say("target", "{}  weights {}", id.target_name, id.target_hash);
  say("corpus", "{}", id.corpus_id);
  say("features", "taps {} of width {}, {}{}", fmt::join(id.taps, " "), id.hidden_size, id.dtype,
      id.with_last ? ", and the last state after the norm" : "");
  Summary summary;
  summary.command = command;
  summary.json_file = options.json;
  summary.facts = {{"store", options.folder},
                   {"complete", store.complete},
                   {"rows", store.rows()},
                   {"rows_total", store.rows_total},
                   {"tokens", tokens},
                   {"bytes", bytes},
                   {"shards", store.shards.size()},
                   {"target", id.target_name},
                   {"target_hash", id.target_hash},
                   {"corpus_id", id.corpus_id},
                   {"taps", id.taps},
                   {"hidden_size", id.hidden_size},
                   {"dtype", id.dtype},
                   {"last", id.with_last}};
  return summary;
}

// Neither the manifest nor a shard is replaced by the summary.
void check_json_output(const StoreOptions& options) {
  if (options.json.empty()) return;
  std::vector<std::filesystem::path> inputs;
  for (const auto& entry : std::filesystem::directory_iterator(options.folder)) {
    if (entry.path().extension() == ".h5" || entry.path().filename() == "manifest.json") inputs.push_back(entry.path());
  }
  check_output(options.json, inputs, "--json");
}

void inform(const StoreOptions& options) {
  const Manifest store = read_manifest(options.folder);
  check_json_output(options);
  FeatureStore::open(options.folder, /*whole=*/false);  // the shards are there, and are those of the manifest
  describe(store, "store info", options).finish();
}

void verify(const StoreOptions& options) {
  const Manifest store = read_manifest(options.folder);
  check_json_output(options);
  Summary summary = describe(store, "store verify", options);
  const int64_t faulty = FeatureStore::verify(options.folder);
  summary.rows_in = store.rows();
  summary.rows_kept = store.rows() - faulty;
  if (faulty > 0) summary.drop("not what was written", faulty);
  summary.facts["faulty"] = faulty;
  summary.finish();
  DS_CHECK(faulty == 0,
           "{}: {} of {} samples are not what was written\n       remove the files named above and call the same "
           "`draftsmith capture` again: it makes what is missing",
           options.folder, faulty, store.rows());
  say("verified", "every sample is what was written");
}

}  // namespace

void add_store_command(CLI::App& app) {
  CLI::App* store = app.add_subcommand("store", "what a feature store holds, and whether it is intact");
  store->require_subcommand(1);
  store->footer("Example:\n  draftsmith store verify features");
  auto options = std::make_shared<StoreOptions>();
  const auto add = [&](const char* name, const char* what, std::function<void()> run) {
    CLI::App* command = store->add_subcommand(name, what);
    command->add_option("folder", options->folder, "folder of the feature store")->required();
    command->add_option("--json", options->json, "also write the summary to this file");
    command->footer(fmt::format("Example:\n  draftsmith store {} features", name));
    command->callback([name, run] {
      require_single_rank(fmt::format("store {}", name));
      run();
    });
  };
  add("info", "rows, tokens, bytes and what they were made from", [options] { inform(*options); });
  add("verify", "read everything and check every checksum", [options] { verify(*options); });
}

}  // namespace draftsmith
