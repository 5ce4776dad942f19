// SPDX-License-Identifier: Apache-2.0
// Answers held to a form, by the program's flags.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/edited_model.h"
#include "cli/process.h"

namespace weir::testing {
namespace {

RunResult Answer(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"run", "-m", ModelPath("llama"), "-p", "the man and the", "--temp", "2",
                                        "-n",  "300"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunWeir(arguments, {});
}

std::string Line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

TEST(Forms, FlagsHoldTheAnswer) {
  for (const char* seed : {"1", "2", "3"}) {
    EXPECT_TRUE(nlohmann::json::accept(
        Answer({"-s", seed, "--json-schema", R"({"type":"array","items":{"type":"integer"},"maxItems":4})"}).out));
    const std::string choice = Line(Answer({"-s", seed, "--choice", "the sea", "--choice", "a man"}).out);
    EXPECT_TRUE(choice == "the sea" || choice == "a man") << choice;
    EXPECT_EQ(Line(Answer({"-s", seed, "--regex", "[xyz]{7}"}).out).find_first_not_of("xyz"), std::string::npos);
    EXPECT_EQ(Line(Answer({"-s", seed, "--grammar", "root ::= \"a\" [bc]{3} \"d\""}).out).size(), 5u);
  }
  const std::string path = ::testing::TempDir() + "/form.gbnf";
  std::ofstream(path) << "root ::= \"from a file\"\n";
  EXPECT_EQ(Line(Answer({"--grammar-file", path}).out), "from a file");
}

TEST(Forms, ErrorsAreOneLineThatNamesTheFlag) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--grammar", "root ::= x"}, "--grammar: line 1 of the grammar: rule 'x' is not defined"},
      {{"--json-schema", R"({"not":{}})"}, "--json-schema: 'not' of the schema at '#'"},
      {{"--regex", "("}, "--regex: ')' is missing"},
      {{"--grammar-file", "/nowhere.gbnf"}, "/nowhere.gbnf"},
      {{"--regex", "a", "--choice", "b"}, "excludes"},
  };
  for (const auto& [more, what] : cases) {
    const RunResult run = Answer(more);
    EXPECT_NE(run.code, 0);
    EXPECT_NE(run.err.find(what), std::string::npos) << run.err;
  }
}

}  // namespace
}  // namespace weir::testing
