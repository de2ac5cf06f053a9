#include "train/trainer.h"

#include <cmath>

#include "launch/check.h"
#include "launch/log.h"
#include "launch/progress.h"
#include "launch/summary.h"
#include "models/parts/library_product.h"
#include "train/schedule.h"

namespace draftsmith {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr int64_t kValidationRows = 8;  // rows whose features are in memory at once

std::string library_name() {
  return product_library() == ProductLibrary::kOpenBlas ? "OpenBLAS" : "ATen";
}

}  // namespace

double TrainFigures::slot_accuracy(size_t index) const {
  return slot_count[index] > 0 ? static_cast<double>(slot_correct[index]) / static_cast<double>(slot_count[index]) : 0;
}

void TrainFigures::add(const ObjectiveTerms& terms) {
  numerator += terms.value;
  denominator += terms.denominator;
  slots += terms.slots;
  unknown_labels += terms.unknown_labels;
  slot_count.resize(terms.slot_count.size(), 0);
  slot_correct.resize(terms.slot_count.size(), 0);
  for (size_t k = 0; k < terms.slot_count.size(); ++k) {
    slot_count[k] += terms.slot_count[k];
    slot_correct[k] += terms.slot_correct[k];
  }
}

Trainer::Trainer(TrainingSetup& setup, RunFolder& run)
    : setup_(setup),
      run_(run),
      optimizer_(setup.config.optimizer, setup.drafter->parameters(), setup.input_scales,
                 setup.drafter->plain_parameters()) {
  const ScheduleSection& schedule = setup.config.schedule;
  const double samples = schedule.epochs * static_cast<double>(setup.samples->training().size());
  total_steps_ =
      std::max<int64_t>(1, static_cast<int64_t>(std::ceil(samples / static_cast<double>(schedule.samples_per_step))));
  if (schedule.max_steps > 0) total_steps_ = std::min(total_steps_, schedule.max_steps);
  if (!run_.newest().empty()) {
    state_ = run_.resume(*setup_.drafter, setup_.identity, optimizer_);
    saved_step_ = state_.step;
    use_product_library(state_.library == "ATen" ? ProductLibrary::kAten : ProductLibrary::kOpenBlas);
    say("resume", "{} at step {} of {}", run_.newest(), state_.step, total_steps_);
  }
  state_.library = library_name();
}

// The run: steps, and every so often a validation and a checkpoint.
TrainFigures Trainer::run() {
  const auto due = [&](int64_t every) { return every > 0 && state_.step % every == 0; };
  Progress progress("train", total_steps_, "steps", state_.step);
  TrainFigures validated;
  int64_t validated_step = -1;
  while (!finished()) {
    const TrainFigures figures = step();
    progress.advance(1, progress_line(figures));
    if (due(setup_.config.evaluate.every_steps)) {
      record_validation(validated = validate());
      validated_step = state_.step;
    }
    if (due(setup_.config.checkpoint.every_steps)) checkpoint();
  }
  progress.finish();
  if (validated_step != state_.step) record_validation(validated = validate());
  checkpoint();
  return validated;
}

TrainFigures Trainer::step() {
  TrainFigures figures;
  const auto start = Clock::now();

  // 1. the samples of this step, packed
  const int64_t count = setup_.config.schedule.samples_per_step;
  const auto passes = setup_.samples->training_passes(state_.samples, count);
  figures.data_seconds = seconds_since(start);

  // 2. forward and backward, gradients summed over the passes
  for (const PackedSamples& pass : passes) learn(pass, figures);

  // 3. one update; the gradient is that of the loss over the whole step
  const double rate_share = learning_rate_share(setup_.config.schedule, progress(), static_cast<double>(total_steps_));
  check_finite("loss", figures.numerator + figures.denominator);
  if (figures.denominator > 0) {
    figures.gradient_norm = optimizer_.finish_gradients(figures.denominator);
    check_finite("gradient's norm", figures.gradient_norm);
    optimizer_.step(rate_share);
  }

  // 4. what happened
  state_.step += 1;
  state_.samples += count;
  figures.compute_seconds = seconds_since(start) - figures.data_seconds;
  state_.seconds += figures.data_seconds + figures.compute_seconds;
  record(figures, rate_share);
  watch(figures);
  return figures;
}

