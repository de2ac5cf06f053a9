// Real runtimes load what was exported: llama.cpp's own server, and a plain Python reader of the z-lab folder on
// Transformers' model.
#include <gtest/gtest.h>

#include <cstdlib>

#include "data/text.h"
#include "tests/export/overfit.h"

namespace draftsmith {

namespace fs = std::filesystem;

namespace {

std::string reference_python() {
  const char* python = std::getenv("DRAFTSMITH_REFERENCE_PYTHON");
  return python == nullptr ? "" : python;
}

bool has_module(const std::string& name) {
  return std::system((reference_python() + " -c 'import " + name + "' >/dev/null 2>&1").c_str()) == 0;
}

// Runs a command; its output is shown when it fails.
void run(const std::string& command) {
  EXPECT_EQ(std::system((command + " >&2").c_str()), 0) << command;
}

class ExportClient : public ::testing::Test {
 protected:
  void SetUp() override {
    if (reference_python().empty())
      GTEST_SKIP() << "DRAFTSMITH_REFERENCE_PYTHON names no Python with the reference implementations";
  }

  // A tiny target, prompts, and a drafter that has learned the answers, saved as a drafter folder.
  void make_overfitted(const testing::TinyShape& shape) {
    const std::string source = testing::write_tiny_target(folder / "target", shape);
    const auto target = load_target(source);
    const Tokenizer tokenizer = Tokenizer::load(source);
    const ChatTemplate chat = ChatTemplate::load(source);
    const auto drafter = make_drafter(resolve_drafter(testing::tiny_drafter_config(2, 6), target->config()),
                                      target->config(), {target->embedding(), target->head()}, {}, 5);
    std::vector<DraftSample> samples;
    std::string rows;
    for (const char* question : {"hello 42?", "say it again", "the third one", "0xFF & caf\xC3\xA9"}) {
      const nlohmann::ordered_json messages = {{{"role", "user"}, {"content", question}}};
      RenderOptions rendering;
      rendering.add_generation_prompt = true;
      samples.push_back(testing::answered_sample(*target, tokenizer.encode(chat.render(messages, rendering).text).ids,
                                                 drafter->config().taps, 32));
      rows += nlohmann::ordered_json{{"id", question}, {"category", "tiny"}, {"messages", messages}}.dump() + "\n";
    }
    write_file(folder / "prompts.jsonl", rows);
    ASSERT_GT(testing::overfit(*drafter, samples, 250), 0.9);
    fs::create_directories(folder / "drafter");
    save_drafter(*drafter, {target->weight_hash(), "", chat.hash()}, folder / "drafter");
  }

  void evaluate(const std::string& target, const std::string& drafter, const std::string& prompts, int64_t new_tokens) {
    run(fmt::format("{} evaluate --target {} --drafter {} --prompts {} --max-new-tokens {} --threads 1 --output {}",
                    DRAFTSMITH_PROGRAM, target, drafter, prompts, new_tokens, folder / "evaluation.json"));
    evaluation = nlohmann::ordered_json::parse(read_file(folder / "evaluation.json"));
  }

  void serve(const std::string& exported) {
    run(fmt::format("{} {}/tests/clients/serve_llama_cpp.py --strict --export {} --evaluation {} --output {}",
                    reference_python(), DRAFTSMITH_SOURCE, exported, folder / "evaluation.json",
                    folder / "served.json"));
    served = nlohmann::ordered_json::parse(read_file(folder / "served.json"));
  }

  testing::TemporaryFolder folder;
  nlohmann::ordered_json evaluation, served;
};

TEST_F(ExportClient, LlamaCppAcceptsWholeBlocksOfAnOverfittedDrafterAsEvaluateSays) {
  if (!has_module("xllamacpp"))
    GTEST_SKIP() << "xllamacpp (llama.cpp's server) is not installed beside the reference Python";
  for (const bool qwen3 : {false, true}) {
    fs::remove_all(folder / "");
    fs::create_directories(folder / "");
    make_overfitted({.qwen3 = qwen3});
    run(fmt::format("{} export --drafter {} --target {} --for llama.cpp --with-target f32 --output {}",
                    DRAFTSMITH_PROGRAM, folder / "drafter", folder / "target", folder / "export"));
    evaluate(folder / "target", folder / "drafter", folder / "prompts.jsonl", 32);
    EXPECT_GT(evaluation["tau"].get<double>(), 3.0);
    serve(folder / "export");
    EXPECT_EQ(served["identical"], served["outputs_total"]);
    EXPECT_EQ(served["identical_to_draftsmith"], served["outputs_total"]);
    EXPECT_NEAR(served["tau_difference"].get<double>(), 0, 0.02);
  }
}

TEST_F(ExportClient, PlainPythonReaderOfTheZlabFolderDecodesTheSameTokens) {
  if (!has_module("transformers")) GTEST_SKIP() << "transformers is not installed beside the reference Python";
  make_overfitted({});
  run(fmt::format("{} export --drafter {} --target {} --for zlab --output {}", DRAFTSMITH_PROGRAM, folder / "drafter",
                  folder / "target", folder / "export"));
  evaluate(folder / "target", folder / "export", folder / "prompts.jsonl", 32);
  EXPECT_GT(evaluation["tau"].get<double>(), 3.0);
  run(fmt::format("{} {}/tests/clients/zlab_reader.py --target {} --drafter {} --evaluation {}", reference_python(),
                  DRAFTSMITH_SOURCE, folder / "target", folder / "export", folder / "evaluation.json"));
}

// The real tokenizer and the real weights: the drafter is random, so nearly nothing is accepted, but every text must be
// the target's.
TEST_F(ExportClient, LlamaCppServesTheRealTargetWithTheSameTextAndIds) {
  const char* target = std::getenv("DRAFTSMITH_SMOLLM2");
  if (target == nullptr) GTEST_SKIP() << "DRAFTSMITH_SMOLLM2 names no folder with SmolLM2-135M-Instruct";
  if (!has_module("xllamacpp"))
    GTEST_SKIP() << "xllamacpp (llama.cpp's server) is not installed beside the reference Python";
  {
    const auto loaded = load_target(target);
    DrafterConfig config;
    config.layers = 1;
    config.block = 4;
    config.mask_token = 16;
    const auto drafter = make_drafter(resolve_drafter(config, loaded->config()), loaded->config(),
                                      {loaded->embedding(), loaded->head()}, {}, 1);
    fs::create_directories(folder / "drafter");
    save_drafter(*drafter, {loaded->weight_hash(), "", ""}, folder / "drafter");
  }
  std::string rows;
  for (const char* question :
       {"What is the capital of France?", "Add 17 and 25.", "Write a Python function that adds two numbers."}) {
    rows += nlohmann::ordered_json{{"messages", {{{"role", "user"}, {"content", question}}}}}.dump() + "\n";
  }
  write_file(folder / "prompts.jsonl", rows);
  run(fmt::format("{} export --drafter {} --target {} --for llama.cpp --with-target f16 --output {}",
                  DRAFTSMITH_PROGRAM, folder / "drafter", target, folder / "export"));
  evaluate(target, folder / "drafter", folder / "prompts.jsonl", 24);
  serve(folder / "export");
  EXPECT_EQ(served["identical"], 3);
  EXPECT_EQ(served["identical_to_draftsmith"], 3);
}

}  // namespace
}  // namespace draftsmith
