// Optimizers of a drafter's parameters: AdamW for all, or Muon for matrices and AdamW for the rest.
//
// fp32 state beside fp32 parameters. Only matrices get weight decay. A parameter may have an input
// scale s: w [out, in] is then trained as u = w s (gradient divided by s, update divided by s), exactly as if its
// inputs were divided by s (drafter.h, initialise()).
//   AdamW: Loshchilov and Hutter 2019, algorithm 2, as torch.optim.AdamW. Muon: Jordan 2024
//   (kellerjordan.github.io/posts/muon): Nesterov momentum, then the orthogonal factor by Newton-Schulz with
//   coefficients 3.4445, -4.7750, 2.0315, times sqrt(max(1, rows/columns)).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "configs/train_config.h"
#include "data/safetensors.h"

namespace draftsmith {

class Optimizer {
 public:
  // Borrows the parameters' storage. `scales`: input scales by parameter name; `plain`: names of those that are no
  // matrices whatever their shape.
  Optimizer(const OptimizerSection& section, const NamedTensors& parameters, const NamedTensors& scales,
            const std::vector<std::string>& plain = {});

  // Turns summed gradients into the step's: divides by `denominator` and input scales, clips by the global norm with
  // coefficient clip / (norm + 1e-6). Returns the norm before clipping.
  double finish_gradients(double denominator);
  // One update with the peak rates times `share`; gradients are dropped.
  void step(double share);

  int64_t steps() const { return steps_; }
  // Moments, momenta and input scales, named parameter + "." + kind, and the step count.
  NamedTensors state() const;
  // Throws Error naming a missing, extra or misshaped tensor.
  void load(const NamedTensors& state, const std::string& where);

 private:
  struct Entry {
    std::string name;
    at::Tensor parameter, scale;  // scale [in] or undefined
    at::Tensor first, second;     // AdamW's moments; Muon's momentum in `first`
    bool matrix = false, muon = false;
  };
  void adamw(Entry& entry, double rate, double decay) const;
  void muon(Entry& entry, double rate, double decay) const;

  OptimizerSection section_;
  std::vector<Entry> entries_;
  int64_t steps_ = 0;
};

// Approximate orthogonal factor of a matrix by `iterations` of Newton-Schulz.
at::Tensor orthogonalise(const at::Tensor& matrix, int64_t iterations);

}  // namespace draftsmith
