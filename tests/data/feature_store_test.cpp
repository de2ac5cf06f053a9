#include "data/feature_store.h"

#include <ATen/ATen.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <random>

#include "data/h5.h"
#include "data/manifest.h"
#include "launch/file.h"
#include "tests/data/text_fixture.h"

namespace draftsmith {
namespace {

namespace fs = std::filesystem;
using testing::message_of;
using testing::TemporaryFolder;

constexpr int64_t kRows = 23, kTaps = 2, kHidden = 6;
constexpr int64_t kShardBytes = 2000;  // two to four samples a shard

StoreIdentity identity(const std::string& dtype = "float32", bool last = true) {
  StoreIdentity out;
  out.target_hash = "aa11";
  out.target_name = "tiny";
  out.corpus_id = "c0ffee";
  out.taps = {1, 3};
  out.hidden_size = kHidden;
  out.dtype = dtype;
  out.with_last = last;
  return out;
}

FeatureSample sample_of(int64_t row) {
  FeatureSample out;
  const int64_t length = 5 + (row * 7) % 11;
  out.row_id = "id" + std::to_string(row * 31);
  out.row = row;
  out.tokens = at::arange(length, at::kLong) * 3 + row;
  out.loss_mask = (at::arange(length) % 2).to(at::kByte);
  out.taps = (at::arange(length * kTaps * kHidden, at::kFloat).reshape({length, kTaps, kHidden}) * 0.37f +
              static_cast<float>(row))
                 .sin();
  out.last = out.taps.select(1, 0).cos();
  return out;
}

void write_rows(FeatureStoreWriter& writer, int64_t until = kRows) {
  for (int64_t row = writer.rows_done(); row < until; ++row) writer.append(sample_of(row));
}

void write_store(const std::string& folder, const StoreIdentity& id = identity()) {
  FeatureStoreWriter writer(folder, id, kRows, kShardBytes);
  write_rows(writer);
  writer.finish();
}

std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::directory_iterator(folder))
    out[entry.path().filename().string()] = read_file(entry.path());
  return out;
}

void expect_whole(const std::string& folder, bool bfloat16 = false) {
  const FeatureStore store = FeatureStore::open(folder);
  ASSERT_EQ(store.rows(), kRows);
  int64_t tokens = 0;
  for (int64_t row : {int64_t{22}, int64_t{0}, int64_t{11}, int64_t{10}, int64_t{1}, int64_t{21}}) {
    const FeatureSample found = store.read(row), wanted = sample_of(row);
    const auto rounded = [&](const at::Tensor& x) { return bfloat16 ? x.to(at::kBFloat16).to(at::kFloat) : x; };
    EXPECT_EQ(found.row, row);
    EXPECT_EQ(found.row_id, wanted.row_id);
    EXPECT_EQ(store.row_id(row), wanted.row_id);
    EXPECT_EQ(store.length(row), wanted.tokens.numel());
    EXPECT_TRUE(found.tokens.equal(wanted.tokens) && found.loss_mask.equal(wanted.loss_mask));
    EXPECT_TRUE(found.taps.equal(rounded(wanted.taps)) && found.last.equal(rounded(wanted.last)));
    EXPECT_TRUE(store.read_tokens(row).tokens.equal(wanted.tokens) && !store.read_tokens(row).taps.defined());
  }
  for (int64_t row = 0; row < kRows; ++row) tokens += sample_of(row).tokens.numel();
  EXPECT_EQ(store.tokens(), tokens);
  EXPECT_EQ(FeatureStore::verify(store.folder()), 0);
}

TEST(FeatureStore, WhatIsAppendedIsReadBack) {
  const TemporaryFolder folder;
  write_store(folder.file("f32"));
  expect_whole(folder.file("f32"));
  EXPECT_GT(read_manifest(folder.file("f32")).shards.size(), 5u);
  EXPECT_EQ(FeatureStore::open(folder.file("f32")).identity().taps, (std::vector<int64_t>{1, 3}));
  write_store(folder.file("bf16"), identity("bfloat16"));
  expect_whole(folder.file("bf16"), true);
  write_store(folder.file("bare"), identity("float32", false));
  EXPECT_FALSE(FeatureStore::open(folder.file("bare")).read(3).last.defined());
  EXPECT_CONTAINS(message_of([&] { FeatureStore::open(folder.file("f32")).read(kRows); }), "row 23 of 23 asked for");
}

TEST(FeatureStore, TheSameSamplesGiveTheSameBytes) {
  const TemporaryFolder folder;
  write_store(folder.file("a"));
  ::usleep(1'100'000);  // a time in the files would show, HDF5 counts whole seconds
  write_store(folder.file("b"));
  EXPECT_EQ(contents(folder.file("a")), contents(folder.file("b")));
}