void Trainer::learn(const PackedSamples& pass, TrainFigures& figures) const {
  const DraftSlots slots = setup_.drafter->slots(pass.sample);
  const int64_t blocks = pass.sample.anchors.numel();
  figures.samples += static_cast<int64_t>(pass.rows.size());
  figures.tokens += pass.sample.tokens.numel();
  figures.anchors += blocks;
  const ObjectiveSection now = objective();
  const at::Tensor labels =
      position_labels(now, pass.sample.tokens, pass.sample.loss_mask, pass.last, setup_.ends.head);
  const ObjectiveTerms terms =
      objective_terms(now, *setup_.drafter, slots, labels, static_cast<int64_t>(pass.rows.size()));
  figures.add(terms);
  for (const int64_t accepted : accepted_lengths(terms.scored, blocks)) figures.accepted += accepted;
  if (terms.denominator > 0 && at::GradMode::is_enabled()) terms.numerator.backward();
}

TrainFigures Trainer::validate() const {
  const at::NoGradGuard no_grad;
  TrainFigures figures;
  // As at the end of the run, so that validations can be compared while gamma grows.
  const ObjectiveSection last = objective_at(setup_.config.objective, std::ceil(setup_.config.schedule.epochs) - 1, 1);
  const int64_t rows =
      std::min<int64_t>(setup_.config.evaluate.rows, static_cast<int64_t>(setup_.samples->validation().size()));
  for (int64_t begin = 0; begin < rows; begin += kValidationRows) {
    for (const PackedSamples& pass :
         setup_.samples->validation_passes(begin, std::min(rows, begin + kValidationRows))) {
      const at::Tensor labels =
          position_labels(last, pass.sample.tokens, pass.sample.loss_mask, pass.last, setup_.ends.head);
      const int64_t samples = static_cast<int64_t>(pass.rows.size());
      const ObjectiveTerms terms =
          objective_terms(last, *setup_.drafter, setup_.drafter->slots(pass.sample), labels, samples);
      figures.add(terms);
      figures.samples += samples;
      figures.tokens += pass.sample.tokens.numel();
      figures.anchors += pass.sample.anchors.numel();
      const auto accepted = accepted_lengths(terms.scored, pass.sample.anchors.numel());
      for (const int64_t length : accepted) figures.accepted += length;
      for (size_t i = 0; i < pass.rows.size(); ++i) {
        const int64_t start = pass.sample.starts[i],
                      end = i + 1 < pass.rows.size() ? pass.sample.starts[i + 1] : pass.sample.tokens.numel();
        const int64_t first = pass.block_begin[i], blocks = pass.block_begin[i + 1] - first;
        const at::Tensor positions = (pass.sample.anchors.narrow(0, first, blocks) - start).contiguous();
        const int64_t* position = positions.const_data_ptr<int64_t>();
        const Rounds rounds =
            simulate_rounds(pass.sample.loss_mask.narrow(0, start, end - start), {position, position + blocks},
                            {accepted.begin() + first, accepted.begin() + first + blocks});
        figures.rounds.rounds += rounds.rounds;
        figures.rounds.tokens += rounds.tokens;
      }
    }
  }
  return figures;
}

bool Trainer::finished() const {
  const double budget = 60 * setup_.config.schedule.max_minutes;
  return state_.step >= total_steps_ || (budget > 0 && state_.seconds >= budget);
}

// Steps done; of a run that is limited by time, the share of the time in steps where that is more.
double Trainer::progress() const {
  const double budget = 60 * setup_.config.schedule.max_minutes;
  const double by_time = budget > 0 ? state_.seconds / budget * static_cast<double>(total_steps_) : 0;
  return std::max(static_cast<double>(state_.step), by_time);
}

ObjectiveSection Trainer::objective() const {
  return objective_at(setup_.config.objective,
                      static_cast<double>(state_.samples) / static_cast<double>(setup_.samples->training().size()),
                      progress() / static_cast<double>(total_steps_));
}

namespace {

void put_figures(nlohmann::ordered_json& line, const TrainFigures& figures) {
  line["loss"] = figures.loss();
  std::vector<double> accuracy;
  for (size_t k = 0; k < figures.slot_count.size(); ++k) accuracy.push_back(figures.slot_accuracy(k));
  line["slot_accuracy"] = accuracy;
  line["expected_tau"] = figures.expected_tau();
  line["samples"] = figures.samples;
  line["tokens"] = figures.tokens;
  line["anchors"] = figures.anchors;
  line["slots"] = figures.slots;
  line["unknown_labels"] = figures.unknown_labels;
}

}  // namespace

