#include "export/export_command.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "export/card.h"
#include "export/evaluation_file.h"
#include "export/format.h"
#include "export/open_drafter.h"
#include "export/proof.h"
#include "launch/check.h"
#include "launch/file.h"
#include "launch/log.h"
#include "launch/ranks.h"
#include "launch/summary.h"

namespace draftsmith {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

constexpr const char* kMark = "export.json";  // says whose export a folder holds; written first and, completed, last

struct Arguments {
  std::string drafter, target, format, output, dtype = "float32", with_target, evaluation, json;
};

// A folder may be written to when it is empty or holds an export (finished or not) of the same drafter in the same
// format: `claim` holds what is known of this one.
void check_claim(const fs::path& folder, const ordered_json& claim) {
  if (fs::is_empty(folder)) return;
  const fs::path mark = folder / kMark;
  DS_CHECK(fs::exists(mark), "{}: is not empty and holds no export; give --output a folder of its own",
           folder.string());
  const ordered_json found = ordered_json::parse(read_file(mark), nullptr, false);
  DS_CHECK(found.is_object(), "{}: is not a JSON object; give --output another folder or remove that one",
           mark.string());
  for (const char* key : {"format", "drafter_hash"}) {
    if (!claim.contains(key)) continue;
    DS_CHECK(found.contains(key) && found[key] == claim[key],
             "{}: holds an export with {} {}, this one has {}; give --output another folder or remove that one",
             folder.string(), key, found.contains(key) ? found[key].dump() : "unknown", claim[key].dump());
  }
}

fs::path resolved(const fs::path& path) {
  return fs::weakly_canonical(fs::absolute(path));
}

// Before anything is loaded: the export may neither be written over its inputs nor over something else.
void check_places(const Arguments& arguments) {
  const fs::path folder = arguments.output;
  DS_CHECK(!fs::exists(folder) || fs::is_directory(folder), "--output {}: is a file; a folder is written",
           folder.string());
  for (const auto& [input, option] :
       {std::pair(arguments.target, "--target"), std::pair(arguments.drafter, "--drafter")}) {
    std::error_code absent;
    DS_CHECK(!fs::equivalent(folder, input, absent), "--output {}: is the folder of {}; give it a folder of its own",
             folder.string(), option);
  }
  check_writable_folder(folder);
  ordered_json claim;
  claim["format"] = arguments.format;
  check_claim(folder, claim);
  if (arguments.json.empty()) return;
  std::vector<fs::path> inputs;
  if (!arguments.evaluation.empty()) inputs.emplace_back(arguments.evaluation);
  check_output(arguments.json, inputs, "--json");
  DS_CHECK(resolved(arguments.json).parent_path() != resolved(folder),
           "--json {}: stands in the folder of --output, whose files are the export's own; give it another place",
           arguments.json);
}

ordered_json files_json(const fs::path& folder, const std::vector<std::string>& names) {
  ordered_json files = ordered_json::array();
  for (const std::string& name : names) {
    files.push_back({{"name", name}, {"bytes", fs::file_size(folder / name)}, {"sha256", sha256_file(folder / name)}});
  }
  return files;
}

// The evaluation that the card quotes must be of this drafter.
void check_evaluation(const ordered_json& evaluation, const std::string& path, const OpenedDrafter& opened) {
  if (evaluation.is_null() || measured_with(evaluation, opened.hash)) return;
  DS_CHECK(!opened.exported_from.empty() && measured_with(evaluation, opened.exported_from),
           "{}: was measured with drafter {}, this one is {}; evaluate it again", path,
           evaluation["settings"]["drafter_hash"].get<std::string>(), opened.hash);
}

ordered_json proof_json(const ExportProof& proof) {
  return {{"slots", proof.slots}, {"proposals", proof.proposals}, {"unrounded_agreement", proof.unrounded_agreement}};
}

void run(const Arguments& arguments) {
  require_single_rank("export");
  const Format& chosen = format(arguments.format);
  const FloatType type = float_type(arguments.dtype);
  check_places(arguments);
  const ordered_json evaluation =
      arguments.evaluation.empty() ? ordered_json(nullptr) : read_evaluation(arguments.evaluation);
  const std::unique_ptr<Target> target = load_target(arguments.target);
  const TargetEnds ends{target->embedding(), target->head()};
  const OpenedDrafter opened = open_drafter(arguments.drafter, *target);
  say("drafter", "{}  {}, {:.12}", opened.folder, opened.drafter->config().kind, opened.hash);
  check_evaluation(evaluation, arguments.evaluation, opened);
  chosen.check(opened.drafter->config(), target->config(), type);
  const Rounding rounding{type, chosen.keeps_vectors};
  check_finite(*opened.drafter, rounding);

  const ExportInput input{*opened.drafter,      opened.identity,  target->config(),
                          arguments.target,     arguments.output, type,
                          arguments.with_target};
  ordered_json facts;
  facts["format"] = chosen.name;
  facts["dtype"] = arguments.dtype;
  facts["drafter_hash"] = opened.hash;
  facts["target_hash"] = opened.identity.target_hash;
  facts["corpus_id"] = opened.identity.corpus_id;
  facts["chat_template_hash"] = opened.identity.chat_template_hash;
  facts["complete"] = false;
  check_claim(arguments.output, facts);
  check_writable_folder(arguments.output, chosen.bytes(input));
  write_file(fs::path(arguments.output) / kMark, facts.dump(2) + "\n");
  const std::vector<std::string> files = chosen.write(input);

  const std::unique_ptr<Drafter> read = chosen.read(arguments.output, target->config(), ends, nullptr);
  const ExportProof proof = prove_export(*opened.drafter, *read, rounding, target->config(), ends);
  facts["files"] = files_json(arguments.output, files);
  facts["proof"] = proof_json(proof);
  facts["serve"] = chosen.serve(input);
  write_file(fs::path(arguments.output) / "README.md", model_card(input, chosen, facts, evaluation));
  facts["complete"] = true;
  write_file(fs::path(arguments.output) / kMark, facts.dump(2) + "\n");

  for (const ordered_json& file : facts["files"]) {
    say("wrote", "{}  {}", (fs::path(arguments.output) / file["name"].get<std::string>()).string(),
        short_bytes(file["bytes"].get<double>()));
  }
  say("proof", "read back: logits of {} slots and {} proposed tokens are those of the trained drafter{}", proof.slots,
      proof.proposals,
      type == FloatType::kFloat32 ? ""
                                  : fmt::format(" rounded to {} ({:.1f} % as before rounding)", arguments.dtype,
                                                100 * proof.unrounded_agreement));
  for (const std::string& line : chosen.serve(input)) say("serve", "{}", line);
  Summary summary;
  summary.command = "export";
  summary.json_file = arguments.json;
  summary.facts = facts;
  summary.finish();
}

}  // namespace

