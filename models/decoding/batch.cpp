#include "models/decoding/batch.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "launch/check.h"
#include "models/decoding/decode.h"

namespace draftsmith {

namespace {

// A prefix shared by all prompts (the system message, as a rule) is run once when it has at least so many tokens.
constexpr int64_t kShortestPrefix = 8;
// Finished rows are taken out when they are this part of the batch: taking them out copies the whole cache, leaving
// them in costs each step.
constexpr int64_t kDeadPart = 8;

class Group {
 public:
  Group(const Target& target, const std::vector<BatchPrompt>& prompts, const BatchOptions& options)
      : target_(target), prompts_(prompts), options_(options), answers_(prompts.size()), limits_(prompts.size()) {
    int64_t longest = 0;
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto length = static_cast<int64_t>(prompts[i].tokens.size());
      limits_[i] = new_token_limit(target.config(), length, options.max_new_tokens);
      longest = std::max(longest, length);
    }
    rows_.resize(prompts.size());
    std::iota(rows_.begin(), rows_.end(), size_t{0});
    dead_.assign(prompts.size(), false);
    capacity_ = longest + std::min<int64_t>(options.max_new_tokens, 128);
  }

  std::vector<BatchAnswer> run(const std::function<void(int64_t, int64_t)>& progress) {
    KvCache cache = target_.make_cache(static_cast<int64_t>(prompts_.size()), capacity_);
    prefill(cache);
    int64_t made = static_cast<int64_t>(rows_.size()), finished = 0;
    while (true) {
      const auto ended = std::count(dead_.begin(), dead_.end(), true);
      if (progress) progress(made, ended - finished);
      finished = ended;
      if (!compact(cache)) break;
      made = step(cache);
    }
    return std::move(answers_);
  }

 private:
  int64_t common_prefix() const {
    const auto& first = prompts_.front().tokens;
    size_t length = first.size() - 1;
    for (const BatchPrompt& prompt : prompts_) {
      length = std::min(length, prompt.tokens.size() - 1);  // every row keeps a token of its own to run
      size_t same = 0;
      while (same < length && prompt.tokens[same] == first[same]) ++same;
      length = same;
    }
    return prompts_.size() > 1 && static_cast<int64_t>(length) >= kShortestPrefix ? static_cast<int64_t>(length) : 0;
  }

  // Prompts in pieces of similar length, each in a cache of its own that is then taken over: little padding, bounded
  // memory.
  void prefill(KvCache& cache) {
    const int64_t prefix = common_prefix();
    KvCache shared = target_.make_cache(1, std::max<int64_t>(prefix, 1));
    if (prefix > 0) {
      const auto& tokens = prompts_.front().tokens;
      TargetInput input;
      input.tokens = at::tensor(std::vector<int64_t>(tokens.begin(), tokens.begin() + prefix), at::kLong)
                         .unsqueeze(0)
                         .to(target_.options().device);
      target_.forward(input, shared);
    }
    std::vector<size_t> order(rows_);
    std::stable_sort(order.begin(), order.end(),
                     [this](size_t a, size_t b) { return prompts_[a].tokens.size() < prompts_[b].tokens.size(); });
    for (size_t begin = 0; begin < order.size();) {
      size_t end = begin + 1;
      const auto own = [&](size_t i) { return static_cast<int64_t>(prompts_[order[i]].tokens.size()) - prefix; };
      while (end < order.size() && own(end) * static_cast<int64_t>(end - begin + 1) <= options_.prefill_tokens) ++end;
      prefill_piece(
          cache, shared, prefix,
          {order.begin() + static_cast<std::ptrdiff_t>(begin), order.begin() + static_cast<std::ptrdiff_t>(end)});
      begin = end;
    }
  }