void Trainer::record(const TrainFigures& figures, double rate_share) {
  nlohmann::ordered_json line;
  line["step"] = state_.step;
  line["epoch"] = static_cast<double>(state_.samples) / static_cast<double>(setup_.samples->training().size());
  put_figures(line, figures);
  line["rate"] = rate_share;
  line["gradient_norm"] = figures.gradient_norm;
  const double seconds = figures.data_seconds + figures.compute_seconds;
  auto& time = line["time"];
  time["seconds"] = seconds;
  time["total_seconds"] = state_.seconds;
  time["samples_per_second"] = static_cast<double>(figures.samples) / seconds;
  time["tokens_per_second"] = static_cast<double>(figures.tokens) / seconds;
  time["data_share"] = figures.data_seconds / seconds;
  time["compute_share"] = figures.compute_seconds / seconds;
  time["peak_memory_bytes"] = peak_memory();
  run_.metric(line);
}

void Trainer::record_validation(const TrainFigures& figures) {
  if (figures.anchors == 0) return;
  nlohmann::ordered_json line;
  line["step"] = state_.step;
  line["validation"] = true;
  put_figures(line, figures);
  line["tau"] = figures.tau();
  run_.metric(line);
  std::string accuracy;
  for (size_t k = 0; k < figures.slot_count.size() && k < 8; ++k)
    accuracy += fmt::format(" {:.2f}", figures.slot_accuracy(k));
  say("valid", "step {}  loss {:.3f}  tau {:.3f} by teacher forcing  slots{}", state_.step, figures.loss(),
      figures.tau(), accuracy);
}

// Values that cannot be right, told while little time is lost.
void Trainer::watch(const TrainFigures& figures) {
  if (figures.denominator <= 0 && !warned_empty_) {
    warned_empty_ = true;
    run_.warning(fmt::format("step {}: no supervised slot with a known label in {} samples; this step changed nothing",
                             state_.step, figures.samples));
  }
  if (state_.step != 1) return;
  const double at_chance = std::log(static_cast<double>(setup_.drafter->head().size(0)));
  const ObjectiveSection& objective = setup_.config.objective;
  if (objective.normalize == "weights" && figures.loss() > 3 * at_chance)
    run_.warning(
        fmt::format("the first loss is {:.1f}, far above ln V = {:.1f} of a drafter that knows nothing: the start is "
                    "badly scaled; try a smaller drafter.init_norm "
                    "(now {}){}",
                    figures.loss(), at_chance, setup_.config.drafter.init_norm,
                    setup_.config.drafter.unit_taps ? "" : " and drafter.unit_taps: true"));
  if (figures.slots > 20 && figures.slot_count[0] > 0 && figures.slot_accuracy(0) > 0.95)
    run_.warning(
        fmt::format("slot 1 is right in {:.0f} % of the blocks before any training: the labels leak into the input, or "
                    "the data is trivial",
                    100 * figures.slot_accuracy(0)));
  if (figures.slots > 0 && static_cast<double>(figures.unknown_labels) > 0.02 * static_cast<double>(figures.slots))
    run_.warning(fmt::format(
        "{:.1f} % of the labels are outside the draft vocabulary and can never be drafted; raise drafter.vocabulary",
        100.0 * static_cast<double>(figures.unknown_labels) / static_cast<double>(figures.slots)));
}

void Trainer::check_finite(const char* what, double value) const {
  DS_CHECK(
      std::isfinite(value),
      "step {}: the {} is {}, not finite\n       {}; lower optimizer.lr (now {}) or set optimizer.clip (now {}), and "
      "train anew in another output.run",
      state_.step + 1, what, value,
      run_.newest().empty() ? "no checkpoint was written yet" : run_.newest() + " is the last good checkpoint",
      setup_.config.optimizer.lr, setup_.config.optimizer.clip);
}

void Trainer::checkpoint() {
  if (saved_step_ == state_.step) return;
  run_.save(state_, *setup_.drafter, setup_.identity, optimizer_, setup_.config.checkpoint.keep);
  run_.event("checkpoint", {{"step", state_.step}});
  saved_step_ = state_.step;
}

std::string Trainer::progress_line(const TrainFigures& figures) const {
  const double seconds = figures.data_seconds + figures.compute_seconds;
  return fmt::format(
      "loss {:.2f}  tau~ {:.2f}  slot1 {:.2f}  |  {:.1f} samples/s  data {:.0f} % compute {:.0f} %  |  {}",
      figures.loss(), figures.expected_tau(), figures.slot_count.empty() ? 0.0 : figures.slot_accuracy(0),
      static_cast<double>(figures.samples) / seconds, 100 * figures.data_seconds / seconds,
      100 * figures.compute_seconds / seconds, short_bytes(static_cast<double>(peak_memory())));
}

}  // namespace draftsmith
