#include "train/objective.h"

#include <cmath>

#include "launch/check.h"
#include "train/linear_cross_entropy.h"

namespace draftsmith {

namespace {

std::vector<int64_t> to_vector(const at::Tensor& tensor) {
  const at::Tensor cpu = tensor.to(at::kCPU, at::kLong).contiguous();
  return {cpu.const_data_ptr<int64_t>(), cpu.const_data_ptr<int64_t>() + cpu.numel()};
}

double denominator(const ObjectiveSection& objective, double weights, int64_t known, int64_t samples) {
  if (objective.normalize == "weights") return weights;
  if (objective.normalize == "count") return static_cast<double>(known);
  return static_cast<double>(samples);
}

}  // namespace

ObjectiveSection objective_at(const ObjectiveSection& objective, double epochs, double part) {
  ObjectiveSection now = objective;
  now.gamma += objective.gamma_per_epoch * std::floor(epochs);
  if (objective.gamma_end > 0) now.gamma += (objective.gamma_end - objective.gamma) * part;
  return now;
}

double decay_weight(int64_t slot, double gamma) {
  return gamma > 0 ? std::exp(-static_cast<double>(slot - 1) / gamma) : 1.0;
}

std::vector<double> dpace_weights(const std::vector<int64_t>& block, const std::vector<double>& loss,
                                  const std::vector<uint8_t>& known, double alpha) {
  std::vector<double> weights(block.size(), 0.0);
  for (size_t begin = 0; begin < block.size();) {
    size_t end = begin;
    double reach = 1;  // probability (softened) that slots up to here are all accepted
    for (; end < block.size() && block[end] == block[begin]; ++end) {
      const double q = known[end] ? std::exp(-loss[end]) : 0.0;
      reach *= (1 - alpha) * q + alpha;
      weights[end] = known[end] ? reach : 0.0;
    }
    for (size_t i = end - 1; i > begin; --i) weights[i - 1] += weights[i];
    for (size_t i = begin; i < end; ++i)
      if (!known[i]) weights[i] = 0;
    begin = end;
  }
  return weights;
}

at::Tensor position_labels(const ObjectiveSection& objective, const at::Tensor& tokens, const at::Tensor& loss_mask,
                           const at::Tensor& last, const at::Tensor& head) {
  if (objective.labels == "data") return tokens;
  DS_CHECK(last.defined(),
           "objective.labels: teacher needs the target's last state, which the store does not hold\n       capture it "
           "again with the last state:  draftsmith capture --last");
  at::Tensor labels = tokens.clone();
  const at::Tensor scored =
      loss_mask.to(at::kBool).narrow(0, 1, tokens.size(0) - 1).nonzero().squeeze(1);  // position - 1
  labels.index_copy_(0, scored + 1,
                     linear_argmax(last.index_select(0, scored).to(head.scalar_type()), head, objective.chunk_bytes));
  return labels;
}

ObjectiveTerms objective_terms(const ObjectiveSection& objective, const Drafter& drafter, const DraftSlots& slots,
                               const at::Tensor& labels, int64_t samples) {
  at::Tensor wanted = labels.index_select(0, slots.position);
  const DraftVocabulary& vocabulary = drafter.vocabulary();
  if (vocabulary.from_target.defined()) wanted = vocabulary.from_target.index_select(0, wanted);
  const SlotLosses losses = linear_cross_entropy(slots.hidden, drafter.head(), wanted, objective.chunk_bytes);

  ObjectiveTerms terms;
  terms.scored.block = to_vector(slots.block);
  terms.scored.slot = to_vector(slots.slot);
  terms.slots = slots.hidden.size(0);
  terms.slot_count.assign(static_cast<size_t>(drafter.config().block - 1), 0);
  terms.slot_correct = terms.slot_count;
  const std::vector<int64_t> ids = to_vector(wanted), predicted = to_vector(losses.predicted);
  std::vector<uint8_t> known;
  for (size_t i = 0; i < ids.size(); ++i) {
    const size_t k = static_cast<size_t>(terms.scored.slot[i] - 1);
    known.push_back(ids[i] >= 0);
    terms.scored.correct.push_back(known[i] && ids[i] == predicted[i]);
    terms.unknown_labels += !known[i];
    terms.slot_count[k] += 1;
    terms.slot_correct[k] += terms.scored.correct[i];
  }

  std::vector<double> weights;
  if (objective.weighting == "dpace") {
    const at::Tensor values = losses.loss.detach().to(at::kCPU, at::kDouble).contiguous();
    weights = dpace_weights(terms.scored.block,
                            {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()}, known,
                            objective.alpha);
  } else {
    for (size_t i = 0; i < ids.size(); ++i)
      weights.push_back(known[i] ? decay_weight(terms.scored.slot[i], objective.gamma) : 0.0);
  }
  double total = 0;
  for (const double weight : weights) total += weight;
  terms.denominator = denominator(objective, total, terms.slots - terms.unknown_labels, samples);
  terms.numerator = at::dot(losses.loss, at::tensor(weights, at::kDouble).to(losses.loss.options()));
  terms.value = terms.numerator.item<double>();
  return terms;
}

}  // namespace draftsmith