TEST(FeatureStore, StoppedAfterAnyRowItIsResumedToTheSameFiles) {
  const TemporaryFolder folder;
  write_store(folder.file("whole"));
  const auto whole = contents(folder.file("whole"));
  for (int64_t stop = 0; stop <= kRows; stop += 3) {
    const std::string path = folder.file(std::to_string(stop));
    {
      FeatureStoreWriter writer(path, identity(), kRows, kShardBytes);
      write_rows(writer, stop);
    }
    EXPECT_CONTAINS(message_of([&] { FeatureStore::open(path); }), "its capture has not ended");
    EXPECT_LE(FeatureStore::open(path, false).rows(), stop);
    write_store(path);
    EXPECT_EQ(contents(path), whole) << stop;
  }
  write_store(folder.file("whole"));  // once more: nothing changes
  EXPECT_EQ(contents(folder.file("whole")), whole);
}

// What a kill leaves: the finished shards, the manifest of some moment before or at their end, and parts of any length.
TEST(FeatureStore, CutAtAnyByteIsResumedToTheSameFiles) {
  const TemporaryFolder folder;
  write_store(folder.file("whole"));
  const auto whole = contents(folder.file("whole"));
  const Manifest manifest = read_manifest(folder.file("whole"));
  std::mt19937 random(1);
  for (int trial = 0; trial < 25; ++trial) {
    const std::string path = folder.file("t" + std::to_string(trial));
    fs::create_directory(path);
    const size_t shard = random() % manifest.shards.size();
    Manifest before = manifest;
    before.complete = false;
    before.shards.resize(shard);
    for (const ManifestShard& listed : before.shards) write_file(fs::path(path) / listed.file, whole.at(listed.file));
    const std::string& next = whole.at(manifest.shards[shard].file);
    const bool renamed = trial % 4 == 0;  // killed between the rename and the manifest
    write_file(fs::path(path) / (manifest.shards[shard].file + (renamed ? "" : ".part-99999999")),
               renamed ? next : next.substr(0, random() % next.size()));
    if (shard > 0 || trial % 2) write_manifest(path, before);
    const std::string text = whole.at("manifest.json");
    write_file(fs::path(path) / "manifest.json.part-99999999", text.substr(0, random() % text.size()));
    write_store(path);
    ASSERT_EQ(contents(path), whole) << trial;
  }
}

