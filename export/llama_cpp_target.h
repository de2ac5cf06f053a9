// The target of an HF folder as a GGUF for llama.cpp, in a type whose greedy answers are those of fp32 (F32, F16,
// Q8_0).
//
// The inverse of models/targets/gguf_import.h: rows of q and k are put back into llama.cpp's rotary order for
// architecture llama, tied embeddings stay one tensor, the tokenizer and the chat template go in. Quantised types below
// Q8_0 are not offered: they change the answers, and with them what a drafter's proposals are worth.
#pragma once

#include <string>

#include "configs/hf_config.h"
#include "data/gguf.h"

namespace draftsmith {

GgufType target_gguf_type(const std::string& name);  // f32, f16, q8_0; throws Error with these names

// Throws Error for an architecture other than llama or qwen3, RoPE scaling other than Llama 3's, a row length that
// Q8_0's blocks of 32 do not divide.
void write_llama_cpp_target(const std::string& hf_folder, const HfConfig& config, GgufType type,
                            const std::string& path);

// Reads the file back as the importer would and compares every tensor with the folder's: equal after rounding to F32 or
// F16, within the rounding of a block's step for Q8_0. Returns the number of tensors; throws Error naming the first
// that differs.
int64_t prove_llama_cpp_target(const std::string& hf_folder, const std::string& path);

}  // namespace draftsmith
