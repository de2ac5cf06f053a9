// Time of one draft and of one append while decoding, SmolLM2-135M's dimensions, fp32, one sequence.
//
//   draft_bench [layers block vocabulary context]
#include <ATen/ATen.h>

#include <chrono>
#include <cstdlib>
#include <numeric>

#include "launch/log.h"
#include "launch/process.h"
#include "models/drafters/drafter.h"
#include "tests/bench/smollm2.h"

int main(int argc, char** argv) {
  using namespace draftsmith;
  prepare_process(argv);
  const auto argument = [&](int i, int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
  const int64_t layers = argument(1, 2), block = argument(2, 5), size = argument(3, 1739), length = argument(4, 100);
  const HfConfig target = smollm2_config();
  DrafterConfig config;
  config.layers = layers;
  config.block = block;
  config.taps = {1, 7, 13, 19, 25};
  config.mask_token = 16;
  const at::Tensor table = at::randn({target.vocab_size, target.hidden_size});
  std::vector<int64_t> ids(static_cast<size_t>(size));
  std::iota(ids.begin(), ids.end(), 0);
  const auto drafter = make_drafter(config, target, {table, table}, make_draft_vocabulary(ids, target.vocab_size), 1);
  auto state = drafter->start();
  drafter->append(*state, at::randn({length, 5, 576}));
  const at::Tensor taps = at::randn({3, 5, 576});
  const auto seconds = [](const std::function<void()>& work) {
    double best = 1e9, sum = 0;
    constexpr int kRepeats = 40;
    for (int i = 0; i < kRepeats; ++i) {
      const auto start = std::chrono::steady_clock::now();
      work();
      const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      best = std::min(best, taken);
      sum += taken;
    }
    return std::pair{best, sum / kRepeats};
  };
  const auto draft = seconds([&] { drafter->propose(*state, 5, {}); });
  const auto append = seconds([&] { drafter->append(*state, taps); });
  int64_t weights = size * 576;
  for (const auto& [name, parameter] : drafter->parameters()) weights += parameter.numel();
  say("draft",
      "{} layers, block {}, vocabulary {}, context {}: {:.2f} ms (mean {:.2f}); append of 3 tokens {:.2f} ms (mean "
      "{:.2f}); {} of weights",
      layers, block, size, length, 1e3 * draft.first, 1e3 * draft.second, 1e3 * append.first, 1e3 * append.second,
      short_bytes(4.0 * static_cast<double>(weights)));
  return 0;
}