TEST(FeatureStore, KilledWhileWritingItIsResumedToTheSameFiles) {
  const TemporaryFolder folder;
  write_store(folder.file("whole"));
  const auto whole = contents(folder.file("whole"));
  std::mt19937 random(2);
  for (int trial = 0; trial < 8; ++trial) {
    const std::string path = folder.file("k" + std::to_string(trial));
    const pid_t child = ::fork();
    if (child == 0) {
      write_store(path);
      ::_exit(0);
    }
    ::usleep(static_cast<useconds_t>(random() % 15000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    write_store(path);
    EXPECT_EQ(contents(path), whole) << trial;
  }
}

TEST(FeatureStore, AFinishedShardThatWasCutOrLostIsNamedAndCapturedAgain) {
  const TemporaryFolder folder;
  const std::string path = folder.file("s");
  write_store(path);
  const auto whole = contents(path);
  for (const size_t keep : {size_t{0}, size_t{1}, size_t{700}, whole.at("shard-000-00003.h5").size() - 1}) {
    fs::resize_file(path + "/shard-000-00003.h5", keep);
    EXPECT_CONTAINS(message_of([&] { FeatureStore::open(path); }),
                    "shard-000-00003.h5: has " + std::to_string(keep) + " bytes");
    write_store(path);
    EXPECT_EQ(contents(path), whole);
  }
  fs::remove(path + "/shard-000-00002.h5");
  EXPECT_CONTAINS(message_of([&] { FeatureStore::open(path); }), "shard shard-000-00002.h5 (rows ");
  EXPECT_EQ(FeatureStore::verify(path), read_manifest(path).shards[2].rows);  // the others are looked at all the same
  write_store(path);
  EXPECT_EQ(FeatureStore::verify(path), 0);
  EXPECT_EQ(contents(path), whole);
}

TEST(FeatureStore, AShardCopiedOverAnotherOfEqualSizeIsNamedAndCapturedAgain) {
  const TemporaryFolder folder;
  const std::string path = folder.file("s");
  write_store(path);
  const auto whole = contents(path);
  const std::vector<ManifestShard> shards = read_manifest(path).shards;
  size_t from = 0, to = 1;
  while (to < shards.size() && shards[to].bytes != shards[from].bytes) {
    if (++to == shards.size() && from + 2 < shards.size()) to = ++from + 1;
  }
  ASSERT_LT(to, shards.size()) << "no two shards are of one size";
  write_file(fs::path(path) / shards[to].file, whole.at(shards[from].file));
  const std::string message = message_of([&] { FeatureStore::open(path); });
  EXPECT_CONTAINS(message, shards[to].file + ": its index is not the one that the manifest names");
  EXPECT_CONTAINS(message, "capture again with the same command");
  write_store(path);
  EXPECT_EQ(contents(path), whole);
  expect_whole(path);
}

TEST(FeatureStore, AStoreWithoutAShardBindsNothing) {
  const TemporaryFolder folder;
  { const FeatureStoreWriter failed(folder.file("s"), identity(), kRows + 1); }
  write_store(folder.file("s"), identity("bfloat16"));
  expect_whole(folder.file("s"), true);
}

TEST(FeatureStore, NoFlippedByteIsReadAsTruth) {
  const TemporaryFolder folder;
  const std::string path = folder.file("s"), shard = path + "/shard-000-00001.h5";
  write_store(path);
  std::vector<FeatureSample> truth;
  for (int64_t row = 0; row < kRows; ++row) truth.push_back(sample_of(row));
  const std::string whole = read_file(shard);
  std::vector<size_t> used;  // most of a small shard is the rest of its chunks: zeros that nobody reads
  for (size_t at = 0; at < whole.size(); ++at) {
    if (whole[at] != 0) used.push_back(at);
  }
  std::mt19937 random(4);
  int found = 0;
  const int trials = 150;
  for (int trial = 0; trial < trials; ++trial) {
    std::string bytes = whole;
    bytes[used[random() % used.size()]] ^= static_cast<char>(1 << (random() % 8));
    folder.write("s/shard-000-00001.h5", bytes);
    try {
      const FeatureStore store = FeatureStore::open(path);
      for (int64_t row = 0; row < kRows; ++row) {
        const FeatureSample sample = store.read(row);
        // Whatever is read without an error is the truth: the flipped byte stood where nothing is.
        ASSERT_TRUE(sample.row_id == truth[row].row_id && sample.tokens.equal(truth[row].tokens) &&
                    sample.loss_mask.equal(truth[row].loss_mask) && sample.taps.equal(truth[row].taps) &&
                    sample.last.equal(truth[row].last))
            << trial;
      }
    } catch (const Error& error) {
      ++found;
    }
  }
  EXPECT_GT(found, trials / 2);
  write_file(shard, whole);
  expect_whole(path);
}

TEST(FeatureStore, AFlippedFeatureIsNamedWithItsShardAndRow) {
  const TemporaryFolder folder;
  const std::string path = folder.file("s"), shard = path + "/shard-000-00000.h5";
  write_store(path);
  std::string bytes = read_file(shard);
  const float value = sample_of(1).taps[2][1][3].item<float>();
  const size_t at = bytes.find(std::string(reinterpret_cast<const char*>(&value), 4));
  ASSERT_NE(at, std::string::npos);
  bytes[at] ^= 4;
  write_file(shard, bytes);
  const FeatureStore store = FeatureStore::open(path);
  EXPECT_CONTAINS(message_of([&] { store.read(1); }),
                  "shard-000-00000.h5: sample id31 (row 1) is not what was written");
  EXPECT_TRUE(store.read(0).taps.equal(sample_of(0).taps));
  EXPECT_EQ(FeatureStore::verify(store.folder()), 1);
}

TEST(FeatureStore, ADamagedManifestIsNotBelieved) {
  const TemporaryFolder folder;
  const std::string path = folder.file("s"), manifest = path + "/manifest.json";
  write_store(path);
  const std::string whole = read_file(manifest);
  for (size_t cut = 0; cut + 2 < whole.size(); cut += 7) {
    folder.write("s/manifest.json", whole.substr(0, cut));
    EXPECT_CONTAINS(message_of([&] { FeatureStore::open(path); }), "manifest.json: ") << cut;
  }
  std::string edited = whole;
  edited.replace(edited.find("c0ffee"), 6, "c0ffed");
  write_file(manifest, edited);
  EXPECT_CONTAINS(message_of([&] { FeatureStore::open(path); }), "does not match its CRC");
  edited = whole;
  edited.replace(edited.find("\"version\": 1"), 12, "\"version\": 9");
  write_file(manifest, edited);
  EXPECT_CONTAINS(message_of([&] { FeatureStore::open(path); }), "format version 9, this program reads 1");
  fs::remove(manifest);
  EXPECT_CONTAINS(message_of([&] { FeatureStore::open(path); }), "it is no feature store");
}

TEST(FeatureStore, AnotherTargetCorpusOrShapeIsRefusedWithBothValues) {
  const TemporaryFolder folder;
  const std::string path = folder.file("s");
  write_store(path);
  const auto whole = contents(path);
  const auto fault = [&](auto change) {
    StoreIdentity other = identity();
    change(other);
    return message_of([&] { FeatureStoreWriter(path, other, kRows); });
  };
  EXPECT_CONTAINS(fault([](auto& id) { id.target_hash = "bb22"; }),
                  "weights of the target: the store says aa11, now asked is bb22");
  EXPECT_CONTAINS(fault([](auto& id) { id.corpus_id = "dead"; }), "corpus: the store says c0ffee, now asked is dead");
  EXPECT_CONTAINS(fault([](auto& id) { id.taps = {1, 4}; }), "taps: the store says 1 3, now asked is 1 4");
  EXPECT_CONTAINS(fault([](auto& id) { id.dtype = "bfloat16"; }), "dtype: the store says float32");
  EXPECT_CONTAINS(fault([](auto& id) { id.with_last = false; }), "last state: the store says true");
  EXPECT_CONTAINS(message_of([&] { FeatureStoreWriter(path, identity(), kRows + 1); }),
                  "was begun for 23 rows, the corpus has 24");
  EXPECT_EQ(contents(path), whole);  // nothing was lost by asking

  write_file(folder.file("notes.txt"), "mine");
  EXPECT_CONTAINS(message_of([&] { FeatureStoreWriter(folder.path().string(), identity(), kRows); }),
                  "is not empty and is no feature store");
  EXPECT_EQ(read_file(folder.file("notes.txt")), "mine");
}

TEST(FeatureStore, OneWriterAtATime) {
  const TemporaryFolder folder;
  const FeatureStoreWriter first(folder.file("s"), identity(), kRows);
  EXPECT_CONTAINS(message_of([&] { FeatureStoreWriter(folder.file("s"), identity(), kRows); }),
                  "another process is writing this store");
}

TEST(FeatureStore, WrongSamplesAreRefused) {
  const TemporaryFolder folder;
  FeatureStoreWriter writer(folder.file("s"), identity(), kRows);
  EXPECT_CONTAINS(message_of([&] { writer.append(sample_of(1)); }), "row 1 was appended where row 0 of 23 stands");
  FeatureSample sample = sample_of(0);
  sample.taps = sample.taps.narrow(0, 0, 3);
  EXPECT_CONTAINS(message_of([&] { writer.append(sample); }),
                  "sample id0 (row 0) of 5 tokens: taps has shape [3, 2, 6]");
  sample = sample_of(0);
  sample.last = at::Tensor();
  EXPECT_CONTAINS(message_of([&] { writer.append(sample); }), "last has shape none");
  EXPECT_CONTAINS(message_of([&] { writer.finish(); }), "ended after 0 of 23 rows");
}

// Runs `work` in a child whose files cannot grow beyond `bytes`, as on a disk that is full; returns what it printed as
// its error.
std::string with_file_limit(rlim_t bytes, const std::function<void()>& work) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, bytes};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::string message = "no error";
    try {
      work();
    } catch (const Error& error) {
      message = error.what();
    }
    [[maybe_unused]] const auto n = ::write(ends[1], message.data(), message.size());
    ::_exit(7);
  }
  ::close(ends[1]);
  std::string out;
  char buffer[512];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;) out.append(buffer, static_cast<size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << "the child crashed: " << status;
  return out;
}

TEST(FeatureStore, AFullDiskIsAnErrorAndTheStoreGoesOnLater) {
  const TemporaryFolder folder;
  write_store(folder.file("whole"));
  for (const rlim_t limit : {rlim_t{0}, rlim_t{100}, rlim_t{5000}, rlim_t{40000}}) {
    const std::string path = folder.file("s" + std::to_string(limit));
    const std::string message = with_file_limit(limit, [&] { write_store(path); });
    EXPECT_CONTAINS(message, path);
    write_store(path);
    EXPECT_EQ(contents(path), contents(folder.file("whole"))) << limit;
  }
}

TEST(FeatureStore, AFolderThatCannotBeWrittenIsNamed) {
  const TemporaryFolder folder;
  write_file(folder.file("file"), "x");
  EXPECT_CONTAINS(message_of([&] { FeatureStoreWriter(folder.file("file"), identity(), kRows); }),
                  "cannot be made as a folder");
  EXPECT_CONTAINS(message_of([&] { FeatureStoreWriter("/proc/draftsmith", identity(), kRows); }), "/proc/draftsmith");
}

}  // namespace
}  // namespace draftsmith
