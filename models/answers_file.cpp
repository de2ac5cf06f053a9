#include "models/answers_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "data/json_rows.h"
#include "launch/check.h"
#include "launch/file.h"

namespace draftsmith {

namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;

// For an output that another run of this program made, as its state says: nobody's only copy.
std::string remedy(const fs::path& path) {
  return fmt::format("give another --output, or begin anew:  rm -f {0} {0}.part {0}.state.json", path.string());
}

int64_t prompts_of(const std::vector<AnswersGroup>& groups) {
  int64_t prompts = 0;
  for (const AnswersGroup& group : groups) prompts += group.prompts;
  return prompts;
}

nlohmann::ordered_json to_json(const AnswersGroup& group) {
  return {{"prompts", group.prompts},
          {"ids", group.ids},
          {"kept", group.kept},
          {"cut", group.cut},
          {"dropped_cut", group.dropped_cut},
          {"prompt_tokens", group.prompt_tokens},
          {"tokens", group.tokens},
          {"bytes", group.bytes},
          {"crc", group.crc}};
}

AnswersGroup group_from_json(const nlohmann::json& json) {
  AnswersGroup group;
  group.prompts = json.at("prompts").get<int64_t>();
  group.ids = json.at("ids").get<std::string>();
  group.kept = json.at("kept").get<int64_t>();
  group.cut = json.at("cut").get<int64_t>();
  group.dropped_cut = json.at("dropped_cut").get<int64_t>();
  group.prompt_tokens = json.at("prompt_tokens").get<int64_t>();
  group.tokens = json.at("tokens").get<int64_t>();
  group.bytes = json.at("bytes").get<int64_t>();
  group.crc = json.at("crc").get<uint32_t>();
  return group;
}

}  // namespace

AnswersFile::AnswersFile(fs::path path, nlohmann::ordered_json settings, std::vector<AnswersGroup> groups)
    : path_(std::move(path)),
      part_(path_.string() + ".part"),
      state_(path_.string() + ".state.json"),
      settings_(std::move(settings)),
      groups_(std::move(groups)) {
  check_writable_folder(path_.parent_path());
  const char* const another = "give another --output";  // what a person put there is not for this program to remove
  const bool whole = fs::exists(path_), part = fs::exists(part_);
  DS_CHECK(!whole || !part, "both {} and {} exist: one of them is not of this run\n       {}", path_.string(),
           part_.string(), another);
  if (fs::exists(state_)) {
    nlohmann::json state;
    try {
      state = nlohmann::json::parse(read_file(state_));
      DS_CHECK(state.at("format") == kFormat, "{}: format {} is not {}, which this program writes\n       {}",
               state_.string(), state.at("format").dump(), kFormat, remedy(path_));
      read_state(state);
    } catch (const nlohmann::json::exception& error) {
      DS_FAIL("{}: not the state of a run ({})\n       {}", state_.string(), json_words(error), another);
    }
  }
  const fs::path& file = whole ? path_ : part_;
  const bool stated = fs::exists(state_) && (part || !done_.empty() || redone_ > 0);
  DS_CHECK(stated || !fs::exists(file) || fs::file_size(file) == 0,
           "{} exists, but no {} says how it was made\n       {}", file.string(), state_.string(), another);
  DS_CHECK(whole || part || done_.empty(), "{} says that {} groups are finished, but {} is not there\n       {}",
           state_.string(), done_.size(), part_.string(), remedy(path_));
  fd_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  DS_CHECK(fd_ >= 0, "{}: cannot be opened: {}", path_.string(), std::strerror(errno));
  DS_CHECK(::flock(fd_, LOCK_EX | LOCK_NB) == 0, "{}: another process is writing it", path_.string());
  if (done_.empty() || redone_ > 0) write_state();  // before bytes are cut off that the old one speaks of
  if (whole && (done_.size() < groups_.size() || redone_ > 0)) commit_file(path_, part_);
  cut_torn_end();
}

AnswersFile::~AnswersFile() {
  if (fd_ >= 0) ::close(fd_);
}

std::vector<fs::path> AnswersFile::paths(const fs::path& output) {
  return {output, output.string() + ".part", output.string() + ".state.json"};
}

