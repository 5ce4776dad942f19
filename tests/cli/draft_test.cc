// SPDX-License-Identifier: Apache-2.0
// A draft model on the command line: the same answers, its bytes in the plan, and what is refused.
#include <nlohmann/json.hpp>

#include "cli/refusal.h"

namespace weir::testing {
namespace {

using nlohmann::json;

class DraftTest : public RefusalTest {
 protected:
  const std::string model_ = ModelPath("llama");
  json Plan(const Arguments& more) {
    const RunResult run = Run(Join({"plan", "-m", model_, "--pot", "96", "-o", "json"}, more));
    EXPECT_EQ(run.code, 0) << run.err;
    return json::parse(run.out, nullptr, /*allow_exceptions=*/false);
  }
};

TEST_F(DraftTest, TheSameAnswer) {
  for (const std::string temperature : {"0", "0.9"}) {
    const Arguments writing = {"run",   "-m", model_,   "-p",        "the man and the sea",
                               "-n",    "80", "--temp", temperature, "--ignore-eos",
                               "--pot", "64", "--seed", "5",         "--lookup",
                               "0"};
    const RunResult plain = Run(writing);
    ASSERT_EQ(plain.code, 0) << plain.err;
    for (const Arguments& names :
         {Arguments{"--draft", model_, "--draft-p-min", "0"}, {"-md", model_, "--draft-max", "3"}}) {
      const RunResult drafted = Run(Join(writing, names));
      EXPECT_EQ(drafted.code, 0) << drafted.err;
      EXPECT_EQ(drafted.out, plain.out);
      EXPECT_NE(drafted.err.find("\ndraft    "), std::string::npos) << drafted.err;
    }
  }
}

TEST_F(DraftTest, ItsBytesAreInThePlan) {
  const json without = Plan({}), with = Plan({"--draft", model_, "--draft-pot", "200"});
  int64_t draft_bytes = 0, n = 0;
  for (const json& item : with["items"]) {
    if (!StartsWith(item["what"], "draft: ")) continue;
    draft_bytes += item["bytes"].get<int64_t>();
    n += item["what"].get<std::string>().find("200 slots") != std::string::npos;
  }
  EXPECT_EQ(n, 1);
  EXPECT_EQ(with["session_bytes"].get<int64_t>(), without["session_bytes"].get<int64_t>() + draft_bytes);
  EXPECT_GT(with["minimum_bytes"].get<int64_t>(), without["minimum_bytes"].get<int64_t>());
  EXPECT_EQ(with["draft_weights_bytes"], with["weights_bytes"]);
}

TEST_F(DraftTest, WhatIsRefused) {
  const auto with = [&](const Arguments& more) { return Join(RunTiny(), more); };
  ExpectError(with({"--draft", "nobody.gguf"}), {"nobody.gguf"});
  ExpectError(with({"--draft-max", "3"}), {"--draft"});
  ExpectError(with({"--draft", model_, "--policy", "h2o"}), {"policy h2o", "leave the draft out"});
  ExpectError(with({"--draft", ModelPath("lfm2")}), {"lfm2", "keep a state"});
  ExpectError(with({"--draft", model_, "--draft-pot", "20"}), {"a draft's pot of 20 tokens", "44"});
  ExpectError(with({"--draft", model_, "--draft-max", "3", "--draft-min", "4"}), {"4 to 3 guesses"});
  ExpectError(with({"-td", "2"}), {"-td is not a flag here", "use -t"});
  // What a session without a draft needs is too little with one.
  const json plan = Plan({"--draft", model_});
  const std::string little = std::to_string(plan["minimum_bytes"].get<int64_t>() - 1);
  ExpectError(with({"--draft", model_, "--budget", little}), {"the smallest that works"});

  EditedModel other("llama");
  std::get<std::vector<std::string>>(other.metadata.at("tokenizer.ggml.tokens").v)[101] = "bb";
  ExpectError(with({"--draft", dir_.Write("other.gguf", other.Bytes())}),
              {"token 101 is 'bb' in", "'b' in", "needs the vocabulary"});
}

}  // namespace
}  // namespace weir::testing
