// launch/quickstart with a program that only writes what each step writes: which steps run again, and what is handed
// on.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/support.h"

namespace draftsmith {

namespace fs = std::filesystem;

namespace {

constexpr const char* kProgram = R"sh(#!/bin/bash
cd "$(dirname "$0")/.."
echo "$1" >>calls
echo "$*" >>words
[ "$1" = "$(cat broken 2>/dev/null)" ] && exit 1
for word; do
  case $word in output.run=*) mkdir -p "${word#*=}" && echo x >"${word#*=}/latest" ;; esac
  if [ "${before:-}" = --output ]; then
    case $1 in
      capture) mkdir -p "$word" && echo x >"$word/manifest.json" ;;
      export) mkdir -p "$word" && echo x >"$word/export.json" ;;
      *) echo '{"tau":2,"tau_ngram":1,"break_even_tau":1,"speedup":1.5,"outputs_identical":1,"outputs_total":1}' >"$word" ;;
    esac
  fi
  before=$word
done
exit 0
)sh";

class Quickstart : public ::testing::Test {
 protected:
  Quickstart() {
    program("launch/quickstart", read_file(fs::path(DRAFTSMITH_SOURCE) / "launch/quickstart"));
    program("launch/setup", "#!/bin/bash\n");
    program("launch/fetch_smollm2", "#!/bin/bash\necho target\n");
    program("launch/environment.sh", "DRAFTSMITH_BUILD=build DRAFTSMITH_VENV=venv\n");
    program("build/draftsmith", kProgram);
    // The Python of the virtual environment: `-c` and `-m` (is llama.cpp's server there, can it be had) fail when the
    // file `bare` says so; a script is the step `serve`.
    program("venv/bin/python",
            "#!/bin/bash\ncase $1 in -c | -m) [ ! -e bare ] ;; *) echo serve >>calls; echo {} >\"${@: -1}\" ;; esac\n");
    program("data/samples/make_samples.py",
            "import pathlib, sys\npathlib.Path(sys.argv[-1]).mkdir(parents=True, exist_ok=True)\n"
            "pathlib.Path(sys.argv[-1], 'train.jsonl').write_text('x')\nopen('calls', 'a').write('samples\\n')\n");
    program("configs/recipes/quickstart.yaml", "drafter:\n  layers: 2\n");
    program("tests/clients/serve_llama_cpp.py", "");
  }

  void program(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(folder / name).parent_path());
    write_file(folder / name, text);
    fs::permissions(folder / name, fs::perms::owner_all);
  }
  // The steps that ran, in order.
  std::string run() const {
    fs::remove(folder / "calls");
    status = std::system(fmt::format("{} >{} 2>&1", folder / "launch/quickstart", folder / "said").c_str());
    if (!fs::exists(folder / "calls")) return "";
    std::string calls = read_file(folder / "calls");
    for (char& c : calls)
      if (c == '\n') c = ' ';
    return calls;
  }

  testing::TemporaryFolder folder;
  mutable int status = 0;
};

TEST_F(Quickstart, StepsThatAreFinishedAreNotRunAgain) {
  EXPECT_EQ(run(), "samples generate prepare capture train export evaluate serve report ");
  EXPECT_EQ(status, 0) << read_file(folder / "said");
  EXPECT_EQ(run(), "");
  EXPECT_EQ(status, 0) << read_file(folder / "said");
}

TEST_F(Quickstart, AnEditedRecipeRunsTrainingAndAllThatRestsOnIt) {
  run();
  program("configs/recipes/quickstart.yaml", "drafter:\n  layers: 3\n");
  EXPECT_EQ(run(), "train export evaluate serve report ");
  EXPECT_EQ(run(), "");
}

TEST_F(Quickstart, AnOutputThatIsGoneIsMadeAgainWithAllThatRestsOnIt) {
  run();
  fs::remove_all(folder / "runs/quickstart/features");
  EXPECT_EQ(run(), "capture train export evaluate serve report ");
  EXPECT_EQ(run(), "");
}

TEST_F(Quickstart, ARepeatedStepThatFailsLeavesNoLaterStepFinished) {
  run();
  fs::remove(folder / "runs/quickstart/steps/prepare");
  write_file(folder / "broken", "train\n");
  EXPECT_EQ(run(), "prepare capture train ");
  EXPECT_NE(status, 0);
  fs::remove(folder / "broken");
  EXPECT_EQ(run(), "train export evaluate serve report ");
}

TEST_F(Quickstart, ServedFiguresAreHandedOnOnlyWhereTheyWereMeasured) {
  write_file(folder / "bare", "");
  EXPECT_EQ(run(), "samples generate prepare capture train export evaluate report ");
  EXPECT_EQ(status, 0) << read_file(folder / "said");
  EXPECT_EQ(read_file(folder / "words").find("--served"), std::string::npos);
  fs::remove(folder / "bare");
  EXPECT_EQ(run(), "serve report ");
  EXPECT_CONTAINS(read_file(folder / "words"), "--served runs/quickstart/served.json");
}

}  // namespace
}  // namespace draftsmith
