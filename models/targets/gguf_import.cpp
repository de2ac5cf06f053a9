#include "models/targets/gguf_import.h"

#include <ATen/ATen.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/gguf.h"
#include "data/safetensors.h"
#include "launch/check.h"
#include "launch/file.h"
#include "models/targets/gguf_config.h"
#include "models/targets/gguf_tokenizer.h"
#include "models/targets/gguf_weights.h"

namespace draftsmith {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr const char* kRecord = "import.json";

std::string dtype_name(at::ScalarType dtype) {
  return dtype == at::kFloat ? "float32" : dtype == at::kHalf ? "float16" : "bfloat16";
}

// True when `folder` holds this very import, whole. Throws when it holds anything but a part of it.
bool already_there(const fs::path& folder, const ordered_json& identity) {
  if (!fs::exists(folder) || fs::is_empty(folder)) return false;
  const fs::path record = folder / kRecord;
  DS_CHECK(fs::exists(record), "{}: is not empty and holds no import; choose another --output, or remove it",
           folder.string());
  const ordered_json found = ordered_json::parse(read_file(record), nullptr, /*allow_exceptions=*/false);
  for (const auto& [key, value] : identity.items()) {
    const ordered_json other = found.is_object() && found.contains(key) ? found[key] : ordered_json();
    DS_CHECK(other == value, "{}: holds another import: {} is {} there, {} here; choose another --output, or remove it",
             folder.string(), key, other.dump(), value.dump());
  }
  if (!found.contains("files")) return false;  // killed before its end
  for (const auto& [name, size] : found["files"].items()) {
    const fs::path path = folder / name;
    DS_CHECK(fs::exists(path) && size.is_number_integer() && fs::file_size(path) == size.get<uint64_t>(),
             "{}: was imported whole, but {} is absent or has another size now; remove the folder and import again",
             folder.string(), name);
  }
  return true;
}

}  // namespace

GgufImport import_gguf(const std::string& gguf, const std::string& folder, at::ScalarType dtype) {
  const GgufFile file = GgufFile::open(gguf);
  GgufImport out;
  out.config = gguf_config(file, dtype_name(dtype));
  std::vector<PlannedTensor> weights = gguf_weights(file, out.config, dtype);
  const TokenizerFiles tokenizer = gguf_tokenizer(file, out.config);
  out.source_sha256 = sha256_file(gguf);
  for (const PlannedTensor& tensor : weights) out.parameters += c10::multiply_integers(tensor.shape);
  out.tensors = static_cast<int64_t>(weights.size());

  const fs::path to(folder);
  ordered_json record{{"format", kFormat}, {"gguf_sha256", out.source_sha256}, {"dtype", out.config.dtype}};
  out.reused = already_there(to, record);
  if (!out.reused) {
    check_writable_folder(to, out.parameters * static_cast<int64_t>(c10::elementSize(dtype)) + (16 << 20));
    write_file(to / kRecord, record.dump(2) + "\n");
    std::map<std::string, std::string> files;
    ordered_json config = out.config.raw;
    files["config.json"] = config.dump(2) + "\n";
    files["generation_config.json"] = generation_config(out.config).dump(2) + "\n";
    files["tokenizer.json"] = tokenizer.tokenizer_json;
    files["tokenizer_config.json"] = tokenizer.tokenizer_config_json;
    if (!tokenizer.chat_template.empty()) files["chat_template.jinja"] = tokenizer.chat_template;
    for (const auto& [name, content] : files) {
      write_file(to / name, content);
      record["files"][name] = content.size();
    }
    write_safetensors((to / "model.safetensors").string(), std::move(weights), {{"gguf_sha256", out.source_sha256}});
    record["files"]["model.safetensors"] = fs::file_size(to / "model.safetensors");
    record["gguf"] = fs::path(gguf).filename().string();
    write_file(to / kRecord, record.dump(2) + "\n");
  }
  const ordered_json finished = ordered_json::parse(read_file(to / kRecord));
  for (const auto& [name, size] : finished["files"].items()) out.bytes += size.get<int64_t>();
  return out;
}

}  // namespace draftsmith
