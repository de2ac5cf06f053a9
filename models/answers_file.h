// The file that `generate` writes, whole groups at a time, so that a killed run goes on and ends in the same bytes.
//
// While it grows it is `NAME.part`; it gets its name when the last group is in it. Beside it `NAME.state.json` holds
// the settings that made it and, for every finished group, which prompts it answered, its counts and the length and
// checksum of the file behind it. The state is written (atomically) after the group's lines are on disk: what lies
// behind the last recorded length is a torn end and is cut off.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace draftsmith {

// One finished group.
struct AnswersGroup {
  int64_t prompts = 0;  // rows that went in
  std::string ids;      // SHA-256 over their content ids, in order
  int64_t kept = 0, cut = 0,
          dropped_cut = 0;  // lines written; of these, answers cut by the length limit; cut answers that were left out
  int64_t prompt_tokens = 0, tokens = 0;  // of all rows that went in
  int64_t bytes = 0;                      // length of the file behind this group
  uint32_t crc = 0;                       // CRC-32 of the file up to there
};

class AnswersFile {
 public:
  // `settings`: everything that decides the bytes. `groups`: prompts and ids of every group of this run, in order.
  // Continues what is there. Throws Error, before anything is written, when the file was made with other settings (the
  // setting is named with both values) or from other prompts, was changed by somebody else, or has no state beside it;
  // and when another process writes it. A former run without one line written binds nothing: this one begins anew.
  AnswersFile(std::filesystem::path path, nlohmann::ordered_json settings, std::vector<AnswersGroup> groups);
  ~AnswersFile();
  AnswersFile(const AnswersFile&) = delete;
  AnswersFile& operator=(const AnswersFile&) = delete;

  // The files that a run with this output writes.
  static std::vector<std::filesystem::path> paths(const std::filesystem::path& output);

  // The finished groups, with their counts.
  const std::vector<AnswersGroup>& done() const { return done_; }
  // Lines that the state of a former run holds for no group of this one (its last group was short, and there are more
  // prompts now).
  int64_t redone() const { return redone_; }
  // Adds the lines of the next group; its prompts, ids, bytes and crc are filled in here.
  void append(const std::string& lines, AnswersGroup counts);
  // All groups are in: the file gets its name.
  void finish();

 private:
  void read_state(const nlohmann::json& state);
  std::string difference(const nlohmann::json& settings, const std::vector<AnswersGroup>& theirs);
  void cut_torn_end();
  void write_state() const;

  std::filesystem::path path_, part_, state_;
  nlohmann::ordered_json settings_;
  std::vector<AnswersGroup> groups_, done_;
  int64_t redone_ = 0;
  int fd_ = -1;
};

}  // namespace draftsmith
