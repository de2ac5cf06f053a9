#include "launch/ranks.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "launch/check.h"

namespace draftsmith {
namespace {

int64_t variable(const char* name, int64_t absent) {
  const char* text = std::getenv(name);
  if (text == nullptr) return absent;
  int64_t value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  DS_CHECK(error == std::errc() && stop == end && value >= 0, "environment variable {}=\"{}\" is not a count; unset it or start with torchrun",
           name, text);
  return value;
}

Ranks read_ranks() {
  const bool has_rank = std::getenv("RANK") != nullptr, has_world = std::getenv("WORLD_SIZE") != nullptr;
  DS_CHECK(has_rank == has_world, "of the variables RANK and WORLD_SIZE only {} is set; start with torchrun, or unset it",
           has_rank ? "RANK" : "WORLD_SIZE");
  Ranks r;
  r.rank = variable("RANK", 0);
  r.world_size = variable("WORLD_SIZE", 1);
  r.local_rank = variable("LOCAL_RANK", 0);
  r.local_world_size = variable("LOCAL_WORLD_SIZE", 1);
  DS_CHECK(r.world_size >= 1 && r.rank < r.world_size, "RANK={} does not fit WORLD_SIZE={}", r.rank, r.world_size);
  DS_CHECK(r.local_world_size >= 1 && r.local_rank < r.local_world_size && r.local_world_size <= r.world_size,
           "LOCAL_RANK={} and LOCAL_WORLD_SIZE={} do not fit WORLD_SIZE={}", r.local_rank, r.local_world_size, r.world_size);
  return r;
}

}  // namespace

const Ranks& ranks() {
  static const Ranks value = read_ranks();
  return value;
}

void require_single_rank(std::string_view command) {
  DS_CHECK(ranks().world_size == 1, "draftsmith {} runs as one process, and this job has {} ranks; call it without torchrun", command,
           ranks().world_size);
}

}  // namespace draftsmith
