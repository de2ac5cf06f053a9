// The architecture keys of a GGUF as a Hugging Face config.
#pragma once

#include <nlohmann/json.hpp>

#include "configs/hf_config.h"
#include "data/gguf.h"

namespace draftsmith {

// Architectures llama and qwen3 (dense). Throws Error naming the key for everything that has no translation: other
// architectures, scalings, partial rotary, head sizes that differ between keys and values. `raw` is the config as
// config.json gets it, with both RoPE spellings.
HfConfig gguf_config(const GgufFile& file, const std::string& dtype);

// generation_config.json: the special token ids.
nlohmann::ordered_json generation_config(const HfConfig& config);

}  // namespace draftsmith
