// The CUDA kernel against the CPU's loop.
#include "train/cross_entropy_cuda.h"

#include <gtest/gtest.h>

#include "launch/check.h"
#include "models/parts/device.h"
#include "train/linear_cross_entropy.h"

namespace draftsmith {
namespace {

TEST(CrossEntropyGpu, LossPredictionAndGradientEqualTheCpus) {
  at::Device gpu = at::kCPU;
  try {
    gpu = parse_device("cuda");
  } catch (const Error& error) {
    GTEST_SKIP() << "no GPU here: " << error.what();
  }
  ASSERT_TRUE(has_cross_entropy_cuda()) << "built with DRAFTSMITH_CUDA=OFF";
  at::manual_seed(5);
  const at::Tensor hidden = at::randn({37, 64}), head = at::randn({1031, 64}) * 0.3;
  at::Tensor labels = at::randint(0, 1031, {37}, at::kLong);
  labels.index_put_({at::tensor({3, 20})}, -1);
  const auto run = [&](at::Device device) {
    at::Tensor h = hidden.to(device).detach().requires_grad_(true);
    SlotLosses out = linear_cross_entropy(h, head.to(device), labels.to(device), 1 << 16);
    out.loss.sum().backward();
    return std::vector<at::Tensor>{out.loss.detach().cpu(), out.predicted.cpu(), h.grad().cpu()};
  };
  const auto cpu = run(at::kCPU), cuda = run(gpu);
  EXPECT_TRUE(at::equal(cpu[1], cuda[1]));
  // fp32 sums of 1031 terms in another order, products possibly in TF32 off: 1e-4 covers both.
  EXPECT_LT((cpu[0] - cuda[0]).abs().max().item<float>(), 1e-4);
  EXPECT_LT((cpu[2] - cuda[2]).abs().max().item<float>(), 1e-4);
}

}  // namespace
}  // namespace draftsmith
