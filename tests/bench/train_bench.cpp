// The DFlash training step on the workload of spec/bench.md: SmolLM2-135M's dimensions, drafter of 3 layers, all tokens
// supervised, fp32, AdamW.
//
//   train_bench [S/A/B[/V]]...   V: draft vocabulary (all 49152 without it)
//
// Prints CPU-seconds and wall seconds of a step (best of a few), peak memory, and the floor: the arithmetic of the
// dense products at the rate that the product library reaches here.
#include <ATen/ATen.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <numeric>

#include "data/sampler.h"
#include "launch/log.h"
#include "launch/process.h"
#include "launch/summary.h"
#include "models/parts/library_product.h"
#include "models/parts/linear.h"
#include "tests/bench/smollm2.h"
#include "train/objective.h"
#include "train/optimizer.h"

namespace draftsmith {
namespace {

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}
double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Timer {
  double cpu = cpu_seconds(), wall = wall_seconds();
};

// CPU-seconds of `flop` floating-point operations in products of the size that training has.
double floor_seconds(double flop) {
  const at::Tensor x = at::randn({2048, 576}), w = at::randn({1536, 576});
  at::Tensor y = at::empty({2048, 1536});
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double start = cpu_seconds();
    library_product(x, w.t(), y, false);
    best = std::min(best, cpu_seconds() - start);
  }
  return flop / (2.0 * 2048 * 576 * 1536 / best);
}

void bench(int64_t length, int64_t anchors, int64_t block, int64_t vocabulary_size) {
  const HfConfig target = smollm2_config();
  DrafterConfig config;
  config.layers = 3;
  config.block = block;
  config.taps = {1, 8, 14, 20, 27};
  config.mask_token = 16;
  at::manual_seed(1);
  const at::Tensor table = at::randn({target.vocab_size, target.hidden_size}) * 0.02;
  DraftVocabulary vocabulary;
  if (vocabulary_size > 0) {
    std::vector<int64_t> ids(static_cast<size_t>(vocabulary_size));
    std::iota(ids.begin(), ids.end(), 0);
    vocabulary = make_draft_vocabulary(ids, target.vocab_size);
  }
  const auto drafter = make_drafter(config, target, {table, table}, vocabulary, 1);
  ObjectiveSection objective;
  if (const char* bytes = std::getenv("CHUNK")) objective.chunk_bytes = std::atoll(bytes);
  Optimizer optimizer(OptimizerSection{}, drafter->parameters(), {});
  DraftSample sample;
  sample.tokens = at::randint(17, vocabulary_size > 0 ? vocabulary_size : target.vocab_size, {length}, at::kLong);
  sample.loss_mask = at::ones({length}, at::kByte);
  sample.taps = at::randn({length, 5, target.hidden_size});
  sample.anchors = sample_anchors(sample.loss_mask, anchors, 3);

  double parameters = 0;
  for (const auto& [name, parameter] : drafter->parameters()) parameters += static_cast<double>(parameter.numel());
  const int64_t rows = sample.anchors.numel() * block;
  const double flop = 6 * parameters * static_cast<double>(rows) +
                      4 * static_cast<double>(drafter->head().numel()) * static_cast<double>(rows);
  double best[4] = {1e9, 1e9, 1e9, 1e9}, best_cpu = 1e9, best_wall = 1e9;
  for (int step = 0; step < 4; ++step) {
    const Timer t0;
    const DraftSlots slots = drafter->slots(sample);
    const Timer t1;
    const ObjectiveTerms terms = objective_terms(objective, *drafter, slots, sample.tokens, 1);
    const Timer t2;
    terms.numerator.backward();
    const Timer t3;
    optimizer.finish_gradients(terms.denominator);
    optimizer.step(1.0);
    const Timer t4;
    const double parts[4] = {t1.cpu - t0.cpu, t2.cpu - t1.cpu, t3.cpu - t2.cpu, t4.cpu - t3.cpu};
    for (int i = 0; i < 4; ++i) best[i] = std::min(best[i], parts[i]);
    best_cpu = std::min(best_cpu, t4.cpu - t0.cpu);
    best_wall = std::min(best_wall, t4.wall - t0.wall);
  }
  const double floor = floor_seconds(flop);
  say("step",
      "S {} A {} B {} V {}: {:.2f} CPU-s, {:.2f} s, floor {:.2f} CPU-s ({:.2f} TFLOP), ratio {:.2f}; forward {:.2f} "
      "head {:.2f} backward {:.2f} update {:.2f}; peak {}",
      length, anchors, block, drafter->head().size(0), best_cpu, best_wall, floor, flop * 1e-12, best_cpu / floor,
      best[0], best[1], best[2], best[3], short_bytes(static_cast<double>(peak_memory())));
}

}  // namespace
}  // namespace draftsmith

int main(int argc, char** argv) {
  draftsmith::prepare_process(argv);
  draftsmith::say("products", "{}", draftsmith::linear_backend());
  std::vector<std::string> points{argv + 1, argv + argc};
  if (points.empty()) points = {"512/64/8", "512/64/16", "2048/64/16"};
  for (const std::string& point : points) {
    int64_t sizes[4] = {0, 0, 0, 0};
    if (std::sscanf(point.c_str(), "%ld/%ld/%ld/%ld", &sizes[0], &sizes[1], &sizes[2], &sizes[3]) < 3) {
      std::fprintf(stderr, "%s is no tokens/anchors/block[/vocabulary]\n", point.c_str());
      return 2;
    }
    draftsmith::bench(sizes[0], sizes[1], sizes[2], sizes[3]);
  }
  return 0;
}
