// Prefill and capture of a target on the same rows, alternating: tokens/s of a forward pass to the last state, and of
// everything `capture` does (taps, store on disk).
//
//   capture_bench FOLDER [rounds [rows [tokens of a row]]]
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "configs/drafter_config.h"
#include "launch/process.h"
#include "models/capture.h"

using namespace draftsmith;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

int main(int argc, char** argv) {
  prepare_process(argv);
  if (argc < 2) {
    fmt::print(stderr, "usage: capture_bench FOLDER [rounds [rows [tokens of a row]]]\n");
    return 2;
  }
  const auto argument = [&](int i, int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
  const int64_t rounds = argument(2, 3), rows = argument(3, 16), length = argument(4, 256);
  const at::NoGradGuard no_grad;
  const auto target = load_target(argv[1]);
  const int64_t layers = target->config().num_hidden_layers;
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("draftsmith-bench-{}", ::getpid());
  std::filesystem::create_directories(folder);

  CorpusWriter writer(folder / "corpus.h5",
                      {.tokenizer_hash = "bench", .template_hash = "bench", .max_length = length});
  const at::Tensor tokens = at::randint(target->config().vocab_size, {rows, length}, at::kLong);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t* ids = tokens[row].const_data_ptr<int64_t>();
    CorpusRow one;
    one.row_id = fmt::format("{:016x}", row);
    one.tokens.assign(ids, ids + length);
    one.mask.assign(static_cast<size_t>(length), 1);
    writer.add(one);
  }
  writer.finish({});
  const Corpus corpus = Corpus::open(folder / "corpus.h5");
  CaptureOptions options;
  options.taps = default_taps(layers, 5);

  double prefill = 1e9, capture = 1e9;
  for (int64_t round = 0; round < rounds; ++round) {
    double start = now();
    KvCache cache = target->make_cache(rows, length);
    target->forward({.tokens = tokens, .counts = {}, .taps = {}}, cache);
    prefill = std::min(prefill, now() - start);

    start = now();
    const auto store = folder / fmt::format("store-{}", round);
    StoreIdentity identity;
    identity.target_hash = identity.target_name = "bench";
    identity.corpus_id = corpus.id();
    identity.taps = options.taps;
    identity.hidden_size = target->config().hidden_size;
    identity.dtype = "bfloat16";
    FeatureStoreWriter features(store, identity, rows);
    capture_rows(*target, corpus, 0, options, [&](const FeatureSample& sample) { features.append(sample); });
    features.finish();
    capture = std::min(capture, now() - start);
    std::filesystem::remove_all(store);
  }
  std::filesystem::remove_all(folder);
  const double count = static_cast<double>(rows * length);
  fmt::print("{} rows of {} tokens, best of {}: prefill {:.0f} tokens/s, capture {:.0f} tokens/s, ratio {:.2f}\n", rows,
             length, rounds, count / prefill, count / capture, prefill / capture);
}
