#include "export/proof.h"

#include <ATen/CPUGeneratorImpl.h>

#include "launch/check.h"
#include "models/parts/linear.h"
#include "models/parts/weights.h"

namespace draftsmith {

namespace {

constexpr int64_t kTokens = 48;
constexpr uint64_t kSeed = 20;

DraftSample features(const DrafterConfig& config, const HfConfig& target, at::Device device) {
  const int64_t length = std::min(kTokens, config.max_position_embeddings - config.block);
  DS_CHECK(length > 2, "the drafter has {} positions, too few for a block of {}", config.max_position_embeddings,
           config.block);
  at::Generator generator = at::detail::createCPUGenerator(kSeed);
  DraftSample sample;
  sample.tokens = at::randint(0, target.vocab_size, {length}, generator, at::kLong).to(device);
  sample.loss_mask = at::ones({length}, at::kByte).to(device);
  sample.taps = at::randn({length, static_cast<int64_t>(config.taps.size()), config.hidden_size}, generator, at::kFloat)
                    .to(device);
  sample.anchors = at::arange(1, length - 1, 5, at::kLong).to(device);
  return sample;
}

at::Tensor logits(const Drafter& drafter, const DraftSample& sample) {
  return draftsmith::linear(drafter.slots(sample).hidden, drafter.head());
}

// Chains proposed while the sample's features arrive in pieces of 1, 2, 3, ... tokens, as decoding commits them.
std::vector<int64_t> proposals(const Drafter& drafter, const DraftSample& sample) {
  std::vector<int64_t> tokens;
  const std::unique_ptr<DraftState> state = drafter.start();
  const int64_t length = sample.tokens.size(0);
  for (int64_t from = 0, piece = 1; from + piece < length; from += piece, ++piece) {
    drafter.append(*state, sample.taps.slice(0, from, from + piece));
    const int64_t anchor = sample.tokens[from + piece].item<int64_t>();
    for (int64_t token : drafter.propose(*state, anchor, {}).tokens) tokens.push_back(token);
  }
  return tokens;
}

// A parameter as the format holds it.
at::Tensor rounded(const at::Tensor& tensor, const Rounding& rounding) {
  const bool kept = rounding.keeps_vectors && tensor.dim() == 1;
  return kept ? tensor.detach() : tensor.detach().to(scalar_type(rounding.type)).to(at::kFloat);
}

int64_t first_bad(const at::Tensor& tensor) {
  return first_not_finite(tensor.detach().to(at::kCPU).contiguous());
}

double largest_value(const at::Tensor& tensor) {
  return tensor.detach().abs().max().item<double>();
}

// Logits that are not finite come of weights that are too large: the largest is the one to look at.
void check_logits(const at::Tensor& logits, const Drafter& drafter) {
  if (logits.isfinite().all().item<bool>()) return;
  std::string name;
  double largest = -1;
  for (const auto& [candidate, tensor] : drafter.parameters()) {
    if (largest_value(tensor) <= largest) continue;
    largest = largest_value(tensor);
    name = candidate;
  }
  DS_FAIL(
      "export: the drafter's logits are not finite though its weights are: they are too large, above all tensor `{}` "
      "(up to {:.3g})\n       name an earlier checkpoint with --drafter, or train anew with a smaller optimizer.lr",
      name, largest);
}

std::unique_ptr<Drafter> rounded(const Drafter& drafter, const Rounding& rounding, const HfConfig& target,
                                 const TargetEnds& ends) {
  auto copy = make_drafter(drafter.config(), target, ends, drafter.vocabulary(), 0);
  NamedTensors named;
  for (const auto& [name, tensor] : drafter.parameters()) named.emplace_back(name, rounded(tensor, rounding));
  assign_parameters(*copy, named, "the drafter to be exported");
  return copy;
}

}  // namespace

void check_finite(const Drafter& drafter, const Rounding& rounding) {
  for (const auto& [name, tensor] : drafter.parameters()) {
    const int64_t bad = first_bad(tensor);
    DS_CHECK(bad < 0,
             "export: tensor `{}` holds a value that is not finite at element {}\n       name another checkpoint with "
             "--drafter, or train anew",
             name, bad);
    DS_CHECK(
        first_bad(rounded(tensor, rounding)) < 0,
        "export: tensor `{}` has values up to {:.3g}, which {} cannot hold\n       take --dtype float32 or bfloat16",
        name, largest_value(tensor), name_of(rounding.type));
  }
}

ExportProof prove_export(const Drafter& trained, const Drafter& read, const Rounding& rounding, const HfConfig& target,
                         const TargetEnds& ends) {
  const at::NoGradGuard no_grad;
  check_finite(trained, rounding);
  check_finite(read, {});
  const DraftSample sample = features(trained.config(), target, ends.embedding.device());
  const std::unique_ptr<Drafter> expected = rounded(trained, rounding, target, ends);

  ExportProof proof;
  const at::Tensor ours = logits(*expected, sample), theirs = logits(read, sample);
  DS_CHECK(ours.sizes() == theirs.sizes(), "export: the folder read back scores {} slots, the drafter {}",
           theirs.size(0), ours.size(0));
  check_logits(ours, *expected);
  check_logits(theirs, read);
  DS_CHECK(ours.equal(theirs), "export: logits of the folder read back differ from the drafter's by up to {}",
           (ours - theirs).abs().max().item<double>());
  proof.slots = ours.size(0);

  const std::vector<int64_t> wanted = proposals(*expected, sample), got = proposals(read, sample),
                             before = proposals(trained, sample);
  DS_CHECK(wanted == got, "export: the folder read back proposes other tokens than the drafter ({} compared)",
           wanted.size());
  proof.proposals = static_cast<int64_t>(wanted.size());
  int64_t same = 0;
  for (size_t i = 0; i < wanted.size() && i < before.size(); ++i) same += wanted[i] == before[i];
  if (!wanted.empty()) proof.unrounded_agreement = static_cast<double>(same) / static_cast<double>(wanted.size());
  return proof;
}

}  // namespace draftsmith
