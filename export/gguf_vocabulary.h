// The tokenizer of an HF folder as `tokenizer.*` keys of a GGUF.
//
// The inverse of models/targets/gguf_tokenizer.h. Byte-level BPE whose pre-tokenizer llama.cpp knows by name; any other
// is an error, because a wrong split gives other ids without a sign.
#pragma once

#include <string>
#include <vector>

#include "configs/hf_config.h"
#include "data/gguf.h"

namespace draftsmith {

struct GgufVocabulary {
  std::vector<std::string> tokens;  // by id; rows of the embedding without a token are named [PADid]
  std::vector<int32_t> types;       // tokenizer.ggml.token_type
  std::vector<std::string> merges;  // "A B"
  std::string pre;                  // tokenizer.ggml.pre
  int64_t bos = -1, eos = -1, unk = -1, pad = -1;
  bool add_bos = false;
  std::string chat_template;  // empty: the folder has none
};

// Throws Error naming file and part: another model than byte-level BPE, an unknown pre-tokenizer, more tokens than
// embedding rows, an id named twice.
GgufVocabulary read_gguf_vocabulary(const std::string& hf_folder, const HfConfig& config);

// `mask` >= 0 adds tokenizer.ggml.mask_token_id. The chat template goes in with `with_template`.
void write_vocabulary(GgufWriter& writer, const GgufVocabulary& vocabulary, int64_t mask, bool with_template);

}  // namespace draftsmith
