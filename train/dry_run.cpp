#include "train/dry_run.h"

#include <fmt/ranges.h>

#include "export/format.h"
#include "launch/log.h"
#include "launch/summary.h"

namespace draftsmith {

DryRun dry_run(const TrainConfig& config) {
  DryRun run;
  run.config = config;
  const HfConfig target = read_hf_config(config.target.folder);
  DrafterConfig& drafter = run.config.drafter;
  drafter = resolve_drafter(drafter, target);
  if (!config.output.export_for.empty()) format(config.output.export_for).check(drafter, target, FloatType::kFloat32);

  DrafterConfig stand_in = drafter;
  if (stand_in.mask_token < 0) stand_in.mask_token = target.vocab_size - 1;  // the data decides
  const at::Tensor table = at::empty({target.vocab_size, target.hidden_size}, at::TensorOptions(at::kMeta));
  // A reduced vocabulary takes rows of the target's head: no parameters of the drafter.
  run.tensors = make_drafter(stand_in, target, {table, table}, {}, 0)->parameters();
  for (const auto& [name, tensor] : run.tensors) run.parameters += tensor.numel();
  return run;
}

void describe_dry_run(const DryRun& run) {
  say("config", "resolved:\n{}", to_yaml(run.config));
  for (const auto& [name, tensor] : run.tensors) say("tensor", "{}  [{}]", name, fmt::join(tensor.sizes(), ", "));
  say("drafter", "{} tensors, {} trainable parameters", run.tensors.size(), with_commas(run.parameters));
}

}  // namespace draftsmith
