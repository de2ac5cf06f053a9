// SwiGLU feed-forward: down(silu(gate(x)) * up(x)), as in Llama and Qwen3.
#pragma once

#include <ATen/core/Tensor.h>

namespace draftsmith {

// silu(gate) * up, elementwise, any equal shapes. Differentiable; keeps only gate and up for backward. Without
// gradients the result may take gate's storage: pass tensors that nobody else reads.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

// Weights [I, H], [I, H], [H, I]; biases undefined when the model has none. Borrowed handles: the model owns the
// storage.
struct MlpWeights {
  at::Tensor gate, up, down;
  at::Tensor gate_bias, up_bias, down_bias;
};

// x: [..., H] -> [..., H]. Differentiable.
at::Tensor mlp(const at::Tensor& x, const MlpWeights& weights);

}  // namespace draftsmith
