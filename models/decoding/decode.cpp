#include "models/decoding/decode.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>

#include "data/sampler.h"
#include "launch/check.h"

namespace draftsmith {

namespace {

class Stopwatch {
 public:
  // Seconds since the last call (or the start).
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return seconds;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

class DrafterProposer : public Proposer {
 public:
  explicit DrafterProposer(const Drafter& drafter) : drafter_(drafter) {}
  std::vector<int64_t> taps() const override { return drafter_.config().taps; }
  int64_t depth() const override { return drafter_.config().block - 1; }
  const DraftVocabulary& vocabulary() const override { return drafter_.vocabulary(); }
  void start() override { state_ = drafter_.start(); }
  void observe(const std::vector<int64_t>& tokens, const at::Tensor& taps) override {
    DS_CHECK(taps.defined() && taps.size(0) == static_cast<int64_t>(tokens.size()),
             "{} committed tokens came with features of {}", tokens.size(), taps.defined() ? taps.size(0) : 0);
    drafter_.append(*state_, taps);
  }
  Proposal propose(int64_t anchor, int64_t tokens, const SamplingOptions& sampling, uint64_t seed) override {
    ProposeOptions options;
    options.tokens = tokens;
    options.temperature = sampling.temperature;
    options.seed = seed;
    return drafter_.propose(*state_, anchor, options);
  }

 private:
  const Drafter& drafter_;
  std::unique_ptr<DraftState> state_;
};

at::Tensor token_row(const std::vector<int64_t>& tokens, at::Device device) {
  return at::tensor(tokens, at::kLong).unsqueeze(0).to(device);
}

// Runs `tokens` behind the cache; the logits of its last `rows` positions, [rows, V], and the taps of all, [n, T, H].
struct Step {
  at::Tensor logits, taps;
};
Step run_target(const Target& target, KvCache& cache, const std::vector<int64_t>& tokens,
                const std::vector<int64_t>& taps, int64_t rows) {
  TargetInput input;
  input.tokens = token_row(tokens, target.options().device);
  input.taps = taps;
  const TargetOutput output = target.forward(input, cache);
  Step step;
  step.logits = target.logits(output.hidden[0].slice(0, -rows));
  if (output.taps.defined()) step.taps = output.taps[0];
  return step;
}

class Decoder {
 public:
  Decoder(const Target& target, Proposer* proposer, const DecodeOptions& options, bool want_gaps)
      : target_(target), proposer_(proposer), options_(options), want_gaps_(want_gaps) {
    if (proposer_ != nullptr) taps_ = proposer_->taps();
    // A matching rule accepts most when the draft is the drafter's best guess; the speculative one needs a sample.
    if (options_.rule == VerifyRule::kSpeculative) draft_sampling_ = options_.sampling;
  }

  DecodeResult run(const std::vector<int64_t>& prompt) {
    Stopwatch whole;
    const auto length = static_cast<int64_t>(prompt.size());
    limit_ = new_token_limit(target_.config(), length, options_.max_new_tokens);
    KvCache cache = target_.make_cache(1, length + std::min<int64_t>(limit_, 1024));
    prefill(cache, prompt);
    while (!result_.stopped && generated() < limit_) round(cache);
    result_.seconds = whole.lap();
    return std::move(result_);
  }

 private:
  int64_t generated() const { return static_cast<int64_t>(result_.tokens.size()); }

  void prefill(KvCache& cache, const std::vector<int64_t>& prompt) {
    Stopwatch watch;
    const Step step = run_target(target_, cache, prompt, taps_, 1);
    commit(step.logits, {}, verify(step.logits, {}));
    if (proposer_ != nullptr && !done()) {
      proposer_->start();
      proposer_->observe(prompt, step.taps);
    }
    result_.seconds_prefill = watch.lap();
  }

