// GGUF files for llama.cpp: the drafter (architecture `dflash`) and, on request, its target.
//
// Key and tensor names, offsets and semantics: shared/spec/clients.md. Tap ids get + 1 there; the reduced vocabulary is
// `d2t` with absolute ids and an output matrix of its own; the tokenizer of the target stands in both files, in the
// drafter's with the id of the mask token. Identities stand under `draftsmith.*`, which llama.cpp passes over.
#pragma once

#include <memory>
#include <string>

#include "export/zlab.h"
#include "models/drafters/drafter.h"

namespace draftsmith {

// Throws Error with the reason when llama.cpp cannot run the pair: another drafter than DFlash, a scaled RoPE, an
// architecture whose layers cannot be tapped.
void check_llama_cpp(const DrafterConfig& drafter, const HfConfig& target);

// `target_folder`: its HF folder, for the tokenizer. Matrices as `type`, one-dimensional tensors as fp32.
void write_llama_cpp_drafter(const Drafter& drafter, const DrafterIdentity& identity, const HfConfig& target,
                             const std::string& target_folder, FloatType type, const std::string& path);

// The drafter of a file that write_llama_cpp_drafter() wrote. Throws Error naming file and key or tensor.
std::unique_ptr<Drafter> read_llama_cpp_drafter(const std::string& path, const HfConfig& target, const TargetEnds& ends,
                                                DrafterIdentity* identity = nullptr);

// `--spec-draft-n-max` is stated because its default of 3 shortens the block, which changes what the drafter says.
std::string llama_cpp_serve_command(const std::string& target_path, const std::string& drafter_path, int64_t block);

}  // namespace draftsmith
