#include "train/checkpoint.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "export/open_drafter.h"
#include "launch/check.h"
#include "launch/file.h"
#include "launch/log.h"

namespace draftsmith {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPart = ".part";

void append_line(const fs::path& path, const std::string& line) {
  std::ofstream out(path, std::ios::app | std::ios::binary);
  out << line << '\n';
  out.flush();
  DS_CHECK(out.good(), "{}: cannot be written to (is the disk full?)", path.string());
}

// Keys that name folders: the same folder can be spelt in many ways.
bool names_folder(const std::string& line) {
  for (const char* key : {"  folder:", "  store:", "  run:"})
    if (line.starts_with(key)) return true;
  return false;
}

// First line in which two configs differ, but for folders; empty: none.
std::string first_difference(const std::string& old_text, const std::string& new_text) {
  std::istringstream old_lines(old_text), new_lines(new_text);
  std::string a, b;
  while (true) {
    const bool has_a = static_cast<bool>(std::getline(old_lines, a)),
               has_b = static_cast<bool>(std::getline(new_lines, b));
    if (!has_a) a.clear();
    if (!has_b) b.clear();
    if (!has_a && !has_b) return "";
    if (a != b && !(names_folder(a) && names_folder(b))) return fmt::format("`{}` there, `{}` now", a, b);
  }
}

// Keeps the lines of finished steps up to `step`; a torn last line is dropped.
void cut_metrics(const fs::path& path, int64_t step) {
  if (!fs::exists(path)) return;
  std::istringstream lines(read_file(path));
  std::string kept, line;
  while (std::getline(lines, line)) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object() && json.value("step", step + 1) <= step) kept += line + "\n";
  }
  write_file(path, kept);
}

}  // namespace

RunFolder::RunFolder(const std::string& folder, const std::string& config_yaml) : folder_(folder) {
  const fs::path config = fs::path(folder) / "config.yaml";
  check_writable_folder(folder);
  lock_ = std::make_unique<FolderLock>(folder, "run");
  if (fs::exists(config)) {
    const std::string difference = first_difference(read_file(config), config_yaml);
    DS_CHECK(difference.empty(),
             "{}: belongs to another run: {}\n       take another output.run, or remove that folder to train anew",
             folder, difference);
  } else {
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      DS_CHECK(name.starts_with("config.yaml.part-"),  // of a run that was killed in its first moment
               "{}: is not empty and no run of this program ({} is in it, config.yaml is not); take another output.run",
               folder, name);
    }
    write_file(config, config_yaml);
  }
  const fs::path checkpoints = fs::path(folder) / "checkpoints";
  fs::create_directories(checkpoints);
  for (const auto& entry : fs::directory_iterator(checkpoints))
    if (entry.path().extension() == kPart) fs::remove_all(entry.path());  // of a killed run
}

std::string RunFolder::newest() const {
  const fs::path latest = fs::path(folder_) / "latest";
  if (!fs::exists(latest)) return "";
  std::string name = read_file(latest);
  while (!name.empty() && name.back() == '\n') name.pop_back();
  const fs::path path = fs::path(folder_) / name;
  DS_CHECK(
      fs::exists(path / "state.json"),
      "{}: names {}, which is no whole checkpoint\n       remove {} to train anew, or name an older checkpoint in it",
      latest.string(), name, folder_);
  return path.string();
}

TrainState RunFolder::resume(const Drafter& drafter, const DrafterIdentity& identity, Optimizer& optimizer) {
  const std::string from = newest();
  DS_CHECK(!from.empty(), "{}: has no checkpoint to go on from", folder_);
  restore_drafter(drafter, identity, from);
  const SafetensorsFile file = SafetensorsFile::open(from + "/optimizer.safetensors");
  NamedTensors moments;
  for (const auto& [key, entry] : file.entries()) moments.emplace_back(key, file.tensor(key));
  optimizer.load(moments, file.path());
  const auto json = nlohmann::json::parse(read_file(from + "/state.json"), nullptr, false);
  DS_CHECK(json.is_object() && json.contains("step") && json.contains("samples"),
           "{}/state.json: not the state of a run", from);
  TrainState state;
  state.step = json.at("step");
  state.samples = json.at("samples");
  state.seconds = json.value("seconds", 0.0);
  state.library = json.value("library", "");
  cut_metrics(fs::path(folder_) / "metrics.jsonl", state.step);
  return state;
}

void RunFolder::save(const TrainState& state, const Drafter& drafter, const DrafterIdentity& identity,
                     const Optimizer& optimizer, int64_t keep) {
  const fs::path checkpoints = fs::path(folder_) / "checkpoints";
  const std::string name = fmt::format("step-{}", state.step);
  const fs::path path = checkpoints / name, part = checkpoints / (name + kPart);
  fs::remove_all(part);
  save_drafter(drafter, identity, part.string());
  write_safetensors((part / "optimizer.safetensors").string(), optimizer.state());
  nlohmann::ordered_json json;
  json["step"] = state.step;
  json["samples"] = state.samples;
  json["seconds"] = state.seconds;
  json["library"] = state.library;
  write_file(part / "state.json", json.dump(2) + "\n");
  fs::remove_all(path);
  fs::rename(part, path);
  write_file(fs::path(folder_) / "latest", "checkpoints/" + name + "\n");
  remove_old(keep);
}

void RunFolder::remove_old(int64_t keep) const {
  const std::vector<std::string> found = checkpoint_folders(folder_);
  const fs::path newest_path(newest());
  for (size_t i = static_cast<size_t>(keep); i < found.size(); ++i)
    if (fs::path(found[i]) != newest_path) fs::remove_all(found[i]);
}

void RunFolder::metric(const nlohmann::ordered_json& line) {
  append_line(fs::path(folder_) / "metrics.jsonl", line.dump());
}

void RunFolder::event(const std::string& kind, const nlohmann::ordered_json& facts) {
  nlohmann::ordered_json line;
  line["event"] = kind;
  line.update(facts);
  append_line(fs::path(folder_) / "log.jsonl", line.dump());
}

void RunFolder::warning(const std::string& text) {
  warn_line(text);
  event("warning", {{"text", text}});
}

}  // namespace draftsmith
