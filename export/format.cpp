#include "export/format.h"

#include <filesystem>

#include "data/safetensors.h"
#include "export/llama_cpp.h"
#include "export/llama_cpp_target.h"
#include "export/shell.h"
#include "launch/check.h"

namespace draftsmith {

namespace fs = std::filesystem;

namespace {

constexpr const char* kDraftFile = "draft.gguf";

std::string target_file(const ExportInput& input) {
  return "target-" + input.with_target + ".gguf";
}

std::string inside(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).string();
}

int64_t parameter_bytes(const ExportInput& input) {
  int64_t elements = 0;
  for (const auto& [name, tensor] : input.drafter.parameters()) elements += tensor.numel();
  if (input.drafter.vocabulary().to_target.defined()) elements += input.drafter.head().numel();
  return elements * static_cast<int64_t>(c10::elementSize(scalar_type(input.type)));
}

// ---- zlab ----

void check_zlab_pair(const DrafterConfig& drafter, const HfConfig&, FloatType type) {
  check_zlab(drafter, type);
}

std::vector<std::string> write_zlab_files(const ExportInput& input) {
  DS_CHECK(input.with_target.empty(),
           "--with-target is for llama.cpp; the readers of zlab take the target's own HF folder {}",
           input.target_folder);
  write_zlab(input.drafter, input.identity, input.target, input.type, input.folder);
  return {"model.safetensors", "config.json"};
}

std::vector<std::string> serve_zlab(const ExportInput& input) {
  const int64_t block = input.drafter.config().block;
  const std::string target = shell_word(input.target_folder);
  const std::string settings = fmt::format("{{\"method\": \"dflash\", \"model\": {}, \"num_speculative_tokens\": {}}}",
                                           nlohmann::json(input.folder).dump(), block - 1);
  return {fmt::format("vllm serve {} --speculative-config {}", target, shell_word(settings)),
          fmt::format("python -m sglang.launch_server --model-path {} --speculative-algorithm DFLASH "
                      "--speculative-draft-model-path {} "
                      "--speculative-num-draft-tokens {}",
                      target, shell_word(input.folder), block)};
}

// ---- llama.cpp ----

void check_llama_cpp_pair(const DrafterConfig& drafter, const HfConfig& target, FloatType) {
  check_llama_cpp(drafter, target);
}

int64_t llama_cpp_bytes(const ExportInput& input) {
  int64_t bytes = parameter_bytes(input) + (int64_t{8} << 20);
  if (input.with_target.empty()) return bytes;
  const double per_weight = input.with_target == "f32" ? 4 : input.with_target == "f16" ? 2 : 34.0 / 32;
  const WeightFolder weights = WeightFolder::open(input.target_folder);
  for (const std::string& name : weights.names()) {
    int64_t elements = 1;
    for (int64_t size : weights.shape(name)) elements *= size;
    bytes += static_cast<int64_t>(static_cast<double>(elements) * per_weight);
  }
  return bytes;
}

std::vector<std::string> write_llama_cpp_files(const ExportInput& input) {
  std::vector<std::string> files = {kDraftFile};
  write_llama_cpp_drafter(input.drafter, input.identity, input.target, input.target_folder, input.type,
                          inside(input.folder, kDraftFile));
  if (!input.with_target.empty()) {
    const std::string path = inside(input.folder, target_file(input));
    write_llama_cpp_target(input.target_folder, input.target, target_gguf_type(input.with_target), path);
    prove_llama_cpp_target(input.target_folder, path);
    files.push_back(target_file(input));
  }
  return files;
}

bool holds_llama_cpp(const std::string& folder) {
  return fs::exists(inside(folder, kDraftFile));
}

std::unique_ptr<Drafter> read_llama_cpp_folder(const std::string& folder, const HfConfig& target,
                                               const TargetEnds& ends, DrafterIdentity* identity) {
  return read_llama_cpp_drafter(inside(folder, kDraftFile), target, ends, identity);
}

std::vector<std::string> serve_llama_cpp(const ExportInput& input) {
  const std::string target = input.with_target.empty() ? "TARGET.gguf" : inside(input.folder, target_file(input));
  return {llama_cpp_serve_command(target, inside(input.folder, kDraftFile), input.drafter.config().block)};
}

}  // namespace

const std::vector<Format>& formats() {
  static const std::vector<Format> table = {
      {"zlab", "z-lab's own code, vLLM, SGLang", "float32, bfloat16", false, check_zlab_pair, parameter_bytes,
       write_zlab_files, is_zlab, read_zlab, serve_zlab},
      {"llama.cpp", "llama.cpp's server", "float32, bfloat16, float16", true, check_llama_cpp_pair, llama_cpp_bytes,
       write_llama_cpp_files, holds_llama_cpp, read_llama_cpp_folder, serve_llama_cpp},
  };
  return table;
}

const Format& format(const std::string& name) {
  std::string known;
  for (const Format& candidate : formats()) {
    if (name == candidate.name) return candidate;
    known += (known.empty() ? "" : ", ") + std::string(candidate.name);
  }
  DS_FAIL("there is no export format {}; there are {}", name, known);
}

}  // namespace draftsmith
