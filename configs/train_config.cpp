#include "configs/train_config.h"

#include "launch/check.h"

namespace draftsmith {

namespace {

constexpr double kHuge = 1e30;

void describe_drafter(ConfigVisitor& visitor, DrafterConfig& drafter) {
  visitor.section("drafter");
  visitor.field("kind", drafter.kind, {});
  visitor.field("layers", drafter.layers, 1, 64);
  visitor.field("block", drafter.block, 2, 128);
  visitor.field("taps", drafter.taps);
  visitor.field("mask_token", drafter.mask_token, -1);
  visitor.field("intermediate_size", drafter.intermediate_size, 0);
  visitor.field("num_attention_heads", drafter.num_attention_heads, 0);
  visitor.field("num_key_value_heads", drafter.num_key_value_heads, 0);
  visitor.field("head_dim", drafter.head_dim, 0);
  visitor.field("vocabulary", drafter.vocabulary, 0);
  visitor.field("initializer_range", drafter.initializer_range, 0.0, 10.0);
  visitor.field("init", drafter.init, {"random", "target"});
  visitor.field("init_norm", drafter.init_norm, 1e-6, 1e3);
  visitor.field("init_qk_norm", drafter.init_qk_norm, 1e-6, 1e3);
  visitor.field("fusion_init", drafter.fusion_init, {"", "angelslim", "angelspec"});
  visitor.field("unit_taps", drafter.unit_taps);
}

// A key that nothing reads under the other keys' values must stay at its default: who sets it expects an effect.
void refuse_unused(const TrainConfig& config) {
  static const TrainConfig plain;
  const auto unless = [](bool used, const char* key, double value, double standard, const std::string& reason) {
    DS_CHECK(used || value == standard, "{}: {} has no effect with {}; leave it out, or change that", key, value,
             reason);
  };
  const ObjectiveSection& objective = config.objective;
  const std::string weighting = "objective.weighting: " + objective.weighting;
  const bool decay = objective.weighting == "decay";
  unless(decay, "objective.gamma", objective.gamma, plain.objective.gamma, weighting);
  unless(decay && objective.gamma > 0, "objective.gamma_per_epoch", objective.gamma_per_epoch, 0,
         decay ? "objective.gamma: 0" : weighting);
  unless(decay && objective.gamma > 0, "objective.gamma_end", objective.gamma_end, 0,
         decay ? "objective.gamma: 0" : weighting);
  unless(!decay, "objective.alpha", objective.alpha, plain.objective.alpha, weighting);

  const OptimizerSection& optimizer = config.optimizer;
  const std::string kind = "optimizer.kind: " + optimizer.kind;
  const bool muon = optimizer.kind == "muon";
  unless(muon, "optimizer.muon_lr", optimizer.muon_lr, plain.optimizer.muon_lr, kind);
  unless(muon, "optimizer.muon_momentum", optimizer.muon_momentum, plain.optimizer.muon_momentum, kind);
  unless(muon, "optimizer.muon_iterations", static_cast<double>(optimizer.muon_iterations),
         static_cast<double>(plain.optimizer.muon_iterations), kind);

  const ScheduleSection& schedule = config.schedule;
  const std::string shape = "schedule.kind: " + schedule.kind;
  unless(schedule.kind == "wsd", "schedule.decay", schedule.decay, plain.schedule.decay, shape);
  unless(schedule.kind != "constant", "schedule.floor", schedule.floor, plain.schedule.floor, shape);
}

}  // namespace

void describe(ConfigVisitor& visitor, TrainConfig& config) {
  visitor.section("target");
  visitor.field("folder", config.target.folder, {});

  describe_drafter(visitor, config.drafter);

  visitor.section("data");
  visitor.field("store", config.data.store, {});
  visitor.field("validation_fraction", config.data.validation_fraction, 0.0, 0.9);
  visitor.field("anchors", config.data.anchors, 0);

  visitor.section("objective");
  visitor.field("labels", config.objective.labels, {"data", "teacher"});
  visitor.field("weighting", config.objective.weighting, {"decay", "dpace"});
  visitor.field("gamma", config.objective.gamma, 0.0, kHuge);
  visitor.field("gamma_per_epoch", config.objective.gamma_per_epoch, 0.0, kHuge);
  visitor.field("gamma_end", config.objective.gamma_end, 0.0, kHuge);
  visitor.field("alpha", config.objective.alpha, 0.0, 1.0);
  visitor.field("normalize", config.objective.normalize, {"weights", "count", "samples"});
  visitor.field("chunk_bytes", config.objective.chunk_bytes, int64_t{1} << 16, int64_t{1} << 36);

  visitor.section("optimizer");
  visitor.field("kind", config.optimizer.kind, {"adamw", "muon"});
  visitor.field("lr", config.optimizer.lr, 0.0, 10.0);
  visitor.field("beta1", config.optimizer.beta1, 0.0, 0.999999);
  visitor.field("beta2", config.optimizer.beta2, 0.0, 0.999999);
  visitor.field("eps", config.optimizer.eps, 1e-15, 1.0);
  visitor.field("weight_decay", config.optimizer.weight_decay, 0.0, 10.0);
  visitor.field("clip", config.optimizer.clip, 0.0, kHuge);
  visitor.field("muon_lr", config.optimizer.muon_lr, 0.0, 10.0);
  visitor.field("muon_momentum", config.optimizer.muon_momentum, 0.0, 0.9999);
  visitor.field("muon_iterations", config.optimizer.muon_iterations, 1, 20);

  visitor.section("schedule");
  visitor.field("kind", config.schedule.kind, {"cosine", "wsd", "linear", "constant"});
  visitor.field("warmup", config.schedule.warmup, 0.0, 0.9);
  visitor.field("decay", config.schedule.decay, 0.0, 1.0);
  visitor.field("floor", config.schedule.floor, 0.0, 1.0);
  visitor.field("epochs", config.schedule.epochs, 1e-6, 1e6);
  visitor.field("max_steps", config.schedule.max_steps, 0);
  visitor.field("max_minutes", config.schedule.max_minutes, 0.0, 1e6);
  visitor.field("samples_per_step", config.schedule.samples_per_step, 1, 1 << 20);
  visitor.field("rows_per_pass", config.schedule.rows_per_pass, 1, 1 << 24);
  visitor.field("seed", config.schedule.seed, 0);

  visitor.section("checkpoint");
  visitor.field("every_steps", config.checkpoint.every_steps, 0);
  visitor.field("keep", config.checkpoint.keep, 1, 1 << 20);

  visitor.section("evaluate");
  visitor.field("every_steps", config.evaluate.every_steps, 0);
  visitor.field("rows", config.evaluate.rows, 1);

  visitor.section("output");
  visitor.field("run", config.output.run, {});
  visitor.field("export_for", config.output.export_for, {});
}

TrainConfig read_train_config(ConfigReader& reader, bool folders) {
  TrainConfig config;
  describe(reader, config);
  reader.finish();
  DS_CHECK(!config.target.folder.empty(), "target.folder is not given: the HF folder of the target");
  DS_CHECK(!folders || !config.data.store.empty(),
           "data.store is not given: the feature store that `draftsmith capture` wrote");
  DS_CHECK(!folders || !config.output.run.empty(), "output.run is not given: the folder this run writes to");
  const ObjectiveSection& objective = config.objective;
  DS_CHECK(objective.gamma_per_epoch == 0 || objective.gamma_end == 0,
           "objective.gamma_per_epoch and objective.gamma_end are two ways in which gamma grows: state one");
  refuse_unused(config);
  DS_CHECK(config.schedule.kind != "wsd" || config.schedule.warmup + config.schedule.decay <= 1.0,
           "schedule.warmup {} and schedule.decay {} together exceed the whole run", config.schedule.warmup,
           config.schedule.decay);
  return config;
}

TrainConfig read_train_config(const std::string& file, const std::vector<std::string>& assignments, bool folders) {
  ConfigReader reader(file);
  for (const std::string& assignment : assignments) reader.set(assignment);
  return read_train_config(reader, folders);
}

std::string to_yaml(const TrainConfig& config) {
  TrainConfig copy = config;
  ConfigWriter writer;
  describe(writer, copy);
  return writer.text();
}

}  // namespace draftsmith
