// A drafter trained on the very answers it will be asked for, so that whole blocks are accepted: what a runtime accepts
// of it shows whether the runtime computes what was trained. Plain Adam over cross entropy, written here so that
// nothing of train/ is needed.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "models/decoding/decode.h"
#include "tests/export/tiny_model.h"

namespace draftsmith::testing {

// Prompt and greedy answer as a training sample with the target's taps.
inline DraftSample answered_sample(const Target& target, const std::vector<int64_t>& prompt,
                                   const std::vector<int64_t>& taps, int64_t new_tokens) {
  DecodeOptions options;
  options.max_new_tokens = new_tokens;
  options.stop = target.config().eos_token_ids;
  std::vector<int64_t> tokens = prompt;
  for (int64_t token : decode(target, nullptr, prompt, options).tokens) tokens.push_back(token);
  const at::NoGradGuard no_grad;
  DraftSample sample;
  sample.tokens = at::tensor(tokens, at::kLong);
  sample.loss_mask = at::ones({sample.tokens.size(0)}, at::kByte);
  sample.loss_mask.slice(0, 0, static_cast<int64_t>(prompt.size())).zero_();
  KvCache cache = target.make_cache(1, sample.tokens.size(0));
  TargetInput input;
  input.tokens = sample.tokens.unsqueeze(0);
  input.taps = taps;
  sample.taps = target.forward(input, cache).taps[0].clone();
  const auto first = static_cast<int64_t>(prompt.size());
  sample.anchors = at::arange(first, sample.tokens.size(0) - 1, at::kLong);
  return sample;
}

// Returns the share of supervised slots whose arg max is right after the last step.
inline double overfit(const Drafter& drafter, const std::vector<DraftSample>& samples, int64_t steps,
                      double rate = 3e-3) {
  std::vector<at::Tensor> weights, first, second;
  for (const auto& [name, tensor] : drafter.parameters()) {
    weights.push_back(tensor);
    weights.back().requires_grad_(true);
    first.push_back(at::zeros_like(tensor));
    second.push_back(at::zeros_like(tensor));
  }
  double right = 0, total = 0;
  for (int64_t step = 1; step <= steps; ++step) {
    at::Tensor loss = at::zeros({});
    right = total = 0;
    for (const DraftSample& sample : samples) {
      const DraftSlots slots = drafter.slots(sample);
      const at::Tensor logits = at::linear(slots.hidden, drafter.head());
      const at::Tensor labels = sample.tokens.index_select(0, slots.position);
      loss = loss + at::cross_entropy_loss(logits, labels);
      right += logits.argmax(-1).eq(labels).sum().item<double>();
      total += static_cast<double>(labels.numel());
    }
    const auto gradients = torch::autograd::grad({loss}, weights);
    const at::NoGradGuard no_grad;
    const double scale =
        rate * std::min(1.0, static_cast<double>(steps - step + 1) / (0.3 * static_cast<double>(steps)));
    for (size_t i = 0; i < weights.size(); ++i) {
      first[i].mul_(0.9).add_(gradients[i], 0.1);
      second[i].mul_(0.99).addcmul_(gradients[i], gradients[i], 0.01);
      const at::Tensor mean = first[i] / (1 - std::pow(0.9, step)), square = second[i] / (1 - std::pow(0.99, step));
      weights[i].sub_(scale * mean / (square.sqrt() + 1e-8));
    }
  }
  for (at::Tensor& weight : weights) weight.requires_grad_(false);
  return right / total;
}

}  // namespace draftsmith::testing
