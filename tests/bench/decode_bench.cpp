// One decode step and one verification of a target: milliseconds of forward + logits for 1, 2, 5, 8 and 16 tokens
// behind a cache, interleaved in one run. linear_bench tells how much of it the products alone take.
//
//   decode_bench FOLDER [rounds [tokens in the cache [token count ...]]]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <map>

#include "models/targets/target.h"

using namespace draftsmith;

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: decode_bench FOLDER [rounds [tokens in the cache [token count ...]]]\n");
    return 2;
  }
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 20;
  const int64_t context = argc > 3 ? std::atoll(argv[3]) : 256;
  std::vector<int64_t> counts{1, 2, 5, 8, 16};
  if (argc > 4) counts.clear();
  for (int i = 4; i < argc; ++i) counts.push_back(std::atoll(argv[i]));
  const at::NoGradGuard no_grad;
  const auto target = load_target(argv[1]);
  const int64_t vocabulary = target->config().vocab_size;
  const auto tokens = [&](int64_t count) { return at::randint(vocabulary, {1, count}, at::kLong); };
  KvCache cache = target->make_cache(1, context + 64);
  target->forward({.tokens = tokens(context), .counts = {}, .taps = {}}, cache);

  std::map<int64_t, std::vector<double>> seconds;
  for (int round = 0; round < rounds; ++round) {
    for (const int64_t count : counts) {
      const at::Tensor next = tokens(count);
      const auto start = std::chrono::steady_clock::now();
      const TargetOutput out = target->forward({.tokens = next, .counts = {}, .taps = {}}, cache);
      const int64_t best = target->logits(out.hidden).argmax(-1).flatten()[0].item<int64_t>();
      if (best < 0) return 1;
      seconds[count].push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      cache.truncate(0, context);
    }
  }
  fmt::print("threads {}  cache {} tokens  {} rounds\n{:>7}  {:>9}  {:>9}  {:>12}\n", at::get_num_threads(), context,
             rounds, "tokens", "best", "median", "best over 1");
  double one = 0;
  for (auto& [count, times] : seconds) {
    std::sort(times.begin(), times.end());
    if (count == 1) one = times.front();
    fmt::print("{:>7}  {:>6.1f} ms  {:>6.1f} ms  {:>12.2f}\n", count, times.front() * 1e3,
               times[times.size() / 2] * 1e3, times.front() / one);
  }
}
