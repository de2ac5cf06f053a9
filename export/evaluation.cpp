#include "export/evaluation.h"

#include <algorithm>
#include <numeric>

#include "data/sampler.h"
#include "launch/check.h"
#include "models/decoding/ngram.h"

namespace draftsmith {

namespace {

// The drafter with shorter blocks: proposes fewer tokens at once.
class ShorterBlocks : public Proposer {
 public:
  ShorterBlocks(std::unique_ptr<Proposer> inner, int64_t depth, std::string name)
      : inner_(std::move(inner)), depth_(depth), name_(std::move(name)) {}
  std::vector<int64_t> taps() const override { return inner_->taps(); }
  int64_t depth() const override { return depth_; }
  const DraftVocabulary& vocabulary() const override { return inner_->vocabulary(); }
  void start() override { inner_->start(); }
  void observe(const std::vector<int64_t>& tokens, const at::Tensor& taps) override { inner_->observe(tokens, taps); }
  Proposal propose(int64_t anchor, int64_t tokens, const SamplingOptions& sampling, uint64_t seed) override {
    try {
      return inner_->propose(anchor, std::min(tokens, depth_), sampling, seed);
    } catch (const Error& error) {
      DS_FAIL("{}: {}", name_, error.what());
    }
  }

 private:
  std::unique_ptr<Proposer> inner_;
  int64_t depth_;
  std::string name_;
};

double ratio(double a, double b) {
  return b > 0 ? a / b : 0;
}

int64_t committed_by_rounds(const DecodeResult& result) {
  return std::max<int64_t>(0, static_cast<int64_t>(result.tokens.size()) - 1);
}

int64_t first_difference(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return x == a.end() && y == b.end() ? -1 : x - a.begin();
}

}  // namespace

EvaluationFigures::EvaluationFigures(int64_t block)
    : offered(static_cast<size_t>(std::max<int64_t>(0, block - 1))),
      taken(offered.size()),
      lengths(static_cast<size_t>(std::max<int64_t>(0, block))) {}

void EvaluationFigures::add(const EvaluationRow& row) {
  ++rows;
  comparable += row.comparable;
  identical += row.comparable && row.divergence < 0;
  plain_tokens += static_cast<int64_t>(row.plain.tokens.size());
  speculative_tokens += static_cast<int64_t>(row.speculative.tokens.size());
  plain_forwards += committed_by_rounds(row.plain);
  plain_seconds += row.plain.seconds;
  speculative_seconds += row.speculative.seconds;
  plain_forward_seconds += row.plain.seconds_verify;
  draft_seconds += row.speculative.seconds_draft;
  verify_seconds += row.speculative.seconds_verify;

  const auto& accepted_lengths = row.speculative.accepted;
  const int64_t own_rounds = static_cast<int64_t>(accepted_lengths.size());
  const int64_t own_committed = committed_by_rounds(row.speculative);
  // A round commits one token more than it accepts, but for one that ends in a drafted stop token.
  const bool drafted_stop =
      row.speculative.stopped &&
      own_committed < std::accumulate(accepted_lengths.begin(), accepted_lengths.end(), own_rounds);
  for (size_t round = 0; round < accepted_lengths.size(); ++round) {
    const size_t got = static_cast<size_t>(accepted_lengths[round]);
    const size_t asked = static_cast<size_t>(row.speculative.proposed[round]);
    accepted += accepted_lengths[round];
    if (asked >= lengths.size()) {
      lengths.resize(asked + 1);
      offered.resize(asked);
      taken.resize(asked);
    }
    ++lengths[got];
    const size_t judged = drafted_stop && round + 1 == accepted_lengths.size() ? got : asked;
    for (size_t slot = 0; slot < judged; ++slot) {
      ++offered[slot];
      taken[slot] += slot < got;
    }
  }
  rounds += own_rounds;
  committed += own_committed;
  if (own_rounds > 0) {
    response_taus += ratio(static_cast<double>(own_committed), static_cast<double>(own_rounds));
    ++responses;
  }
  if (!row.ngram.proposed.empty()) {
    ngram_rounds += static_cast<int64_t>(row.ngram.proposed.size());
    ngram_committed += committed_by_rounds(row.plain);
  }
}

double EvaluationFigures::tau() const {
  return ratio(static_cast<double>(committed), static_cast<double>(rounds));
}

double EvaluationFigures::tau_without_bonus() const {
  return ratio(static_cast<double>(accepted), static_cast<double>(rounds));
}

double EvaluationFigures::tau_mean_over_responses() const {
  return ratio(response_taus, static_cast<double>(responses));
}

double EvaluationFigures::tau_ngram() const {
  return ratio(static_cast<double>(ngram_committed), static_cast<double>(ngram_rounds));
}

double EvaluationFigures::plain_rate() const {
  return ratio(static_cast<double>(plain_tokens), plain_seconds);
}

double EvaluationFigures::speculative_rate() const {
  return ratio(static_cast<double>(speculative_tokens), speculative_seconds);
}

double EvaluationFigures::speedup() const {
  return ratio(speculative_rate(), plain_rate());
}

double EvaluationFigures::break_even_tau() const {
  const double round = ratio(draft_seconds + verify_seconds, static_cast<double>(rounds));
  return ratio(round, ratio(plain_forward_seconds, static_cast<double>(plain_forwards)));
}

nlohmann::ordered_json to_json(const EvaluationFigures& figures, bool with_ngram) {
  nlohmann::ordered_json out;
  const double rounds = static_cast<double>(figures.rounds);
  out["tau"] = figures.tau();
  out["tau_without_bonus"] = figures.tau_without_bonus();
  out["tau_mean_over_responses"] = figures.tau_mean_over_responses();
  out["tau_ngram"] = with_ngram ? nlohmann::ordered_json(figures.tau_ngram()) : nlohmann::ordered_json(nullptr);
  out["break_even_tau"] = figures.break_even_tau();
  std::vector<double> acceptance;
  for (size_t slot = 0; slot < figures.offered.size(); ++slot) {
    acceptance.push_back(ratio(static_cast<double>(figures.taken[slot]), static_cast<double>(figures.offered[slot])));
  }
  out["acceptance_by_position"] = acceptance;
  out["accepted_length_histogram"] = figures.lengths;
  out["speedup"] = figures.speedup();
  out["tokens_per_second_plain"] = figures.plain_rate();
  out["tokens_per_second_speculative"] = figures.speculative_rate();
  out["milliseconds_plain_forward"] =
      1e3 * ratio(figures.plain_forward_seconds, static_cast<double>(figures.plain_forwards));
  out["milliseconds_draft"] = 1e3 * ratio(figures.draft_seconds, rounds);
  out["milliseconds_verification"] = 1e3 * ratio(figures.verify_seconds, rounds);
  out["rounds"] = figures.rounds;
  out["tokens_committed"] = figures.committed;
  out["tokens_generated"] = figures.speculative_tokens;
  out["outputs_total"] = figures.rows;
  out["outputs_identical"] =
      figures.comparable > 0 ? nlohmann::ordered_json(figures.identical) : nlohmann::ordered_json(nullptr);
  return out;
}

bool must_be_identical(const Target& target, const DecodeOptions& options) {
  return target.options().dtype == at::kFloat && options.sampling.temperature == 0;
}

std::vector<EvaluationRow> evaluate(const Target& target, const Drafter& drafter, Proposer* ngram,
                                    const std::vector<EvaluationPrompt>& prompts, const EvaluationOptions& options) {
  const int64_t trained = drafter.config().block;
  const int64_t block = options.block == 0 ? trained : options.block;
  DS_CHECK(!prompts.empty(), "evaluate: there is no prompt");
  DS_CHECK(block >= 2 && block <= trained,
           "evaluate: --block {} is outside 2..{}; the drafter was trained with blocks of {}, which may be shortened "
           "but not lengthened",
           block, trained, trained);
  ShorterBlocks proposer(make_proposer(drafter), block - 1, options.name);

  DecodeOptions warm_up = options.decode;
  warm_up.max_new_tokens = std::min<int64_t>(warm_up.max_new_tokens, 16);
  decode(target, nullptr, prompts.front().tokens, warm_up);
  decode(target, &proposer, prompts.front().tokens, warm_up);

  std::vector<EvaluationRow> rows;
  rows.reserve(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    EvaluationRow row;
    row.prompt = prompts[i];
    DecodeOptions decoding = options.decode;
    decoding.seed = derive_seed(options.decode.seed, "evaluate", i);
    auto plain = [&] { row.plain = decode(target, nullptr, row.prompt.tokens, decoding); };
    auto speculative = [&] { row.speculative = decode(target, &proposer, row.prompt.tokens, decoding); };
    if (i % 2 == 0) {
      plain();
      speculative();
    } else {
      speculative();
      plain();
    }
    row.comparable = decoding.sampling.temperature == 0 || decoding.rule == VerifyRule::kTargetMatch;
    if (row.comparable) row.divergence = first_difference(row.plain.tokens, row.speculative.tokens);
    if (row.divergence >= 0) {
      // The timed run does not look at gaps; the rare row that needs one is decoded again.
      const DecodeResult again = decode(target, nullptr, row.prompt.tokens, decoding, true);
      const size_t at = static_cast<size_t>(row.divergence);
      if (at < again.gaps.size()) row.gap = again.gaps[at];
    }
    if (ngram != nullptr) {
      row.ngram = simulate_rounds(*ngram, row.prompt.tokens, row.plain.tokens, decoding.max_new_tokens);
    }
    if (options.done) options.done(row);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace draftsmith
