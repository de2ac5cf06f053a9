// A llama.cpp GGUF of a target -> a Hugging Face folder that every runtime and every draftsmith command reads.
//
// The folder gets config.json, generation_config.json, model.safetensors, tokenizer.json, tokenizer_config.json,
// chat_template.jinja, and import.json: what it was made from. import.json lists the files with their sizes only when
// all of them stand; an import that was killed is started again, a finished one is recognised and left alone. The parts
// are in gguf_config, gguf_weights and gguf_tokenizer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "configs/hf_config.h"

namespace draftsmith {

struct GgufImport {
  HfConfig config;
  int64_t tensors = 0, parameters = 0, bytes = 0;  // bytes of the whole folder
  std::string source_sha256;
  bool reused = false;  // the folder held this very import already
};

// `dtype`: float32, float16 or bfloat16, of the weights on disk. Throws Error, before anything is written, for: a file
// that is no intact GGUF; another architecture than llama or qwen3; missing, unknown or wrongly shaped tensors; a
// pre-tokenizer without translation; a folder that holds something else. Holds one tensor at a time.
GgufImport import_gguf(const std::string& gguf, const std::string& folder, at::ScalarType dtype);

}  // namespace draftsmith
