// Runs build/draftsmith as a user does, whole, killed after a delay, or on a disk that is full after so many bytes.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "launch/file.h"

namespace draftsmith {

struct RunLimits {
  double kill_after = 0;   // seconds; 0: never
  int64_t file_bytes = 0;  // longest file it may write; 0: any
};

struct RunResult {
  int code = -1;  // exit status; -1: killed
  std::string output;
  double seconds = 0;
};

inline RunResult run_program(const std::vector<std::string>& arguments, const RunLimits& limits = {}) {
  std::string log = (std::filesystem::temp_directory_path() / "draftsmith-log-XXXXXX").string();
  const int fd = ::mkstemp(log.data());
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(fd, STDOUT_FILENO);
    ::dup2(fd, STDERR_FILENO);
    if (limits.file_bytes > 0) {
      const rlimit limit{static_cast<rlim_t>(limits.file_bytes), static_cast<rlim_t>(limits.file_bytes)};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      ::signal(SIGXFSZ, SIG_IGN);
    }
    std::vector<char*> argv{const_cast<char*>(DRAFTSMITH_PROGRAM)};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    ::execv(DRAFTSMITH_PROGRAM, argv.data());
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (limits.kill_after > 0 && elapsed() >= limits.kill_after) ::kill(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  RunResult result;
  result.seconds = elapsed();
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  result.output = read_file(log);
  ::close(fd);
  ::unlink(log.c_str());
  return result;
}

// Name and content of every file below a folder (or of one file and those whose names begin with its name).
inline std::map<std::string, std::string> files_of(const std::string& path) {
  std::map<std::string, std::string> files;
  const std::filesystem::path root(path);
  if (std::filesystem::is_directory(root)) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      if (entry.is_regular_file())
        files[std::filesystem::relative(entry.path(), root).string()] = read_file(entry.path());
    }
    return files;
  }
  const std::string name = root.filename().string();
  for (const auto& entry : std::filesystem::directory_iterator(root.parent_path())) {
    const std::string own = entry.path().filename().string();
    if (own.rfind(name, 0) == 0) files[own.substr(name.size())] = read_file(entry.path());
  }
  return files;
}

}  // namespace draftsmith
