// corpus.h5: what is written is read, what is damaged is an error.
#include "data/corpus.h"

#include <signal.h>
#include <sys/resource.h>

#include <fstream>
#include <random>

#include "data/h5.h"
#include "tests/data/text_fixture.h"

namespace draftsmith {
namespace {

using testing::message_of;
using testing::TemporaryFolder;

const CorpusOrigin kOrigin{"tok", "tmpl", R"({"variables":{}})", 100};

CorpusRow make_row(int64_t i, int64_t length) {
  CorpusRow row{fmt::format("{:032x}", i), "source " + std::to_string(i % 3), i % 2 ? "math" : "", {}, {}};
  for (int64_t t = 0; t < length; ++t) {
    row.tokens.push_back(static_cast<int32_t>((i * 7919 + t * 31) % 49152));
    row.mask.push_back(t >= length / 2);
  }
  return row;
}

std::string write_corpus(const std::string& path, int64_t rows, const CorpusOrigin& origin = kOrigin) {
  CorpusWriter writer(path, origin);
  for (int64_t i = 0; i < rows; ++i) writer.add(make_row(i, 1 + i % 100));
  return writer.finish({{"duplicate", 3}});
}

void expect_rows(const Corpus& corpus, int64_t rows) {
  ASSERT_EQ(corpus.rows(), rows);
  for (int64_t i = 0; i < rows; ++i) {
    const CorpusRow want = make_row(i, 1 + i % 100), got = corpus.row(i);
    ASSERT_EQ(got.row_id, want.row_id);
    ASSERT_EQ(got.source, want.source);
    ASSERT_EQ(got.category, want.category);
    ASSERT_EQ(got.tokens, want.tokens);
    ASSERT_EQ(got.mask, want.mask);
    ASSERT_EQ(corpus.length(i), 1 + i % 100);
  }
}

TEST(Corpus, RowsComeBackAsTheyWereWritten) {
  const TemporaryFolder folder;
  const std::string path = folder.file("corpus.h5");
  const std::string id = write_corpus(path, 250);
  const Corpus corpus = Corpus::open(path);
  expect_rows(corpus, 250);
  EXPECT_EQ(corpus.id(), id);
  EXPECT_EQ(corpus.tokenizer_hash(), "tok");
  EXPECT_EQ(corpus.template_hash(), "tmpl");
  EXPECT_EQ(corpus.origin().template_switches, kOrigin.template_switches);
  EXPECT_EQ(corpus.max_length(), 100);
  EXPECT_EQ(corpus.dropped().dump(), R"({"duplicate":3})");
  EXPECT_CONTAINS(message_of([&] { corpus.row(250); }), "row 250 asked of 250");
  EXPECT_CONTAINS(message_of([&] { corpus.row(-1); }), "row -1");
}

TEST(Corpus, TheIdChangesWithRowsAndWithHowTheyWereMade) {
  const TemporaryFolder folder;
  const std::string path = folder.file("corpus.h5");
  const std::string id = write_corpus(path, 20);
  EXPECT_EQ(write_corpus(path, 20), id);
  EXPECT_NE(write_corpus(path, 21), id);
  for (const CorpusOrigin& other :
       {CorpusOrigin{"x", "tmpl", R"({"variables":{}})", 100}, CorpusOrigin{"tok", "x", R"({"variables":{}})", 100},
        CorpusOrigin{"tok", "tmpl", "{}", 100}, CorpusOrigin{"tok", "tmpl", R"({"variables":{}})", 101}}) {
    EXPECT_NE(write_corpus(path, 20, other), id);
  }
}

TEST(Corpus, RowsThatCannotTrainAreRefused) {
  const TemporaryFolder folder;
  CorpusWriter writer(folder.file("corpus.h5"), kOrigin);
  writer.add({"a", "", "", {1, 2}, {0, 1}});
  EXPECT_CONTAINS(message_of([&] { writer.add({"a", "", "", {1, 2}, {0, 1}}); }), "row a is there already");
  EXPECT_CONTAINS(message_of([&] { writer.add({"b", "", "", {1, 2}, {0, 0}}); }), "row b has no supervised token");
  EXPECT_CONTAINS(message_of([&] { writer.add({"c", "", "", {1, 2}, {1}}); }), "2 tokens and 1 mask values");
  EXPECT_CONTAINS(message_of([&] { writer.add({"d", "", "", {}, {}}); }), "0 tokens");
  EXPECT_CONTAINS(message_of([&] {
                    writer.add({"e", "", "", std::vector<int32_t>(101, 1), std::vector<uint8_t>(101, 1)});
                  }),
                  "101 tokens");
  EXPECT_EQ(writer.rows(), 1);
}

TEST(Corpus, NothingIsLeftOfAWriterThatDidNotFinish) {
  const TemporaryFolder folder;
  { CorpusWriter(folder.file("corpus.h5"), kOrigin).add(make_row(0, 10)); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_CONTAINS(message_of([&] { CorpusWriter(folder.file("corpus.h5"), kOrigin).finish(); }), "no row to write");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Corpus, AFullDiskIsAnErrorAndKeepsTheFormerFile) {
  const TemporaryFolder folder;
  const std::string path = folder.file("corpus.h5");
  const std::string id = write_corpus(path, 10);
  // A limit on file size makes write() fail as a full disk does.
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{32768, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = message_of([&] { write_corpus(path, 5000); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_CONTAINS(message, "corpus.h5");
  EXPECT_CONTAINS(message, ": File too large\n       check the room on the disk");
  EXPECT_EQ(Corpus::open(path).id(), id);
}

TEST(Corpus, AnUnwritableOrMissingFolderIsNamed) {
  EXPECT_CONTAINS(message_of([&] { CorpusWriter("/proc/none/corpus.h5", kOrigin); }), "/proc/none/corpus.h5");
}

TEST(Corpus, OtherFilesAreToldApart) {
  const TemporaryFolder folder;
  EXPECT_CONTAINS(message_of([&] { Corpus::open(folder.file("absent.h5")); }), "no such file");
  EXPECT_CONTAINS(message_of([&] { Corpus::open(folder.write("empty.h5", "")); }), "the file is empty");
  EXPECT_CONTAINS(message_of([&] { Corpus::open(folder.write("text.h5", "hello")); }), "not an HDF5 file");
  H5File::create(folder.file("other.h5")).close();
  EXPECT_CONTAINS(message_of([&] { Corpus::open(folder.file("other.h5")); }), "no corpus");
}

// A file cut or flipped anywhere is either refused or gives the very rows that were written.
TEST(Corpus, DamageIsNeverReadAsData) {
  const TemporaryFolder folder;
  write_corpus(folder.file("whole.h5"), 120);
  const std::string whole = read_file(folder.file("whole.h5"));
  std::mt19937 random(7);
  int64_t refused = 0;
  for (int i = 0; i < 120; ++i) {
    std::string damaged = whole;
    const size_t at = random() % whole.size();
    if (i % 4 == 0)
      damaged.resize(at);
    else
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << (random() % 8)));
    const std::string path = folder.write("damaged.h5", damaged);
    try {
      expect_rows(Corpus::open(path), 120);
    } catch (const Error&) {
      ++refused;
    }
    if (HasFatalFailure()) FAIL() << (i % 4 == 0 ? "cut at " : "flipped at ") << at << " of " << whole.size();
  }
  EXPECT_GE(refused, 60);
}

TEST(Corpus, TheSamplesOfOneConversationStayTogether) {
  const std::string id(32, 'a');
  EXPECT_EQ(conversation_of(id), id);
  EXPECT_EQ(conversation_of(id + "-12"), id);
}

}  // namespace
}  // namespace draftsmith
