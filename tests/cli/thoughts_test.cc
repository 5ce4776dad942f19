// SPDX-License-Identifier: Apache-2.0
// Thoughts of a chat's model in the terminal, with a model that says what a test needs.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/process.h"
#include "serve/scripted_model.h"

namespace weir::testing {
namespace {

constexpr const char* kJinja =
    "{# <think> </think> #}{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}>{{ messages[-1].content }}";

class Thoughts : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    dir_->Write("scripted.gguf", ScriptedModel({{'1', {{"<think>\nHm."}, {" So.\n</think>\n\n"}, {"It is sunny."}}},
                                                {'2', {{"It rains."}}}},
                                               kJinja));
  }
  static void TearDownTestSuite() { delete dir_; }
  static RunResult Weir(const std::string& command, std::vector<std::string> more, const std::string& input = "") {
    std::vector<std::string> arguments = {command, "-m", dir_->File("scripted.gguf"), "--temp", "0", "--pot", "256"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunWeir(arguments, {.input = input});
  }
  static inline TempDir* dir_ = nullptr;
};

TEST_F(Thoughts, StandardOutputIsTheAnswer) {
  const RunResult apart = Weir("run", {"--chat", "-p", "1"});
  EXPECT_EQ(apart.out, "It is sunny.\n");
  EXPECT_NE(apart.err.find("Hm. So.\n\n"), std::string::npos) << apart.err;
  EXPECT_EQ(apart.err.find("think"), std::string::npos) << apart.err;
  const RunResult hidden = Weir("run", {"--chat", "-p", "1", "--thoughts", "hide"});
  EXPECT_EQ(hidden.out, "It is sunny.\n");
  EXPECT_EQ(hidden.err.find("Hm."), std::string::npos) << hidden.err;
  EXPECT_EQ(Weir("run", {"--chat", "-p", "1", "--thoughts", "inline"}).out,
            "<think>\nHm. So.\n</think>\n\nIt is sunny.\n");
  EXPECT_EQ(Weir("run", {"--chat", "-p", "2"}).out, "It rains.\n");
}

TEST_F(Thoughts, Chat) {
  const RunResult chat = Weir("chat", {}, "1\n2\n");
  EXPECT_EQ(chat.out, "It is sunny.\nIt rains.\n");
  EXPECT_NE(chat.err.find("Hm. So."), std::string::npos) << chat.err;
}

TEST_F(Thoughts, Json) {
  const auto json = nlohmann::json::parse(Weir("run", {"--chat", "-p", "1", "-o", "json"}).out, nullptr, false);
  EXPECT_EQ(json["text"], "It is sunny.") << json;
  EXPECT_EQ(json["thoughts"], "Hm. So.");
  const auto plain = nlohmann::json::parse(Weir("run", {"--chat", "-p", "2", "-o", "json"}).out, nullptr, false);
  EXPECT_FALSE(plain.contains("thoughts"));
}

// The form is for what follows them.
TEST_F(Thoughts, AForm) {
  const RunResult run = Weir("run", {"--chat", "-p", "1", "--choice", "It rains.", "--choice", "It is sunny."});
  EXPECT_EQ(run.out, "It is sunny.\n");
  EXPECT_NE(run.err.find("Hm. So."), std::string::npos) << run.err;
}

TEST_F(Thoughts, FlagsAreChecked) {
  EXPECT_NE(Weir("run", {"--chat", "-p", "1", "--thoughts", "loud"}).code, 0);
  EXPECT_NE(Weir("run", {"-p", "1", "--thoughts", "hide"}).code, 0);
  const RunResult foreign = Weir("run", {"--chat", "-p", "1", "--reasoning-format", "none"});
  EXPECT_NE(foreign.err.find("--thoughts"), std::string::npos) << foreign.err;
}

}  // namespace
}  // namespace weir::testing
