// Who the process is, what it says at its end, how the program answers wrong words.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>

#include "launch/check.h"
#include "launch/file.h"
#include "launch/log.h"
#include "launch/summary.h"

namespace draftsmith {
namespace {

struct Ended {
  int status;
  std::string words;
};

// Runs the program through a shell; words are standard output and error together.
Ended run(const std::string& environment, const std::string& arguments) {
  FILE* pipe = popen((environment + " " + DRAFTSMITH_PROGRAM + " " + arguments + " 2>&1").c_str(), "r");
  Ended ended{-1, ""};
  std::array<char, 4096> buffer;
  while (const size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) ended.words.append(buffer.data(), n);
  ended.status = WEXITSTATUS(pclose(pipe));
  return ended;
}

TEST(Program, EveryCommandHasHelpWithAnExample) {
  const Ended all = run("", "--help");
  EXPECT_EQ(all.status, 0);
  for (const char* command : {"import", "generate", "prepare", "capture", "store", "train", "export", "evaluate", "report"}) {
    EXPECT_NE(all.words.find(std::string("  ") + command), std::string::npos) << command;
    const Ended help = run("", std::string(command) + " --help");
    EXPECT_EQ(help.status, 0) << command;
    EXPECT_NE(help.words.find(std::string("draftsmith ") + command), std::string::npos) << command << " shows no example:\n" << help.words;
  }
}

TEST(Program, AnUnknownCommandOrOptionFails) {
  EXPECT_NE(run("", "trian").status, 0);
  EXPECT_NE(run("", "train --confg x").status, 0);
  EXPECT_NE(run("", "").status, 0);
}

TEST(Program, RanksThatContradictEachOtherAreRefused) {
  const std::string command = "store info /nonexistent";
  EXPECT_NE(run("RANK=0", command).words.find("of the variables RANK and WORLD_SIZE only RANK is set"), std::string::npos);
  EXPECT_NE(run("RANK=2 WORLD_SIZE=2", command).words.find("RANK=2 does not fit WORLD_SIZE=2"), std::string::npos);
  EXPECT_NE(run("RANK=x WORLD_SIZE=2", command).words.find("RANK=\"x\" is not a count"), std::string::npos);
}

TEST(Summary, AnAccountThatDoesNotCloseIsAnError) {
  Summary summary;
  summary.command = "prepare";
  summary.rows_in = 10;
  summary.rows_kept = 7;
  summary.drop("too short", 2);
  EXPECT_THROW(summary.finish(), Error);
  summary.drop("no answer");
  EXPECT_NO_THROW(summary.finish());
  EXPECT_EQ(summary.rows_line(), "7 of 10 rows (1 no answer, 2 too short)");
}

TEST(Summary, TheJsonSaysTheSame) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("draftsmith-summary-{}.json", getpid());
  Summary summary;
  summary.command = "prepare";
  summary.rows_in = summary.rows_kept = 3;
  summary.facts["tokens"] = 12;
  summary.json_file = path.string();
  summary.finish();
  const auto json = nlohmann::json::parse(read_file(path));
  std::filesystem::remove(path);
  EXPECT_EQ(json.at("rows_in"), 3);
  EXPECT_EQ(json.at("tokens"), 12);
  EXPECT_GT(json.at("peak_memory_bytes"), 0);
}

TEST(Words, NumbersReadAsAPersonWouldWriteThem) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
  EXPECT_EQ(short_count(1310000), "1.31 M");
  EXPECT_EQ(short_bytes(2.1 * 1024 * 1024 * 1024), "2.1 GiB");
  EXPECT_EQ(short_time(312), "5:12");
  EXPECT_EQ(short_time(3661), "1:01:01");
}

}  // namespace
}  // namespace draftsmith
