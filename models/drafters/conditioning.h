// How a block drafter turns features into what its layers attend to: keys and values of the context, layer by layer.
//
// fused (DFlash): norm(fc(concatenated taps)), the same for all layers, through each layer's own k_proj and v_proj.
// layerwise (DFlare): a softmax mixture of the taps for each layer, one shared norm, projections of their own.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "configs/drafter_config.h"
#include "models/drafters/parameters.h"

namespace draftsmith {

// One layer's, before norm and rotation: [C, kv_heads * head_dim].
struct ContextProjections {
  at::Tensor keys, values;
};

// The key and value projections of a drafter's layers, [kv_heads * head_dim, H] each.
struct LayerProjections {
  at::Tensor k, v;
};

class Conditioning {
 public:
  virtual ~Conditioning() = default;

  // The weights in the form in which project() multiplies; good as long as no weight changes.
  virtual std::vector<at::Tensor> prepare() const = 0;
  // taps: [C, T, H] in the parameters' dtype. One entry a layer; carries the gradient.
  virtual std::vector<ContextProjections> project(const at::Tensor& taps,
                                                  const std::vector<at::Tensor>& prepared) const = 0;
  // Its parameters that are no matrices (drafter.h, plain_parameters()).
  virtual std::vector<std::string> plain_parameters() const { return {}; }
  // Makes the taps count as if they were divided by `scale` [T, H]; returns the input scales for the optimizer
  // (drafter.h, initialise()). Throws Error when there is no weight that could take the scale up.
  virtual NamedTensors scale_taps(const at::Tensor& scale) = 0;
};

// Registers its parameters. `own`: the projections of the drafter's layers, borrowed; read when prepare() is called.
using MakeConditioning = std::unique_ptr<Conditioning> (*)(const DrafterConfig& config, ParameterSet& parameters,
                                                           const std::vector<LayerProjections>& own);
std::unique_ptr<Conditioning> make_fused_conditioning(const DrafterConfig& config, ParameterSet& parameters,
                                                      const std::vector<LayerProjections>& own);
std::unique_ptr<Conditioning> make_layerwise_conditioning(const DrafterConfig& config, ParameterSet& parameters,
                                                          const std::vector<LayerProjections>& own);

// Logits of the mixture at the start, [layers, taps], fp32. `angelslim`: 2 at tap floor(d / D * T), else 0 (AngelSlim,
// the authors' code); `angelspec`: -2 |t - round(d / (D - 1) * (T - 1))| (AngelSpec). dflare_dfly_mtp.md 1.3.
at::Tensor fusion_start(const std::string& rule, int64_t layers, int64_t taps);

}  // namespace draftsmith
