#include "models/import_command.h"

#include <ATen/ATen.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <string>

#include "launch/file.h"
#include "launch/log.h"
#include "launch/ranks.h"
#include "launch/summary.h"
#include "models/targets/gguf_import.h"

namespace draftsmith {
namespace {

struct ImportOptions {
  std::string gguf, output, json;
  std::string dtype = "float32";
};

void run(const ImportOptions& options) {
  require_single_rank("import");
  check_writable_folder(std::filesystem::path(options.output).parent_path());
  if (!options.json.empty()) check_output(options.json, {options.gguf}, "--json");
  const std::map<std::string, at::ScalarType> dtypes{
      {"float32", at::kFloat}, {"float16", at::kHalf}, {"bfloat16", at::kBFloat16}};
  const GgufImport done = import_gguf(options.gguf, options.output, dtypes.at(options.dtype));
  const HfConfig& config = done.config;
  say("read", "{}  {}  sha256 {}", options.gguf, config.architecture, done.source_sha256.substr(0, 12));
  say("target", "{} layers x {}, {} heads ({} key/value) of {}, vocabulary {}{}", config.num_hidden_layers,
      config.hidden_size, config.num_attention_heads, config.num_key_value_heads, config.head_dim,
      with_commas(config.vocab_size), config.tie_word_embeddings ? " (tied)" : "");
  say("rope", "base {}, scaling {}", config.rope.theta, config.rope.type);
  say(done.reused ? "kept" : "wrote", "{}  {} tensors, {} parameters, {}, {}{}", options.output, done.tensors,
      short_count(static_cast<double>(done.parameters)), config.dtype, short_bytes(static_cast<double>(done.bytes)),
      done.reused ? ": this import is there already" : "");

  Summary summary;
  summary.command = "import";
  summary.json_file = options.json;
  summary.facts["gguf"] = options.gguf;
  summary.facts["gguf_sha256"] = done.source_sha256;
  summary.facts["output"] = options.output;
  summary.facts["architecture"] = config.architecture;
  summary.facts["tensors"] = done.tensors;
  summary.facts["parameters"] = done.parameters;
  summary.facts["bytes"] = done.bytes;
  summary.facts["dtype"] = config.dtype;
  summary.facts["reused"] = done.reused;
  summary.finish();
}

}  // namespace

void add_import_command(CLI::App& app) {
  auto options = std::make_shared<ImportOptions>();
  CLI::App* command = app.add_subcommand("import", "a GGUF target -> a Hugging Face folder");
  command->add_option("--gguf", options->gguf, "the GGUF file (architectures llama and qwen3)")->required();
  command->add_option("--output", options->output, "folder to be made; an import that was killed is started again")
      ->required();
  command->add_option("--dtype", options->dtype, "of the weights on disk")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16"}))
      ->capture_default_str();
  command->add_option("--json", options->json, "also write the summary to this file");
  command->footer("Example:\n  draftsmith import --gguf SmolLM2-135M-Instruct.Q4_1.gguf --output targets/smollm2");
  command->callback([options] { run(*options); });
}

}  // namespace draftsmith
