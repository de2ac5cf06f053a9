#include "models/decoding/ngram.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "launch/check.h"

namespace draftsmith {

namespace {

// The last tokens before a position, nearest first; -1 beyond the context's length.
using Context = std::array<int32_t, NgramTable::kContext>;

struct ContextHash {
  size_t operator()(const Context& context) const {
    uint64_t hash = 0xcbf29ce484222325ULL;
    for (const int32_t token : context)
      hash = (hash ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15ULL, hash ^= hash >> 29;
    return static_cast<size_t>(hash);
  }
};

// Continuations of one context in the order they were first seen, with their counts: nearly always one or two.
struct Continuations {
  std::vector<std::pair<int32_t, int32_t>> seen;

  void add(int32_t token) {
    for (auto& [known, count] : seen) {
      if (known == token) {
        ++count;
        return;
      }
    }
    seen.emplace_back(token, 1);
  }
  int64_t best() const {
    const auto most =
        std::max_element(seen.begin(), seen.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    return most->first;  // max_element gives the first of equals
  }
};

}  // namespace

struct NgramTable::Impl {
  std::unordered_map<Context, Continuations, ContextHash> table;
};

NgramTable::NgramTable() : impl_(std::make_unique<Impl>()) {}
NgramTable::~NgramTable() = default;
NgramTable::NgramTable(NgramTable&&) noexcept = default;
NgramTable& NgramTable::operator=(NgramTable&&) noexcept = default;

void NgramTable::add(const std::vector<int32_t>& tokens, const std::vector<uint8_t>& mask) {
  DS_CHECK(tokens.size() == mask.size(), "a row has {} tokens and {} entries of loss mask", tokens.size(), mask.size());
  for (size_t i = 1; i < tokens.size(); ++i) {
    if (mask[i] == 0) continue;
    Context context;
    context.fill(-1);
    for (size_t n = 1; n <= context.size() && n <= i; ++n) {
      context[n - 1] = tokens[i - n];
      impl_->table[context].add(tokens[i]);
    }
  }
}

int64_t NgramTable::next(const std::vector<int64_t>& history) const {
  Context context;
  context.fill(-1);
  int64_t found = -1;
  for (size_t n = 1; n <= context.size() && n <= history.size(); ++n) {
    context[n - 1] = static_cast<int32_t>(history[history.size() - n]);
    const auto it = impl_->table.find(context);
    if (it == impl_->table.end()) break;  // a longer suffix contains this one
    found = it->second.best();
  }
  return found;
}

NgramTable make_ngram_table(const Corpus& corpus, const std::function<bool(const std::string& row_id)>& use) {
  NgramTable table;
  for (int64_t i = 0; i < corpus.rows(); ++i) {
    const CorpusRow row = corpus.row(i);
    if (!use || use(row.row_id)) table.add(row.tokens, row.mask);
  }
  return table;
}

namespace {

class NgramProposer : public Proposer {
 public:
  NgramProposer(const NgramTable& table, int64_t depth) : table_(table), depth_(depth) {}
  std::vector<int64_t> taps() const override { return {}; }
  int64_t depth() const override { return depth_; }
  void start() override { history_.clear(); }
  void observe(const std::vector<int64_t>& tokens, const at::Tensor& /*taps*/) override {
    history_.insert(history_.end(), tokens.begin(), tokens.end());
  }
  Proposal propose(int64_t anchor, int64_t tokens, const SamplingOptions& /*sampling*/, uint64_t /*seed*/) override {
    const size_t committed = history_.size();
    history_.push_back(anchor);
    Proposal proposal;
    while (static_cast<int64_t>(proposal.tokens.size()) < tokens) {
      const int64_t token = table_.next(history_);
      if (token < 0) break;
      proposal.tokens.push_back(token);
      history_.push_back(token);
    }
    history_.resize(committed);
    return proposal;
  }

 private:
  const NgramTable& table_;
  const int64_t depth_;
  std::vector<int64_t> history_;
};

}  // namespace

std::unique_ptr<Proposer> make_ngram_proposer(const NgramTable& table, int64_t depth) {
  DS_CHECK(depth > 0, "an n-gram proposer of depth {} proposes nothing; it must be at least 1", depth);
  return std::make_unique<NgramProposer>(table, depth);
}

DecodeResult simulate_rounds(Proposer& proposer, const std::vector<int64_t>& prompt, const std::vector<int64_t>& output,
                             int64_t max_new_tokens) {
  DS_CHECK(proposer.taps().empty(),
           "this proposer reads the target's features: its rounds cannot be known without running the target");
  const auto length = static_cast<int64_t>(output.size());
  DS_CHECK(length <= max_new_tokens, "the answer has {} tokens, more than the limit of {}", length, max_new_tokens);
  DecodeResult result;
  proposer.start();
  proposer.observe(prompt, {});
  int64_t done = 1;  // the prefill's token
  while (done < length) {
    const int64_t anchor = output[static_cast<size_t>(done - 1)];
    const int64_t most = std::min(proposer.depth(), max_new_tokens - done - 1);
    Proposal proposal;
    if (most > 0) proposal = proposer.propose(anchor, most, {}, 0);
    int64_t accepted = 0;
    const auto drafted = static_cast<int64_t>(proposal.tokens.size());
    while (accepted < drafted && done + accepted < length &&
           proposal.tokens[static_cast<size_t>(accepted)] == output[static_cast<size_t>(done + accepted)]) {
      ++accepted;
    }
    result.proposed.push_back(drafted);
    result.accepted.push_back(accepted);
    proposer.observe({output.begin() + done - 1, output.begin() + done + accepted}, {});
    done += accepted + 1;
  }
  return result;
}

}  // namespace draftsmith
