// Block attention against attention with the mask written out (shared/research/dflash.md 2.5).
#include "models/parts/block_attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "launch/check.h"

namespace draftsmith {
namespace {

struct Case {
  at::Tensor q, block_k, block_v, context_k, context_v;
  BlockView view;

  std::vector<at::Tensor*> inputs() { return {&q, &block_k, &block_v, &context_k, &context_v}; }
};

// Blocks of two packed rows of 90 and 7 tokens; some queries of some blocks left out, as in a last layer.
Case make_case(at::ScalarType type, bool kept) {
  at::manual_seed(4);
  const int64_t heads = 6, kv_heads = 2, d = 8, slots = 5, context = 97;
  Case c;
  c.view.slots = slots;
  c.view.row_begin = {0};
  int64_t i = 0;
  for (const int64_t anchor : {0, 1, 2, 30, 31, 34, 35, 60, 61, 62, 63, 64, 70, 80, 81, 82, 83, 84, 85, 86, 87, 89}) {
    c.view.context_begin.push_back(0);
    c.view.context_end.push_back(anchor);
    c.view.row_begin.push_back(c.view.row_begin.back() + (kept ? (i++ % 4) : slots));
  }
  for (const int64_t anchor : {90, 93, 95}) {
    c.view.context_begin.push_back(90);
    c.view.context_end.push_back(anchor);
    c.view.row_begin.push_back(c.view.row_begin.back() + (kept ? 1 : slots));
  }
  const int64_t rows = c.view.row_begin.back(), keys = c.view.blocks() * slots;
  const auto random = [&](int64_t n, int64_t h) { return at::randn({n, h, d}, at::kDouble).to(type); };
  c.q = random(rows, heads);
  c.block_k = random(keys, kv_heads);
  c.block_v = random(keys, kv_heads);
  // Views of one wide product, as the drafter has them.
  const auto parts = at::randn({context, 4, kv_heads * d}, at::kDouble).to(type).unbind(1);
  c.context_k = parts[1].view({context, kv_heads, d});
  c.context_v = parts[2].view({context, kv_heads, d});
  return c;
}

// One dense mask over [context; all blocks].
at::Tensor brute_force(const Case& c) {
  const int64_t rows = c.q.size(0), context = c.context_k.size(0), keys = c.block_k.size(0),
                group = c.q.size(1) / c.block_k.size(1);
  at::Tensor visible = at::zeros({rows, context + keys}, at::kBool);
  for (int64_t a = 0; a < c.view.blocks(); ++a) {
    const size_t i = static_cast<size_t>(a);
    for (int64_t row = c.view.row_begin[i]; row < c.view.row_begin[i + 1]; ++row) {
      for (int64_t k = c.view.context_begin[i]; k < c.view.context_end[i]; ++k) visible[row][k] = true;
      for (int64_t k = 0; k < c.view.slots; ++k) visible[row][context + a * c.view.slots + k] = true;
    }
  }
  const auto heads_first = [&](const at::Tensor& x) { return x.repeat_interleave(group, 1).transpose(0, 1); };
  const at::Tensor keys_all = heads_first(at::cat({c.context_k, c.block_k})),
                   values_all = heads_first(at::cat({c.context_v, c.block_v}));
  const at::Tensor scores =
      at::matmul(c.q.transpose(0, 1), keys_all.transpose(1, 2)) / std::sqrt(static_cast<double>(c.q.size(2)));
  return at::matmul(at::softmax(scores.masked_fill(visible.logical_not(), -INFINITY), -1), values_all).transpose(0, 1);
}

using Attention = at::Tensor (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                 const at::Tensor&, const BlockView&);

void compare(Attention attention, at::ScalarType type, bool kept, double tolerance) {
  Case c = make_case(type, kept);
  for (at::Tensor* input : c.inputs()) input->set_requires_grad(true);
  const at::Tensor weight = at::randn(c.q.sizes(), at::kDouble).to(type);
  const at::Tensor expected = brute_force(c);
  (expected * weight).sum().backward();
  std::vector<at::Tensor> gradients;
  for (at::Tensor* input : c.inputs()) {
    gradients.push_back(input->grad().clone());
    input->mutable_grad().reset();
  }
  const at::Tensor found = attention(c.q, c.block_k, c.block_v, c.context_k, c.context_v, c.view);
  EXPECT_LT((found - expected).abs().max().item<double>(), tolerance);
  (found * weight).sum().backward();
  for (size_t i = 0; i < gradients.size(); ++i)
    EXPECT_LT((c.inputs()[i]->grad() - gradients[i]).abs().max().item<double>(), tolerance)
        << "gradient of input " << i;
}

// fp64 differs by summation order only; fp32 by its own rounding, about 1e-7 times sums of up to 100 terms.
TEST(BlockAttention, TilesEqualTheMaskWrittenOut) {
  for (const bool kept : {false, true}) compare(block_attention, at::kDouble, kept, 1e-12);
}

TEST(BlockAttention, TilesInFp32EqualTheMaskWrittenOut) {
  for (const bool kept : {false, true}) compare(block_attention, at::kFloat, kept, 2e-5);
}

TEST(BlockAttention, OperationsForOtherDevicesEqualTheMaskWrittenOut) {
  for (const bool kept : {false, true}) compare(block_attention_by_operations, at::kDouble, kept, 1e-12);
}

TEST(BlockAttention, GradientsAreFiniteDifferences) {
  Case c = make_case(at::kDouble, true);
  const at::Tensor weight = at::randn(c.q.sizes(), at::kDouble);
  const auto value = [&] {
    return (block_attention(c.q, c.block_k, c.block_v, c.context_k, c.context_v, c.view) * weight).sum().item<double>();
  };
  for (at::Tensor* input : c.inputs()) *input = input->contiguous().set_requires_grad(true);
  (block_attention(c.q, c.block_k, c.block_v, c.context_k, c.context_v, c.view) * weight).sum().backward();
  const at::NoGradGuard no_grad;
  constexpr double kStep = 1e-5;
  for (at::Tensor* input : c.inputs()) {
    double* data = input->data_ptr<double>();
    const at::Tensor gradient = input->grad().contiguous();
    for (int64_t i = 0; i < input->numel(); i += std::max<int64_t>(1, input->numel() / 40)) {
      const double kept = data[i];
      data[i] = kept + kStep;
      const double above = value();
      data[i] = kept - kStep;
      const double below = value();
      data[i] = kept;
      // Central differences are right to step^2, about 1e-10; rounding adds 1e-16 / step.
      EXPECT_NEAR(gradient.data_ptr<double>()[i], (above - below) / (2 * kStep), 1e-7);
    }
  }
}

TEST(BlockAttention, SameBitsTwice) {
  Case c = make_case(at::kFloat, false);
  const at::Tensor weight = at::randn(c.q.sizes());
  std::vector<at::Tensor> first;
  for (int run = 0; run < 3; ++run) {
    for (at::Tensor* input : c.inputs()) *input = input->detach().contiguous().set_requires_grad(true);
    (block_attention(c.q, c.block_k, c.block_v, c.context_k, c.context_v, c.view) * weight).sum().backward();
    for (size_t i = 0; i < c.inputs().size(); ++i) {
      if (run == 0) first.push_back(c.inputs()[i]->grad());
      EXPECT_TRUE(at::equal(c.inputs()[i]->grad(), first[i]));
    }
  }
}

TEST(BlockAttention, AnchorsOutOfOrderAreRefused) {
  Case c = make_case(at::kFloat, false);
  std::swap(c.view.context_end[3], c.view.context_end[4]);
  EXPECT_THROW(block_attention(c.q, c.block_k, c.block_v, c.context_k, c.context_v, c.view), Error);
}

}  // namespace
}  // namespace draftsmith
