// The tensors of a GGUF under their Hugging Face names and in their Hugging Face layout.
//
// llama.cpp rotates neighbouring pairs (2i, 2i+1), Hugging Face rotates halves (i, i + head_dim/2); for the llama
// architecture its converter therefore permuted the rows of q and k, which is undone here. qwen3 is stored as it was.
#pragma once

#include <vector>

#include "configs/hf_config.h"
#include "data/gguf.h"
#include "data/safetensors.h"

namespace draftsmith {

// Every tensor of the model, made when asked for. Throws Error naming the first tensor that is missing, unknown, of
// another shape than `config` says, or stored in a format that is not read; make() throws for values that are not
// finite in `dtype`. `file` may go away.
std::vector<PlannedTensor> gguf_weights(const GgufFile& file, const HfConfig& config, at::ScalarType dtype);

}  // namespace draftsmith
