#include "export/export_command.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "export/card.h"
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
// format.
void claim_folder(const fs::path& folder, const ordered_json& claim) {
  check_writable_folder(folder);
  const fs::path mark = folder / kMark;
  if (!fs::is_empty(folder)) {
    DS_CHECK(fs::exists(mark), "{}: is not empty and holds no export; give --output a folder of its own",
             folder.string());
    const ordered_json found = ordered_json::parse(read_file(mark), nullptr, false);
    DS_CHECK(found.is_object(), "{}: is not a JSON object", mark.string());
    for (const char* key : {"format", "drafter_hash"}) {
      DS_CHECK(found.value(key, "") == claim.value(key, ""),
               "{}: holds an export with {} {}, this one has {}; give --output another folder or remove that one",
               folder.string(), key, found.value(key, ""), claim.value(key, ""));
    }
  }
  write_file(mark, claim.dump(2) + "\n");
}

ordered_json files_json(const fs::path& folder, const std::vector<std::string>& names) {
  ordered_json files = ordered_json::array();
  for (const std::string& name : names) {
    files.push_back({{"name", name}, {"bytes", fs::file_size(folder / name)}, {"sha256", sha256_file(folder / name)}});
  }
  return files;
}

// The evaluation.json that the card quotes: it must be of this drafter.
ordered_json read_evaluation(const std::string& path, const std::string& drafter_hash) {
  if (path.empty()) return nullptr;
  ordered_json evaluation = ordered_json::parse(read_file(path), nullptr, false);
  DS_CHECK(evaluation.is_object() && evaluation.contains("settings"), "{}: is no evaluation.json", path);
  const std::string found = evaluation["settings"].value("drafter_hash", "");
  DS_CHECK(found == drafter_hash, "{}: was measured with drafter {}, this one is {}; evaluate it again", path, found,
           drafter_hash);
  return evaluation;
}

ordered_json proof_json(const ExportProof& proof) {
  return {{"slots", proof.slots}, {"proposals", proof.proposals}, {"unrounded_agreement", proof.unrounded_agreement}};
}

void run(const Arguments& arguments) {
  require_single_rank("export");
  const Format& chosen = format(arguments.format);
  const FloatType type = float_type(arguments.dtype);
  const std::unique_ptr<Target> target = load_target(arguments.target);
  const TargetEnds ends{target->embedding(), target->head()};
  const OpenedDrafter opened = open_drafter(arguments.drafter, *target);
  say("drafter", "{}  {}, {:.12}", opened.folder, opened.drafter->config().kind, opened.hash);
  const ordered_json evaluation = read_evaluation(arguments.evaluation, opened.hash);
  chosen.check(opened.drafter->config(), target->config(), type);

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
  claim_folder(arguments.output, facts);
  check_writable_folder(arguments.output, chosen.bytes(input));
  const std::vector<std::string> files = chosen.write(input);

  const std::unique_ptr<Drafter> read = chosen.read(arguments.output, target->config(), ends, nullptr);
  const ExportProof proof = prove_export(*opened.drafter, *read, {type, chosen.keeps_vectors}, target->config(), ends);
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
