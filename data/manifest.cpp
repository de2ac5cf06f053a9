#include "data/manifest.h"

#include <fmt/ranges.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/json_rows.h"
#include "launch/check.h"
#include "launch/file.h"

namespace draftsmith {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kName = "manifest.json";
constexpr const char* kFormat = "draftsmith feature store";
constexpr int64_t kVersion = 1;

uint32_t crc_of(const ordered_json& body) {
  const std::string text = body.dump();
  return crc32(0, text.data(), text.size());
}

ordered_json to_json(const Manifest& manifest) {
  const StoreIdentity& id = manifest.identity;
  ordered_json out;
  out["format"] = kFormat;
  out["version"] = kVersion;
  out["target"] = {{"name", id.target_name}, {"weights", id.target_hash}};
  out["corpus"] = id.corpus_id;
  out["taps"] = id.taps;
  out["hidden_size"] = id.hidden_size;
  out["dtype"] = id.dtype;
  // The state after the final norm: what the head multiplies.
  out["last"] = id.with_last ? ordered_json("post_norm") : ordered_json();
  out["rows_total"] = manifest.rows_total;
  out["complete"] = manifest.complete;
  out["shards"] = ordered_json::array();
  for (const ManifestShard& shard : manifest.shards) {
    out["shards"].push_back({{"file", shard.file},
                             {"first_row", shard.first_row},
                             {"rows", shard.rows},
                             {"tokens", shard.tokens},
                             {"bytes", shard.bytes},
                             {"index_crc", shard.index_crc}});
  }
  return out;
}

Manifest from_json(const ordered_json& in) {
  Manifest out;
  StoreIdentity& id = out.identity;
  id.target_name = in.at("target").at("name").get<std::string>();
  id.target_hash = in.at("target").at("weights").get<std::string>();
  id.corpus_id = in.at("corpus").get<std::string>();
  id.taps = in.at("taps").get<std::vector<int64_t>>();
  id.hidden_size = in.at("hidden_size").get<int64_t>();
  id.dtype = in.at("dtype").get<std::string>();
  id.with_last = !in.at("last").is_null();
  out.rows_total = in.at("rows_total").get<int64_t>();
  out.complete = in.at("complete").get<bool>();
  for (const ordered_json& shard : in.at("shards")) {
    out.shards.push_back({shard.at("file").get<std::string>(), shard.at("first_row").get<int64_t>(),
                          shard.at("rows").get<int64_t>(), shard.at("tokens").get<int64_t>(),
                          shard.at("bytes").get<int64_t>(), shard.at("index_crc").get<uint32_t>()});
  }
  return out;
}

}  // namespace

int64_t Manifest::rows() const {
  return shards.empty() ? 0 : shards.back().first_row + shards.back().rows;
}

bool has_manifest(const std::string& folder) {
  return fs::exists(fs::path(folder) / kName);
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = (fs::path(folder) / kName).string();
  DS_CHECK(fs::exists(path), "{}: holds no {}: it is no feature store (draftsmith capture makes one)", folder, kName);
  ordered_json json = ordered_json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  DS_CHECK(json.is_object() && json.contains("format") && json["format"] == kFormat,
           "{}: is not the manifest of a feature store", path);
  DS_CHECK(json.contains("version") && json["version"] == kVersion, "{}: format version {}, this program reads {}",
           path, json.contains("version") ? json["version"].dump() : "none", kVersion);
  const ordered_json stated = json.contains("crc32") ? json["crc32"] : ordered_json();
  json.erase("crc32");
  DS_CHECK(
      stated == crc_of(json),
      "{}: its content does not match its CRC; the file was damaged or edited: remove the folder and capture again",
      path);
  Manifest out;
  try {
    out = from_json(json);
  } catch (const nlohmann::json::exception& error) {
    DS_FAIL("{}: {}", path, json_words(error));
  }
  int64_t next = 0;
  for (const ManifestShard& shard : out.shards) {
    DS_CHECK(shard.first_row == next && shard.rows > 0 && fs::path(shard.file).filename() == shard.file,
             "{}: shard {} begins at row {}, the one before ends at {}", path, shard.file, shard.first_row, next);
    next += shard.rows;
  }
  DS_CHECK(out.complete ? next == out.rows_total : next <= out.rows_total, "{}: {} rows in shards, {} in all", path,
           next, out.rows_total);
  return out;
}

void write_manifest(const std::string& folder, const Manifest& manifest) {
  ordered_json json = to_json(manifest);
  json["crc32"] = crc_of(json);
  write_file(fs::path(folder) / kName, json.dump(2) + "\n");
}

std::string identity_difference(const StoreIdentity& stored, const StoreIdentity& wanted) {
  const auto differ = [](const char* what, const auto& a, const auto& b) {
    return a == b ? std::string() : fmt::format("{}: the store says {}, now asked is {}", what, a, b);
  };
  for (const std::string& found : {
           differ("weights of the target", stored.target_hash, wanted.target_hash),
           differ("corpus", stored.corpus_id, wanted.corpus_id),
           differ("taps", fmt::format("{}", fmt::join(stored.taps, " ")),
                  fmt::format("{}", fmt::join(wanted.taps, " "))),
           differ("hidden size", stored.hidden_size, wanted.hidden_size),
           differ("dtype", stored.dtype, wanted.dtype),
           differ("last state", stored.with_last, wanted.with_last),
       }) {
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace draftsmith
