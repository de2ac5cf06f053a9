// Rates of the dense product by number of rows, on all linear layers of SmolLM2-135M: the thin product, OpenBLAS behind
// library_product, and ATen, interleaved in one run. Every way walks through the whole model (0.5 GB: nothing stays in
// cache), each product is timed, and the best time of each shape counts, so that a moment in which the machine does
// something else does not: a pass is the sum over the model's products of these. Prints milliseconds a pass, GB/s of
// weights, GFLOP/s, and the ratios the project aims at.
//
//   linear_bench [rounds [row count ...]]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <vector>

#include "models/parts/library_product.h"
#include "models/parts/linear.h"
#include "models/parts/thin_kernel.h"

using namespace draftsmith;

namespace {

constexpr int64_t kLayers = 30, kHidden = 576, kKeyValue = 192, kFfn = 1536, kVocabulary = 49152;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The model's matrices, in the order in which a forward reads them.
std::vector<at::Tensor> weights() {
  std::vector<at::Tensor> all;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    for (const auto& [out, in] : std::vector<std::pair<int64_t, int64_t>>{{kHidden, kHidden},
                                                                          {kKeyValue, kHidden},
                                                                          {kKeyValue, kHidden},
                                                                          {kHidden, kHidden},
                                                                          {kFfn, kHidden},
                                                                          {kFfn, kHidden},
                                                                          {kHidden, kFfn}}) {
      all.push_back(at::randn({out, in}));
    }
  }
  all.push_back(at::randn({kVocabulary, kHidden}));
  return all;
}

void run_thin(const at::Tensor& x, const at::Tensor& w, at::Tensor& y, ThinLanes lanes) {
  thin_product({.x = x.data_ptr<float>(),
                .ldx = x.size(1),
                .w = w.data_ptr<float>(),
                .ldw = w.size(1),
                .bias = nullptr,
                .y = y.data_ptr<float>(),
                .ldy = w.size(0),
                .m = x.size(0),
                .n = w.size(0),
                .k = w.size(1)},
               lanes);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  const auto model = weights();
  int64_t parameters = 0;
  for (const auto& w : model) parameters += w.numel();
  fmt::print("threads {}  large products: {}\n", at::get_num_threads(), linear_backend());

  using Product = std::function<void(const at::Tensor&, const at::Tensor&, at::Tensor&)>;
  std::vector<std::pair<std::string, Product>> ways;
  for (const ThinLanes lanes : thin_lanes_available()) {
    ways.emplace_back(fmt::format("thin {}", thin_lanes_name(lanes)),
                      [lanes](auto& x, auto& w, auto& y) { run_thin(x, w, y, lanes); });
  }
  ways.emplace_back("OpenBLAS",
                    [](auto& x, auto& w, auto& y) { library_product(x, w.t(), y, false, ProductLibrary::kOpenBlas); });
  ways.emplace_back("ATen",
                    [](auto& x, auto& w, auto& y) { library_product(x, w.t(), y, false, ProductLibrary::kAten); });

  std::map<int64_t, std::vector<double>> best;  // rows -> seconds a pass, by way
  std::vector<int64_t> row_counts{1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64, 128};
  if (argc > 2) row_counts.assign(argc - 2, 0);
  for (int i = 2; i < argc; ++i) row_counts[i - 2] = std::atoll(argv[i]);
  for (const int64_t m : row_counts) {
    std::map<int64_t, at::Tensor> inputs{{kHidden, at::randn({m, kHidden})}, {kFfn, at::randn({m, kFfn})}};
    std::map<int64_t, at::Tensor> outputs;
    for (const int64_t n : {kHidden, kKeyValue, kFfn, kVocabulary}) outputs[n] = at::empty({m, n});
    best[m].assign(ways.size(), 1e9);
    std::vector<std::map<std::pair<int64_t, int64_t>, double>> shapes(ways.size());
    for (int round = 0; round < (m > 16 ? (rounds + 1) / 2 : rounds); ++round) {
      for (size_t way = 0; way < ways.size(); ++way) {
        if (ways[way].first.starts_with("thin") && m > 64) continue;
        for (const auto& w : model) {
          const double taken = seconds_of([&] { ways[way].second(inputs[w.size(1)], w, outputs[w.size(0)]); });
          double& shape = shapes[way].try_emplace({w.size(0), w.size(1)}, 1e9).first->second;
          shape = std::min(shape, taken);
        }
      }
    }
    for (size_t way = 0; way < ways.size(); ++way) {
      if (shapes[way].empty()) continue;
      best[m][way] = 0;
      for (const auto& w : model) best[m][way] += shapes[way].at({w.size(0), w.size(1)});
    }
  }
  fmt::print("{:>5}", "rows");
  for (const auto& way : ways) fmt::print("  {:>27}", way.first);
  fmt::print("\n");
  for (const int64_t m : row_counts) {
    fmt::print("{:>5}", m);
    for (size_t way = 0; way < ways.size(); ++way) {
      const double s = best[m][way];
      if (s > 1e8) {
        fmt::print("  {:>27}", "");
      } else {
        fmt::print("  {:>6.1f} ms {:>4.1f} GB/s {:>4.0f} GF/s", s * 1e3, parameters * 4e-9 / s,
                   2e-9 * m * parameters / s);
      }
    }
    fmt::print("\n");
  }
  const size_t chosen = thin_lanes_available().size() - 1;
  if (!best.contains(1)) return 0;
  fmt::print("one token: ATen / thin {:.2f}\n", best[1].back() / best[1][chosen]);
  for (const int64_t m : {5, 8, 16}) {
    if (!best.contains(m)) continue;
    fmt::print("{} rows over 1: thin {:.2f}  ATen {:.2f}\n", m, best[m][chosen] / best[1][chosen],
               best[m].back() / best[1].back());
  }
}