  // One round: draft, verify in one forward of [anchor, drafted...], commit, crop. The cache then holds every committed
  // token but the last, which is the next anchor.
  void round(KvCache& cache) {
    Stopwatch watch;
    const int64_t anchor = result_.tokens.back();
    const Proposal proposal = propose(anchor);
    result_.seconds_draft += watch.lap();

    std::vector<int64_t> tokens{anchor};
    tokens.insert(tokens.end(), proposal.tokens.begin(), proposal.tokens.end());
    const int64_t before = cache.length(0);
    const Step step = run_target(target_, cache, tokens, taps_, static_cast<int64_t>(tokens.size()));
    const Verified verified = verify(step.logits, proposal);
    const int64_t kept = verified.accepted + 1;  // the anchor and the accepted ones have been run
    cache.truncate(0, before + kept);
    const int64_t committed = commit(step.logits, proposal, verified);
    if (proposer_ != nullptr) {
      result_.proposed.push_back(static_cast<int64_t>(proposal.tokens.size()));
      result_.accepted.push_back(std::min(verified.accepted, committed));
    }
    result_.seconds_verify += watch.lap();

    if (proposer_ == nullptr || done()) return;
    tokens.resize(static_cast<size_t>(kept));
    proposer_->observe(tokens, step.taps.defined() ? step.taps.slice(0, 0, kept) : at::Tensor());
    result_.seconds_draft += watch.lap();
  }

  bool done() const { return result_.stopped || generated() >= limit_; }

  Proposal propose(int64_t anchor) {
    // The round commits one token more than it accepts, so no more than this can be used.
    const int64_t most = proposer_ == nullptr ? 0 : std::min(proposer_->depth(), limit_ - generated() - 1);
    if (most <= 0) return {};
    Proposal proposal = proposer_->propose(anchor, most, draft_sampling_,
                                           derive_seed(options_.seed, "draft", static_cast<uint64_t>(generated())));
    DS_CHECK(static_cast<int64_t>(proposal.tokens.size()) <= most, "{} tokens were proposed where {} were asked for",
             proposal.tokens.size(), most);
    return proposal;
  }

  Verified verify(const at::Tensor& logits, const Proposal& proposal) const {
    static const DraftVocabulary full;
    const auto index = static_cast<uint64_t>(generated());
    if (options_.rule == VerifyRule::kTargetMatch || options_.sampling.temperature == 0) {
      return verify_match(logits, proposal, options_.sampling, options_.seed, index);
    }
    return verify_speculative(logits, proposal, proposer_ != nullptr ? proposer_->vocabulary() : full,
                              options_.sampling, options_.seed, index);
  }

  // Takes the accepted tokens and the one after them, up to a stop token; returns how many it took.
  int64_t commit(const at::Tensor& logits, const Proposal& proposal, const Verified& verified) {
    int64_t count = 0;
    while (count <= verified.accepted && !result_.stopped) {
      const int64_t token = count < verified.accepted ? proposal.tokens[static_cast<size_t>(count)] : verified.next;
      result_.tokens.push_back(token);
      result_.stopped = std::find(options_.stop.begin(), options_.stop.end(), token) != options_.stop.end();
      ++count;
    }
    if (want_gaps_) {
      const at::Tensor top = std::get<0>(logits.slice(0, 0, count).topk(2, -1)).to(at::kCPU);
      for (int64_t i = 0; i < count; ++i) result_.gaps.push_back((top[i][0] - top[i][1]).item<float>());
    }
    return count;
  }

  const Target& target_;
  Proposer* proposer_;
  const DecodeOptions& options_;
  const bool want_gaps_;
  std::vector<int64_t> taps_;
  SamplingOptions draft_sampling_;  // greedy unless the rule needs a sample
  int64_t limit_ = 0;
  DecodeResult result_;
};

}  // namespace

const DraftVocabulary& Proposer::vocabulary() const {
  static const DraftVocabulary full;
  return full;
}

std::unique_ptr<Proposer> make_proposer(const Drafter& drafter) {
  return std::make_unique<DrafterProposer>(drafter);
}

int64_t new_token_limit(const HfConfig& config, int64_t prompt_tokens, int64_t max_new_tokens) {
  DS_CHECK(prompt_tokens > 0, "the prompt is empty: there is no token to decode from");
  DS_CHECK(max_new_tokens > 0, "max new tokens is {}; it must be at least 1", max_new_tokens);
  const int64_t positions = config.max_position_embeddings;
  DS_CHECK(positions == 0 || prompt_tokens < positions,
           "the prompt has {} tokens and the model {} positions: nothing can follow it; shorten the prompt",
           prompt_tokens, positions);
  return positions == 0 ? max_new_tokens : std::min(max_new_tokens, positions - prompt_tokens);
}

DecodeResult decode(const Target& target, Proposer* proposer, const std::vector<int64_t>& prompt,
                    const DecodeOptions& options, bool want_gaps) {
  const at::NoGradGuard no_grad;
  return Decoder(target, proposer, options, want_gaps).run(prompt);
}

}  // namespace draftsmith
