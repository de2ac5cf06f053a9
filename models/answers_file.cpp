#include "models/answers_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "launch/check.h"
#include "launch/file.h"

namespace draftsmith {

namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;

std::string remedy(const fs::path& path) {
  return fmt::format("give another --output, or begin anew:  rm -f {0} {0}.part {0}.state.json", path.string());
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
  check_writable_folder(path_.has_parent_path() ? path_.parent_path() : fs::path("."));
  const bool whole = fs::exists(path_), part = fs::exists(part_);
  DS_CHECK(!whole || !part, "both {} and {} exist: one of them is not of this run\n       {}", path_.string(),
           part_.string(), remedy(path_));
  if (fs::exists(state_)) {
    nlohmann::json state;
    try {
      state = nlohmann::json::parse(read_file(state_));
      DS_CHECK(state.at("format") == kFormat, "{}: format {} is not {}, which this program writes\n       {}",
               state_.string(), state.at("format").dump(), kFormat, remedy(path_));
      read_state(state);
    } catch (const nlohmann::json::exception& error) {
      DS_FAIL("{}: not the state of a run ({})\n       {}", state_.string(), error.what(), remedy(path_));
    }
  } else {
    DS_CHECK(!whole && !part, "{} exists, but there is no {} that says how it was made\n       {}",
             (whole ? path_ : part_).string(), state_.string(), remedy(path_));
  }
  DS_CHECK(whole || part || done_.empty(), "{} says that {} groups are finished, but {} is not there\n       {}",
           state_.string(), done_.size(), part_.string(), remedy(path_));
  if (whole && done_.size() == groups_.size() && redone_ == 0) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
  } else {
    if ((!whole && !part) || redone_ > 0) write_state();  // before bytes are cut off that the old one speaks of
    if (whole) commit_file(path_, part_);
    fd_ = ::open(part_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  }
  DS_CHECK(fd_ >= 0, "{}: cannot be opened: {}", path_.string(), std::strerror(errno));
  DS_CHECK(::flock(fd_, LOCK_EX | LOCK_NB) == 0, "{}: another process is writing it", path_.string());
  cut_torn_end();
}

AnswersFile::~AnswersFile() {
  if (fd_ >= 0) ::close(fd_);
}

void AnswersFile::read_state(const nlohmann::json& state) {
  const nlohmann::json ours = settings_, theirs = state.at("settings");
  for (const auto& [key, value] : ours.items()) {
    const std::string theirs_text = theirs.contains(key) ? theirs.at(key).dump() : "not set";
    DS_CHECK(theirs_text == value.dump(), "{} was made with {} {}, this run has {}\n       {}", path_.string(), key,
             theirs_text, value.dump(), remedy(path_));
  }
  for (const auto& json : state.at("groups")) {
    const AnswersGroup group = group_from_json(json);
    const size_t i = done_.size();
    // A short last group may have grown since; anything else means other prompts.
    const bool last = i + 1 == state.at("groups").size();
    if (i < groups_.size() && groups_[i].ids == group.ids) {
      done_.push_back(group);
      continue;
    }
    DS_CHECK(last && i < groups_.size() && groups_[i].prompts > group.prompts,
             "{} was made from other prompts: its group {} of {} prompts is not the same as this run's\n       {}",
             path_.string(), i + 1, group.prompts, remedy(path_));
    redone_ = group.prompts;
  }
}

void AnswersFile::cut_torn_end() {
  const int64_t bytes = done_.empty() ? 0 : done_.back().bytes;
  uint32_t crc = 0;
  std::vector<char> buffer(size_t{1} << 20);
  for (int64_t at = 0; at < bytes;) {
    const auto wanted = static_cast<size_t>(std::min<int64_t>(bytes - at, static_cast<int64_t>(buffer.size())));
    const ssize_t got = ::pread(fd_, buffer.data(), wanted, at);
    DS_CHECK(got > 0, "{} has {} bytes, its state says {}: it was cut or changed after it was written\n       {}",
             path_.string(), at, bytes, remedy(path_));
    crc = crc32(crc, buffer.data(), static_cast<size_t>(got));
    at += got;
  }
  DS_CHECK(done_.empty() || crc == done_.back().crc,
           "{}: its bytes are not those that were written: it was changed since\n       {}", path_.string(),
           remedy(path_));
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
             part_.string(), std::strerror(errno), done_.size() * static_cast<size_t>(groups_.front().prompts),
             groups_.size() * static_cast<size_t>(groups_.front().prompts));
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