// Takes over the groups that are this run's too; what else differs, "" when nothing.
std::string AnswersFile::difference(const nlohmann::json& settings, const std::vector<AnswersGroup>& theirs) {
  const nlohmann::json ours = settings_;
  for (const auto& [key, value] : ours.items()) {
    const std::string text = settings.contains(key) ? settings.at(key).dump() : "not set";
    if (text != value.dump()) return fmt::format("with {} {}, this run has {}", key, text, value.dump());
  }
  for (const AnswersGroup& group : theirs) {
    const size_t i = done_.size();
    if (i < groups_.size() && groups_[i].ids == group.ids) {
      done_.push_back(group);
      continue;
    }
    // A short last group may have grown since; anything else means other prompts.
    if (i + 1 < theirs.size() || i >= groups_.size() || groups_[i].prompts <= group.prompts) {
      return fmt::format("from other prompts: its group {} of {} prompts is not the same as this run's", i + 1,
                         group.prompts);
    }
    redone_ = group.prompts;
  }
  return "";
}

void AnswersFile::read_state(const nlohmann::json& state) {
  std::vector<AnswersGroup> theirs;
  int64_t kept = 0;
  for (const auto& json : state.at("groups")) {
    theirs.push_back(group_from_json(json));
    kept += theirs.back().kept;
  }
  const std::string other = difference(state.at("settings"), theirs);
  if (other.empty()) return;
  DS_CHECK(kept == 0, "{} was made {}\n       {}", path_.string(), other, remedy(path_));
  done_.clear();
  redone_ = 0;
}

void AnswersFile::cut_torn_end() {
  const int64_t bytes = done_.empty() ? 0 : done_.back().bytes;
  uint32_t crc = 0;
  std::vector<char> buffer(size_t{1} << 20);
  for (int64_t at = 0; at < bytes;) {
    const auto wanted = static_cast<size_t>(std::min<int64_t>(bytes - at, static_cast<int64_t>(buffer.size())));
    const ssize_t got = ::pread(fd_, buffer.data(), wanted, at);
    DS_CHECK(got > 0,
             "{} has {} bytes, its state says {}: it was cut or changed after it was written\n       give another "
             "--output",
             path_.string(), at, bytes);
    crc = crc32(crc, buffer.data(), static_cast<size_t>(got));
    at += got;
  }
  DS_CHECK(done_.empty() || crc == done_.back().crc,
           "{}: its bytes are not those that were written: it was changed since\n       give another --output",
           path_.string());
  DS_CHECK(::ftruncate(fd_, bytes) == 0, "{}: cannot be cut to its {} good bytes: {}", path_.string(), bytes,
           std::strerror(errno));
}

void AnswersFile::append(const std::string& lines, AnswersGroup counts) {
  const AnswersGroup& group = groups_.at(done_.size());
  const AnswersGroup before = done_.empty() ? AnswersGroup{} : done_.back();
  int64_t at = before.bytes;
  for (size_t sent = 0; sent < lines.size();) {
    const ssize_t wrote = ::pwrite(fd_, lines.data() + sent, lines.size() - sent, at);
    if (wrote < 0 && errno == EINTR) continue;
    DS_CHECK(wrote > 0,
             "{}: cannot be written: {}\n       {} of {} prompts are answered and kept; make room and run the same "
             "command again",
             part_.string(), std::strerror(errno), prompts_of(done_), prompts_of(groups_));
    sent += static_cast<size_t>(wrote);
    at += wrote;
  }
  DS_CHECK(::fsync(fd_) == 0, "{}: cannot be flushed to disk: {}", part_.string(), std::strerror(errno));
  counts.prompts = group.prompts;
  counts.ids = group.ids;
  counts.bytes = at;
  counts.crc = crc32(before.crc, lines.data(), lines.size());
  done_.push_back(counts);
  write_state();
}

void AnswersFile::finish() {
  DS_CHECK(done_.size() == groups_.size(), "{}: {} of {} groups are finished", path_.string(), done_.size(),
           groups_.size());
  if (fs::exists(part_)) commit_file(part_, path_);
}

void AnswersFile::write_state() const {
  nlohmann::ordered_json state = {
      {"format", kFormat}, {"settings", settings_}, {"groups", nlohmann::ordered_json::array()}};
  for (const AnswersGroup& group : done_) state["groups"].push_back(to_json(group));
  write_file(state_, state.dump(1) + "\n");
}

}  // namespace draftsmith
