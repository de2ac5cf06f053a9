#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "data/text.h"
#include "models/decoding/decode.h"
#include "tests/models/run_program.h"
#include "tests/models/tiny_model.h"

namespace draftsmith {
namespace {

using nlohmann::json;

class Generate : public ::testing::Test {
 protected:
  Generate() {
    tiny::write_model(folder / "model", 7, {3, 50, 77, 101, 160});
    write_prompts(30);
  }

  std::string prompt_row(int64_t i) const {
    return json{{"id", "row-" + std::to_string(i)},
                {"category", i % 2 ? "odd" : "even"},
                {"messages",
                 {{{"role", "user"},
                   {"content", "question " + std::to_string(i * i) + std::string(static_cast<size_t>(i % 7), '?')}}}}}
               .dump() +
           "\n";
  }
  void write_prompts(int64_t count, const std::string& more = "") {
    std::string text;
    for (int64_t i = 0; i < count; ++i) text += prompt_row(i);
    write_file(folder / "prompts.jsonl", text + more);
  }
  std::vector<std::string> command(const std::string& output, const std::vector<std::string>& more = {},
                                   const std::string& longest = "40") const {
    std::vector<std::string> arguments{"generate",
                                       "--target",
                                       folder / "model",
                                       "--input",
                                       folder / "prompts.jsonl",
                                       "--output",
                                       folder / output,
                                       "--batch",
                                       "4",
                                       "--max-new-tokens",
                                       longest,
                                       "--threads",
                                       "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  std::vector<json> rows(const std::string& output) const {
    std::vector<json> rows;
    std::istringstream lines(read_file(folder / output));
    for (std::string line; std::getline(lines, line);) rows.push_back(json::parse(line));
    return rows;
  }
  // The same command again and again, each time cut short by `limits(call)`, then once to the end.
  void interrupted(const std::string& output, const std::vector<std::string>& more, int64_t times,
                   const std::function<RunLimits(int64_t)>& limits) {
    for (int64_t i = 0; i < times; ++i) run_program(command(output, more), limits(i));
    const RunResult last = run_program(command(output, more));
    EXPECT_EQ(last.code, 0) << last.output;
  }

  testing::TemporaryFolder folder;
};

using GenerateSlow = Generate;

TEST_F(Generate, AnswersAreThoseOfPlainDecodingInTheOrderOfTheRows) {
  const RunResult run = run_program(command("a.jsonl", {"--json", folder / "a.json"}));
  ASSERT_EQ(run.code, 0) << run.output;
  const auto answers = rows("a.jsonl");
  ASSERT_EQ(answers.size(), 30U);
  const auto target = load_target(folder / "model");
  const Tokenizer tokenizer = Tokenizer::load(folder / "model");
  DecodeOptions options;
  options.max_new_tokens = 40;
  options.stop = {3, 50, 77, 101, 160, tiny::kEnd};
  int64_t stopped = 0, tokens = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    const json& row = answers[i];
    EXPECT_EQ(row["id"], "row-" + std::to_string(i));
    EXPECT_EQ(row["category"], i % 2 ? "odd" : "even");
    ASSERT_EQ(row["messages"].size(), 2U);
    const std::string text =
        "<|im_start|>user\n" + row["messages"][0]["content"].get<std::string>() + "<|im_end|>\n<|im_start|>assistant\n";
    DecodeResult result = decode(*target, nullptr, tokenizer.encode(text).ids, options);
    EXPECT_EQ(row["completion_tokens"], result.tokens.size());
    EXPECT_EQ(row["finish_reason"], result.stopped ? "stop" : "length");
    tokens += static_cast<int64_t>(result.tokens.size());
    stopped += result.stopped;
    if (result.stopped) result.tokens.pop_back();
    EXPECT_EQ(row["messages"][1]["content"], tokenizer.decode(result.tokens));
  }
  EXPECT_GT(stopped, 0);
  EXPECT_LT(stopped, 30);
  const json summary = json::parse(read_file(folder / "a.json"));
  EXPECT_EQ(summary["rows_in"], 30);
  EXPECT_EQ(summary["rows_kept"], 30);
  EXPECT_EQ(summary["tokens"], tokens);
  EXPECT_EQ(summary["answers_cut"], 30 - stopped);
}

TEST_F(Generate, AFullDiskIsNamedAndTheNextRunEndsInTheSameBytes) {
  ASSERT_EQ(run_program(command("a.jsonl")).code, 0);
  const auto whole = files_of(folder / "a.jsonl");
  ASSERT_EQ(whole.size(), 2U);
  const auto bytes = static_cast<int64_t>(whole.at("").size());
  const RunResult full = run_program(command("b.jsonl"), {0, bytes / 3});
  EXPECT_EQ(full.code, 1);
  EXPECT_NE(full.output.find("b.jsonl"), std::string::npos) << full.output;
  EXPECT_CONTAINS(full.output, " of 30 prompts are answered and kept");  // the last group of four holds two
  EXPECT_FALSE(std::filesystem::exists(folder / "b.jsonl"));
  interrupted("b.jsonl", {}, 5, [&](int64_t i) { return RunLimits{0, bytes / 4 + i * bytes / 7}; });
  EXPECT_TRUE(files_of(folder / "b.jsonl") == whole);
}

TEST_F(Generate, KilledRunsEndInTheSameBytes) {
  const std::vector<std::string> sampled{"--temperature", "0.8", "--top-p", "0.95", "--seed", "5"};
  const RunResult run = run_program(command("a.jsonl", sampled));
  ASSERT_EQ(run.code, 0) << run.output;
  interrupted("b.jsonl", sampled, 4, [&](int64_t i) {
    return RunLimits{run.seconds * (0.5 + 0.12 * static_cast<double>(i)), 0};
  });
  EXPECT_TRUE(files_of(folder / "b.jsonl") == files_of(folder / "a.jsonl"));
}

TEST_F(GenerateSlow, KilledAtThirtyRandomPointsEndsInTheSameBytes) {
  write_prompts(120);
  const RunResult run = run_program(command("a.jsonl", {"--drop-cut"}));
  ASSERT_EQ(run.code, 0) << run.output;
  std::mt19937 random(11);
  for (int round = 0; round < 3; ++round) {
    const std::string name = "b" + std::to_string(round) + ".jsonl";
    interrupted(name, {"--drop-cut"}, 10, [&](int64_t) {
      return RunLimits{run.seconds * (0.2 + 0.0006 * static_cast<double>(random() % 1000)), 0};
    });
    EXPECT_TRUE(files_of(folder / name) == files_of(folder / "a.jsonl"));
  }
}

TEST_F(Generate, ATornLineIsCutOffAndWritten) {
  ASSERT_EQ(run_program(command("a.jsonl")).code, 0);
  const auto whole = files_of(folder / "a.jsonl");
  // As a killed run leaves it: two groups recorded, half a line of the third behind them.
  json state = json::parse(whole.at(".state.json"));
  const auto good = state["groups"][1]["bytes"].get<size_t>();
  auto groups = state["groups"];
  state["groups"] = json::array({groups[0], groups[1]});
  std::filesystem::remove(folder / "a.jsonl");
  write_file(folder / "a.jsonl.part", whole.at("").substr(0, good + 57));
  write_file(folder / "a.jsonl.state.json", state.dump());
  const RunResult run = run_program(command("a.jsonl"));
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_NE(run.output.find("8 prompts are answered already"), std::string::npos) << run.output;
  EXPECT_TRUE(files_of(folder / "a.jsonl") == whole);
}

TEST_F(Generate, ASecondRunHasNothingToDo) {
  ASSERT_EQ(run_program(command("a.jsonl")).code, 0);
  const auto whole = files_of(folder / "a.jsonl");
  const RunResult run = run_program(command("a.jsonl", {"--json", folder / "a2.json"}));
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_EQ(json::parse(read_file(folder / "a2.json"))["tokens_this_run"], 0);
  EXPECT_EQ(json::parse(read_file(folder / "a2.json"))["rows_kept"], 30);
  EXPECT_TRUE(files_of(folder / "a.jsonl") == whole);
}

TEST_F(Generate, MorePromptsBehindTheSameOnesGoOnFromTheLastWholeGroup) {
  write_prompts(40);
  ASSERT_EQ(run_program(command("a.jsonl")).code, 0);
  write_prompts(22);
  ASSERT_EQ(run_program(command("b.jsonl")).code, 0);
  write_prompts(40);
  const RunResult run = run_program(command("b.jsonl"));
  ASSERT_EQ(run.code, 0) << run.output;
  EXPECT_TRUE(files_of(folder / "b.jsonl") == files_of(folder / "a.jsonl"));
}

TEST_F(Generate, RefusesToMixRuns) {
  ASSERT_EQ(run_program(command("a.jsonl")).code, 0);
  const auto whole = files_of(folder / "a.jsonl");
  const auto refused = [&](const std::vector<std::string>& more, const std::vector<std::string>& words,
                           const std::string& longest = "40") {
    const RunResult run = run_program(command("a.jsonl", more, longest));
    EXPECT_EQ(run.code, 1);
    for (const std::string& word : words) EXPECT_NE(run.output.find(word), std::string::npos) << run.output;
    EXPECT_TRUE(files_of(folder / "a.jsonl") == whole);
  };
  refused({}, {"--max-new-tokens 40", "41", "rm -f"}, "41");
  refused({"--temperature", "0.5"}, {"--temperature 0.0", "0.5"});
  refused({"--system", "Be brief."}, {"--system", "Be brief."});
  tiny::write_model(folder / "model", 8, {3, 50, 77, 101, 160});
  refused({}, {"target weights"});
  tiny::write_model(folder / "model", 7, {3, 50, 77, 101, 160});
  write_file(folder / "prompts.jsonl", prompt_row(900) + prompt_row(901) + prompt_row(902) + prompt_row(903));
  refused({}, {"other prompts"});
  write_prompts(30);
  write_file(folder / "a.jsonl", "X" + whole.at("").substr(1));
  const RunResult changed = run_program(command("a.jsonl"));
  EXPECT_EQ(changed.code, 1);
  EXPECT_NE(changed.output.find("changed"), std::string::npos) << changed.output;
  std::filesystem::remove(folder / "a.jsonl.state.json");
  const RunResult foreign = run_program(command("a.jsonl"));
  EXPECT_EQ(foreign.code, 1);
  EXPECT_NE(foreign.output.find("state.json"), std::string::npos) << foreign.output;
}

TEST_F(Generate, EachRowIsKeptOrDroppedForAReason) {
  const std::string more =
      "not json\nnor this\n" + prompt_row(3) +  // the same question again
      R"({"messages": [{"role": "user", "content": "with an answer"}, {"role": "assistant", "content": "old"}]})"
      "\n" +
      R"({"messages": [{"role": "system", "content": "only"}]})"
      "\n" +
      json{{"messages", {{{"role", "user"}, {"content", std::string(600, 'x')}}}}}.dump() + "\n";
  write_prompts(30, more);
  const RunResult strict = run_program(command("a.jsonl"));
  EXPECT_EQ(strict.code, 1);
  EXPECT_CONTAINS(strict.output, "4 rows of the prompts cannot be used, more than --max-drop-fraction 0.1 allows");
  EXPECT_CONTAINS(strict.output, "kept are 31 of 36 rows (1 duplicate, 1 no user turn, 2 not JSON, 1 prompt too long)");
  EXPECT_FALSE(std::filesystem::exists(folder / "a.jsonl.state.json"));  // nothing was begun
  const RunResult run =
      run_program(command("a.jsonl", {"--max-drop-fraction", "0.5", "--json", folder / "a.json", "--drop-cut"}));
  ASSERT_EQ(run.code, 0) << run.output;
  const json summary = json::parse(read_file(folder / "a.json"));
  const auto cut = summary["rows_dropped"]["answer cut by --max-new-tokens"].get<int64_t>();
  EXPECT_GT(cut, 0);
  EXPECT_EQ(summary["rows_in"], 36);
  EXPECT_EQ(summary["rows_kept"].get<int64_t>(), 31 - cut);
  EXPECT_EQ(summary["rows_dropped"]["duplicate"], 1);
  EXPECT_EQ(summary["rows_dropped"]["prompt too long"], 1);
  EXPECT_EQ(summary["rows_dropped"]["no user turn"], 1);
  EXPECT_EQ(summary["answers_replaced"], 1);
  for (const json& row : rows("a.jsonl")) {
    EXPECT_EQ(row["finish_reason"], "stop");
    EXPECT_EQ(row["messages"].size(), 2U);
    EXPECT_NE(row["messages"][1]["content"], "old");
  }
}

TEST_F(Generate, BadInputIsNamedBeforeTheTargetIsLoaded) {
  std::filesystem::remove(folder / "model/model.safetensors");  // never missed: something else is found first
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& word) {
    const RunResult run = run_program(arguments);
    EXPECT_NE(run.code, 0);
    EXPECT_NE(run.output.find(word), std::string::npos) << run.output;
  };
  write_file(folder / "prompts.jsonl", "");
  refused(command("a.jsonl"), "prompts.jsonl");
  write_file(folder / "prompts.jsonl", R"({"messages": [{"role": "laguna_s", "content": "x"}]})"
                                       "\n");
  refused(command("a.jsonl"), "laguna_s");
  write_file(folder / "prompts.jsonl", "{\n");
  refused(command("a.jsonl"), "no prompt is left");
  write_prompts(3);
  refused(command("a.jsonl"), "model.safetensors");
  refused(command("a.jsonl", {"--top-p", "0"}), "--top-p");
  refused(command("a.jsonl", {"--template-variable", "thinking"}), "name=value");
  refused(command("a.jsonl", {"--device", "tpu"}), "tpu");
  std::filesystem::remove(folder / "model/tokenizer_config.json");
  refused(command("a.jsonl"), "template");
}

TEST_F(Generate, DuplicatesAreNoDrops) {
  write_prompts(3, prompt_row(0) + prompt_row(1) + prompt_row(2) + prompt_row(0));
  const RunResult run = run_program(command("a.jsonl", {"--max-drop-fraction", "0"}));
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_CONTAINS(run.output, "3 of 7 rows (4 duplicate)");
}

TEST_F(Generate, AnInputOrAnotherFileIsNeverReplaced) {
  const std::string prompts = read_file(folder / "prompts.jsonl"), model = read_file(folder / "model/config.json");
  write_file(folder / "notes.txt", "mine");
  const auto refused = [&](const std::string& output, const std::vector<std::string>& more, const std::string& word) {
    const RunResult run = run_program(command(output, more));
    EXPECT_EQ(run.code, 1);
    EXPECT_CONTAINS(run.output, word);
    EXPECT_EQ(run.output.find("rm -f"), std::string::npos) << run.output;
  };
  refused("prompts.jsonl", {}, "is also read");
  refused("model/config.json", {}, "is also read");
  refused("notes.txt", {}, "notes.txt exists, but no ");
  refused("a.jsonl", {"--json", folder / "prompts.jsonl"}, "is also read");
  refused("a.jsonl", {"--json", folder / "a.jsonl.part"}, "is also read");
  refused("a.jsonl", {"--json", folder / "notes.txt/s.json"}, "cannot be made as a folder");
  EXPECT_EQ(read_file(folder / "prompts.jsonl"), prompts);
  EXPECT_EQ(read_file(folder / "model/config.json"), model);
  EXPECT_EQ(read_file(folder / "notes.txt"), "mine");
  EXPECT_TRUE(files_of(folder / "a.jsonl").empty());
}

TEST_F(Generate, OptionsWithoutSenseAreRefusedBeforeAnythingIsWritten) {
  const auto refused = [&](const std::vector<std::string>& more, const std::string& word) {
    const RunResult run = run_program(command("a.jsonl", more));
    EXPECT_NE(run.code, 0);
    EXPECT_CONTAINS(run.output, word);
    EXPECT_TRUE(files_of(folder / "a.jsonl").empty());
  };
  refused({"--temperature", "nan"}, "temperature is nan");
  refused({"--temperature", "1", "--top-p", "nan"}, "top-p is nan");
  refused({"--top-p", "0.9"}, "have no effect at temperature 0");
  refused({"--top-k", "5"}, "have no effect at temperature 0");
  refused({"--max-drop-fraction", "nan"}, "--max-drop-fraction nan");
  refused({"--seed", "99999999999999999999"}, "--seed");
  refused({"--seed", "-1"}, "--seed");
  refused({"--limit", "-1"}, "--limit");
  refused({"--date", "2025-02-30"}, "--date 2025-02-30: is no date");
}

TEST_F(Generate, AnOutputWithNothingFinishedDoesNotBlockTheMendedTarget) {
  write_prompts(5);
  NamedTensors tensors;
  const std::string weights = folder / "model/model.safetensors";
  {
    const SafetensorsFile file = SafetensorsFile::open(weights);
    for (const auto& [name, entry] : file.entries()) tensors.emplace_back(name, file.tensor(name).clone());
  }
  for (auto& [name, tensor] : tensors) {
    if (name == "model.norm.weight") tensor = at::ones({tiny::kHidden + 1});
  }
  write_safetensors(weights, tensors);
  const RunResult failed = run_program(command("a.jsonl"));
  EXPECT_EQ(failed.code, 1);
  EXPECT_CONTAINS(failed.output, "download the folder again, or mend config.json");
  tiny::write_model(folder / "model", 7, {3, 50, 77, 101, 160});
  const RunResult mended = run_program(command("a.jsonl", {}, "41"));
  EXPECT_EQ(mended.code, 0) << mended.output;
  ASSERT_EQ(run_program(command("b.jsonl", {}, "41")).code, 0);
  EXPECT_TRUE(files_of(folder / "a.jsonl") == files_of(folder / "b.jsonl"));
}

TEST_F(Generate, AnEmptyResultIsAnErrorAndBindsNothing) {
  tiny::write_model(folder / "model", 7);
  write_prompts(6);
  for (const std::string longest : {"1", "1", "2"}) {
    const RunResult run = run_program(command("a.jsonl", {"--drop-cut"}, longest));
    EXPECT_EQ(run.code, 1);
    EXPECT_CONTAINS(run.output, "all 6 answers were cut at --max-new-tokens " + longest);
    EXPECT_FALSE(std::filesystem::exists(folder / "a.jsonl"));
  }
  EXPECT_EQ(run_program(command("a.jsonl", {}, "2")).code, 0);
  EXPECT_EQ(rows("a.jsonl").size(), 6U);
}

TEST_F(Generate, ATemplateVariableAndASystemMessageReachThePrompt) {
  nlohmann::json config = json::parse(read_file(folder / "model/tokenizer_config.json"));
  config["chat_template"] = "{% if shout %}LOUD {% endif %}" + config["chat_template"].get<std::string>();
  write_file(folder / "model/tokenizer_config.json", config.dump());
  write_prompts(2);
  ASSERT_EQ(run_program(command("plain.jsonl")).code, 0);
  ASSERT_EQ(run_program(command("loud.jsonl", {"--template-variable", "shout=true"})).code, 0);
  ASSERT_EQ(run_program(command("system.jsonl", {"--system", "Hi"})).code, 0);
  const auto plain = rows("plain.jsonl"), loud = rows("loud.jsonl"), system = rows("system.jsonl");
  EXPECT_EQ(loud[0]["prompt_tokens"].get<int64_t>(), plain[0]["prompt_tokens"].get<int64_t>() + 5);
  EXPECT_EQ(system[0]["messages"][0]["content"], "Hi");
  EXPECT_EQ(system[0]["messages"].size(), 3U);
}

}  // namespace
}  // namespace draftsmith
