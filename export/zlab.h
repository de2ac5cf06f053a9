// The z-lab folder: the native DFlash format that z-lab's own code, SGLang and vLLM read.
//
//   model.safetensors   11 tensors a layer + 3, names without a `model.` prefix, neither embedding nor head (the
//   target's are used) config.json         a Qwen3-style configuration with `dflash_config`; both RoPE spellings; block
//   size at both places it is looked for
//
// `auto_map` is not written: it points at remote code that this folder does not carry, and SGLang wants it absent. Key
// list and the runtimes that read each key: shared/research/dflash.md 1.8 and 1.9. The identity of the target, corpus
// and template stands in the safetensors' metadata.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "models/drafters/drafter.h"

namespace draftsmith {

enum class FloatType { kFloat32, kBFloat16, kFloat16 };
const char* name_of(FloatType type);            // as config.json spells it
FloatType float_type(const std::string& name);  // throws Error with the known names
at::ScalarType scalar_type(FloatType type);

nlohmann::ordered_json zlab_config(const DrafterConfig& drafter, const HfConfig& target, FloatType type);

// Throws Error for a drafter with a reduced vocabulary (the format has no place for the mapping), another kind, or
// float16.
void check_zlab(const DrafterConfig& drafter, FloatType type);
void write_zlab(const Drafter& drafter, const DrafterIdentity& identity, const HfConfig& target, FloatType type,
                const std::string& folder);

// True when `folder` holds a config.json of a DFlash drafter.
bool is_zlab(const std::string& folder);
// Throws Error naming the file and key for: sliding or causal attention, biases, another projector, a target of another
// depth or width, missing, extra, misshaped or non-finite weights. `identity` is empty where another program wrote the
// folder.
std::unique_ptr<Drafter> read_zlab(const std::string& folder, const HfConfig& target, const TargetEnds& ends,
                                   DrafterIdentity* identity = nullptr);

}  // namespace draftsmith
