// Frozen head and cross entropy as one function that never holds more than a piece of the logits.
//
// The gradient with respect to the states is computed in the forward pass, piece by piece, while the logits of the
// piece exist; backward only scales it. The head is frozen, so it gets none. Losses and softmax in fp32 (fp64 for fp64
// states).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace draftsmith {

struct SlotLosses {
  at::Tensor loss;       // [M], -log softmax(head h)[label]; 0 where the label is -1. Differentiable in the states
  at::Tensor predicted;  // int64 [M], arg max of the logits (the lowest id among equals)
};

// hidden: [M, H], head: [V, H], labels: int64 [M], -1 or 0..V-1. Pieces of as many rows as `chunk_bytes` of logits
// hold, at least one.
SlotLosses linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& labels,
                                int64_t chunk_bytes);

// Arg max of head h for each row of hidden [M, H] -> int64 [M], in the same pieces.
at::Tensor linear_argmax(const at::Tensor& hidden, const at::Tensor& head, int64_t chunk_bytes);

}  // namespace draftsmith