  void prefill_piece(KvCache& cache, const KvCache& shared, int64_t prefix, const std::vector<size_t>& members) {
    const auto count = static_cast<int64_t>(members.size());
    const auto longest = static_cast<int64_t>(prompts_[members.back()].tokens.size());
    KvCache piece = target_.make_cache(count, longest);
    TargetInput input;
    at::Tensor tokens = at::zeros({count, longest - prefix}, at::kLong);
    std::vector<int64_t> last;
    for (int64_t r = 0; r < count; ++r) {
      const auto& prompt = prompts_[members[static_cast<size_t>(r)]].tokens;
      if (prefix > 0) piece.copy_row(r, shared, 0);
      std::copy(prompt.begin() + prefix, prompt.end(), tokens.data_ptr<int64_t>() + r * (longest - prefix));
      input.counts.push_back(static_cast<int64_t>(prompt.size()) - prefix);
      last.push_back(input.counts.back() - 1);
    }
    input.tokens = tokens.to(target_.options().device);
    const at::Tensor hidden = target_.forward(input, piece).hidden;
    const at::Tensor rows = at::arange(count, hidden.device());
    const at::Tensor states = hidden.index({rows, at::tensor(last, at::kLong).to(hidden.device())});
    take(target_.logits(states), members);
    for (int64_t r = 0; r < count; ++r) cache.copy_row(static_cast<int64_t>(members[static_cast<size_t>(r)]), piece, r);
  }

  // One token for every row of the batch; returns how many rows were alive.
  int64_t step(KvCache& cache) {
    const auto count = static_cast<int64_t>(rows_.size());
    TargetInput input;
    at::Tensor tokens = at::empty({count, 1}, at::kLong);
    int64_t alive = 0;
    for (int64_t r = 0; r < count; ++r) {
      const size_t row = rows_[static_cast<size_t>(r)];
      tokens.data_ptr<int64_t>()[r] = answers_[row].tokens.back();
      if (dead_[row]) cache.truncate(r, 0);  // it is only carried along: no context, so that it costs least
      alive += dead_[row] ? 0 : 1;
    }
    input.tokens = tokens.to(target_.options().device);
    take(target_.logits(target_.forward(input, cache).hidden.select(1, 0)), rows_);
    return alive;
  }

  // Chooses the next token of `members` from their logits [n, V] and marks the rows that end.
  void take(const at::Tensor& logits, const std::vector<size_t>& members) {
    at::Tensor best;
    if (options_.sampling.temperature == 0) {
      const auto [value, index] = logits.max(-1);
      DS_CHECK(value.isfinite().all().item<bool>(), "the target gave logits that are not finite; check its weights");
      best = index.to(at::kCPU);
    }
    for (size_t i = 0; i < members.size(); ++i) {
      const size_t row = members[i];
      if (dead_[row]) continue;
      BatchAnswer& answer = answers_[row];
      int64_t token = 0;
      if (best.defined()) {
        token = best.data_ptr<int64_t>()[i];
      } else {
        const Verified drawn = verify_match(logits.narrow(0, static_cast<int64_t>(i), 1), {}, options_.sampling,
                                            prompts_[row].seed, static_cast<uint64_t>(answer.tokens.size()));
        token = drawn.next;
      }
      answer.tokens.push_back(token);
      answer.stopped = std::find(options_.stop.begin(), options_.stop.end(), token) != options_.stop.end();
      dead_[row] = answer.stopped || static_cast<int64_t>(answer.tokens.size()) >= limits_[row];
    }
  }

  // Takes finished rows out of the batch when they are many; false when no row is left alive.
  bool compact(KvCache& cache) {
    std::vector<int64_t> kept;
    std::vector<size_t> kept_rows;
    for (size_t r = 0; r < rows_.size(); ++r) {
      if (dead_[rows_[r]]) continue;
      kept.push_back(static_cast<int64_t>(r));
      kept_rows.push_back(rows_[r]);
    }
    const auto dead = static_cast<int64_t>(rows_.size() - kept.size());
    if (kept.empty()) return false;
    if (dead > 0 && dead * kDeadPart >= static_cast<int64_t>(rows_.size())) {
      cache.keep_rows(kept);
      rows_ = std::move(kept_rows);
    }
    return true;
  }

  const Target& target_;
  const std::vector<BatchPrompt>& prompts_;
  const BatchOptions& options_;
  std::vector<BatchAnswer> answers_;
  std::vector<int64_t> limits_;  // tokens that each row may get
  std::vector<size_t> rows_;     // prompt of each row of the batch
  std::vector<bool> dead_;       // by prompt: it has ended
  int64_t capacity_ = 0;
};

}  // namespace

std::vector<BatchAnswer> generate_group(const Target& target, const std::vector<BatchPrompt>& prompts,
                                        const BatchOptions& options,
                                        const std::function<void(int64_t, int64_t)>& progress) {
  if (prompts.empty()) return {};
  const at::NoGradGuard no_grad;
  return Group(target, prompts, options).run(progress);
}

}  // namespace draftsmith