void add_export_command(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("export", "a trained drafter -> a folder that a named runtime loads, read back and proven");
  command->footer(
      "Example:\n  draftsmith export --drafter runs/first --target models/smollm2 --for llama.cpp --with-target f16 "
      "--output served");
  command->add_option("--drafter", arguments->drafter, "a run, a checkpoint, a drafter's folder or an exported folder")
      ->required();
  command->add_option("--target", arguments->target, "HF folder of the target")
      ->required()
      ->check(CLI::ExistingDirectory);
  std::string known;
  for (const Format& one : formats())
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", one.name, one.runtimes);
  command->add_option("--for", arguments->format, known)->required();
  command->add_option("--output", arguments->output, "folder to write")->required();
  command->add_option("--dtype", arguments->dtype, "of the drafter's matrices: float32 (as trained), bfloat16, float16")
      ->capture_default_str();
  command
      ->add_option("--with-target", arguments->with_target, "llama.cpp: also write the target as f32, f16 or q8_0 GGUF")
      ->check(CLI::IsMember({"f32", "f16", "q8_0"}));
  command
      ->add_option("--evaluation", arguments->evaluation, "evaluation.json of this drafter, quoted in the model card")
      ->check(CLI::ExistingFile);
  command->add_option("--json", arguments->json, "summary as JSON");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace draftsmith
