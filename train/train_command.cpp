#include "train/train_command.h"

#include "configs/train_config.h"
#include "launch/file.h"
#include "launch/log.h"
#include "launch/ranks.h"
#include "launch/summary.h"
#include "models/device.h"
#include "train/dry_run.h"
#include "train/trainer.h"

namespace draftsmith {

namespace {

struct TrainOptions {
  std::string config, json;
  std::vector<std::string> set;
  bool dry_run = false;
  DeviceOptions device;
};

void show(const TrainOptions& options) {
  const DryRun run = dry_run(read_train_config(options.config, options.set, /*folders=*/false));
  describe_dry_run(run);
  Summary summary;
  summary.command = "train";
  summary.json_file = options.json;
  summary.facts["dry_run"] = true;
  summary.facts["parameters"] = run.parameters;
  for (const auto& [name, tensor] : run.tensors) summary.facts["tensors"][name] = tensor.sizes().vec();
  summary.finish();
}

void train(TrainOptions& options) {
  require_single_rank("train");
  const TrainConfig config = read_train_config(options.config, options.set);
  const at::Device device = use_device(options.device);
  TrainingSetup setup = set_up_training(config, device);
  const std::string resolved = to_yaml(setup.config);
  RunFolder run(config.output.run, resolved);
  describe_setup(setup);
  say("config", "{}/config.yaml\n{}", config.output.run, resolved);

  Trainer trainer(setup, run);
  if (setup.coverage < 0.99)
    run.warning(fmt::format("the draft vocabulary holds {:.1f} % of the supervised tokens; raise drafter.vocabulary",
                            100 * setup.coverage));
  if (setup.samples->validation().empty())
    run.warning(
        "no row is kept for validation: raise data.validation_fraction, or nothing will tell learning from memorising");
  const TrainFigures validated = trainer.run();

  Summary summary;
  summary.command = "train";
  summary.json_file = options.json;
  summary.rows_in = setup.store->rows();
  summary.rows_kept = static_cast<int64_t>(setup.samples->training().size() + setup.samples->validation().size());
  if (setup.samples->without_anchor() > 0)
    summary.drop("no two supervised tokens in a row", setup.samples->without_anchor());
  auto& facts = summary.facts;
  facts["run"] = config.output.run;
  facts["checkpoint"] = run.newest();
  facts["steps"] = trainer.state().step;
  facts["samples"] = trainer.state().samples;
  facts["training_rows"] = setup.samples->training().size();
  facts["validation_rows"] = setup.samples->validation().size();
  facts["parameters"] = setup.parameters;
  facts["seconds"] = trainer.state().seconds;
  facts["peak_memory_bytes"] = peak_memory();
  if (validated.anchors > 0) {
    facts["validation_loss"] = validated.loss();
    facts["validation_tau"] = validated.tau();
  }
  say("wrote", "{}  ({} steps, {}, {})", run.newest(), trainer.state().step, short_time(trainer.state().seconds),
      short_bytes(static_cast<double>(peak_memory())));
  summary.finish();
}

}  // namespace

void add_train_command(CLI::App& app) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* command =
      app.add_subcommand("train", "train a drafter on a feature store: checkpoints, log and metrics in a run folder");
  command->footer(
      "A run that was stopped goes on when the same command is given again.\n"
      "Example: draftsmith train --config configs/recipes/smollm2-135m-dflash.yaml --set data.store=features --set "
      "output.run=runs/first");
  command->add_option("--config", options->config, "recipe (YAML)")->required();
  command->add_option("--set", options->set, "section.key=value, wins over the recipe; may be given several times")
      ->take_all();
  command->add_flag(
      "--dry-run", options->dry_run,
      "print the resolved configuration and every tensor; needs the target's config.json and nothing else");
  command->add_option("--json", options->json, "write the summary as JSON to this file");
  add_device_options(*command, options->device);
  command->callback([options] {
    if (!options->json.empty()) check_output(options->json, {options->config}, "--json");
    options->dry_run ? show(*options) : train(*options);
  });
}

}  // namespace draftsmith
