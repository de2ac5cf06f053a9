// The DFlash training step on the workload of spec/bench.md: SmolLM2-135M's dimensions, drafter of 3 layers, all tokens
// supervised, fp32, AdamW.
//
//   train_bench [--json] [--steps N] [S/A/B[/V]]...   V: draft vocabulary (all 49152 without it)
//
// One step to warm up, then N (3). --json: one line of JSON a point, the same keys as tests/bench/peers/measure.py.
// Prints CPU-seconds and wall seconds of a step (best of a few), peak memory, and the floor: the arithmetic of the
// dense products at the rate that the product library reaches here.
#include <ATen/ATen.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
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

// Resident memory now, bytes; and seconds since the kernel started this process (executing again does not restart it).
int64_t resident_memory() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}
double seconds_since_start() {
  std::string line;
  std::getline(std::ifstream("/proc/self/stat"), line);
  std::istringstream fields(line.substr(line.rfind(')') + 2));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) -
         std::stod(field) / static_cast<double>(::sysconf(_SC_CLK_TCK));
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

struct Options {
  bool json = false;
  int steps = 3;
};

void bench(const Options& options, int64_t length, int64_t anchors, int64_t block, int64_t vocabulary_size) {
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

  const int64_t before = resident_memory();
  int64_t parameters = 0;
  for (const auto& [name, parameter] : drafter->parameters()) parameters += parameter.numel();
  const int64_t rows = sample.anchors.numel() * block;
  const double flop = 6 * static_cast<double>(parameters) * static_cast<double>(rows) +
                      4 * static_cast<double>(drafter->head().numel()) * static_cast<double>(rows);
  double best[4] = {1e9, 1e9, 1e9, 1e9}, start_up = 0;
  std::vector<double> cpu, wall;
  for (int step = 0; step <= options.steps; ++step) {
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
    if (step == 0) {
      start_up = seconds_since_start();
      continue;
    }
    const double parts[4] = {t1.cpu - t0.cpu, t2.cpu - t1.cpu, t3.cpu - t2.cpu, t4.cpu - t3.cpu};
    for (int i = 0; i < 4; ++i) best[i] = std::min(best[i], parts[i]);
    cpu.push_back(t4.cpu - t0.cpu);
    wall.push_back(t4.wall - t0.wall);
  }
  const double best_cpu = *std::min_element(cpu.begin(), cpu.end()),
               best_wall = *std::min_element(wall.begin(), wall.end());
  if (options.json) {
    const nlohmann::ordered_json line = {{"who", "draftsmith"},
                                         {"point", fmt::format("{}/{}/{}", length, anchors, block)},
                                         {"cpu_best", best_cpu},
                                         {"cpu", cpu},
                                         {"wall_min", best_wall},
                                         {"wall", wall},
                                         {"peak_rss", peak_memory()},
                                         {"rss_before", before},
                                         {"start_up", start_up},
                                         {"parameters", parameters},
                                         {"tensors", drafter->parameters().size()},
                                         {"loss", "cross-entropy with data labels"}};
    std::printf("%s\n", line.dump().c_str());
    return;
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
  draftsmith::Options options;
  std::vector<std::string> points;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--json")
      options.json = true;
    else if (word == "--steps" && i + 1 < argc)
      options.steps = std::max(1, std::atoi(argv[++i]));
    else
      points.push_back(word);
  }
  if (points.empty()) points = {"512/64/8", "512/64/16", "2048/64/16"};
  if (!options.json) draftsmith::say("products", "{}", draftsmith::linear_backend());
  for (const std::string& point : points) {
    int64_t sizes[4] = {0, 0, 0, 0};
    if (std::sscanf(point.c_str(), "%ld/%ld/%ld/%ld", &sizes[0], &sizes[1], &sizes[2], &sizes[3]) < 3) {
      std::fprintf(stderr, "%s is no tokens/anchors/block[/vocabulary]\n", point.c_str());
      return 2;
    }
    draftsmith::bench(options, sizes[0], sizes[1], sizes[2], sizes[3]);
  }
  return 0;
}
