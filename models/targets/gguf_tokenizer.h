// The tokenizer of a GGUF as Hugging Face tokenizer files.
#pragma once

#include <string>

#include "configs/hf_config.h"
#include "data/gguf.h"

namespace draftsmith {

struct TokenizerFiles {
  std::string tokenizer_json, tokenizer_config_json;
  std::string chat_template;  // empty: the GGUF has none
};

// Byte-level BPE ("gpt2") with the pre-tokenizers smollm, llama-bpe and qwen2; others are named in the error, because a
// wrong split gives wrong ids without a sign. Throws Error also for merges or tokens that contradict each other.
TokenizerFiles gguf_tokenizer(const GgufFile& file, const HfConfig& config);

}  // namespace draftsmith
