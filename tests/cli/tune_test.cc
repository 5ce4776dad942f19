// SPDX-License-Identifier: Apache-2.0
// weir tune as a user runs it, and its profiles in the other commands.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cli/refusal.h"
#include "policy/profile.h"

namespace weir::testing {
namespace {

using nlohmann::json;

class TuneTest : public RefusalTest {
 protected:
  Arguments Tune(const Arguments& more) {
    Arguments all = {"tune", "-m",    ModelPath("llama"), "--pot", "128", "--trials", "2", "--questions", "1",
                     "-o",   "p.json"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  RunResult Ok(const Arguments& arguments) {
    const RunResult run = Run(arguments);
    EXPECT_EQ(run.code, 0) << ::testing::PrintToString(arguments) << "\n" << run.err;
    return run;
  }
  Profile Read() {
    auto profile = ReadProfile(dir_.File("p.json"));
    EXPECT_TRUE(profile.ok()) << profile.status().message();
    return profile.ok() ? *std::move(profile) : Profile();
  }
  std::vector<json> Rows(const RunResult& run) {
    std::vector<json> out;
    for (const std::string& line : Lines(run.out)) {
      out.push_back(json::parse(line, nullptr, /*allow_exceptions=*/false));
      EXPECT_TRUE(out.back().is_object()) << line;
    }
    return out;
  }
  void WriteProfileOf(const std::string& policy, const std::string& options, int pot = 64) {
    dir_.Write("given.json", "{\"format\":\"weir-profile-1\",\"policy\":\"" + policy +
                                 "\",\"model\":\"M\",\"pot\":" + std::to_string(pot) + ",\"options\":" + options + "}");
  }
};

TEST_F(TuneTest, SearchesAndWritesAProfile) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "the man and the sea, ";
  dir_.Write("book.txt", text);
  const RunResult run =
      Ok(Tune({"--policy", "h2o:step=1", "--search", "share=0.25,0.9", "--json", "--seed", "5", "-f", "book.txt"}));
  const std::vector<json> rows = Rows(run);
  ASSERT_GE(rows.size(), 5u);
  EXPECT_EQ(rows[0]["policy"], "h2o:share=0.5,recent=-1,reduce=mean,normalise=none,step=1");
  EXPECT_EQ(rows[0]["option"], "");
  EXPECT_EQ(rows[1]["option"], "share");
  EXPECT_EQ(rows[1]["value"], "0.25");
  EXPECT_EQ(rows[2]["value"], "0.9");
  for (const json& row : rows) {
    if (row["type"] == "result") continue;
    for (const char* key : {"objective", "objective_stderr", "inside", "beyond", "text", "gain", "gain_stderr"}) {
      ASSERT_TRUE(row.contains(key) && row[key].is_number()) << key << " in " << row.dump();
    }
    EXPECT_NEAR(row["objective"].get<double>(),
                (row["inside"].get<double>() + row["beyond"].get<double>() + row["text"].get<double>()) / 3, 1e-9);
  }
  const json& result = rows.back();
  EXPECT_EQ(result["type"], "result");
  EXPECT_EQ(result["points"], 3);
  EXPECT_EQ(result["converged"], true);
  const Profile profile = Read();
  EXPECT_EQ(profile.policy, "h2o");
  EXPECT_EQ(profile.pot, 128);
  EXPECT_EQ(profile.seed, 5u);
  EXPECT_EQ(std::get<double>(profile.options.at("step")), 1);
  EXPECT_EQ(profile.kept_found, result["kept"] == "found");
  ASSERT_EQ(profile.tasks.size(), 4u);
  EXPECT_EQ(profile.tasks[0].name, "objective");
  EXPECT_EQ(profile.tasks[0].gain, result["gain"]);
  EXPECT_NE(access(dir_.File("p.json.part").c_str(), F_OK), 0);
  EXPECT_NE(run.err.find("at least"), std::string::npos) << run.err;
  EXPECT_EQ(run.err.find("text     none"), std::string::npos) << run.err;

  // The kept policy is what another command runs, without a word when model and pot are the same.
  Arguments again = RunTiny({"--policy", "h2o:profile=p.json", "--pot", "128"});
  const RunResult same = Ok(again);
  EXPECT_NE(same.err.find("policy " + result["policy"].get<std::string>()), std::string::npos) << same.err;
  EXPECT_EQ(same.err.find("warning"), std::string::npos) << same.err;
  again.back() = "64";
  EXPECT_NE(Ok(again).err.find("p.json was tuned with"), std::string::npos);
}

TEST_F(TuneTest, TheTableSaysWhatWasKept) {
  const RunResult run = Ok(Tune({"--policy", "streaming_llm", "--search", "sinks=4"}));
  for (const char* word : {"objective", "inside", "beyond", "default", "held-out trials:",
                           "no setting tried was better than the default", "--policy streaming_llm:profile=p.json"}) {
    EXPECT_NE(run.out.find(word), std::string::npos) << word << " in\n" << run.out;
  }
  EXPECT_NE(run.err.find("text     none"), std::string::npos) << run.err;
  EXPECT_FALSE(Read().kept_found);
  // Twice the same, and a point that cannot run is skipped.
  const RunResult odd = Ok(Tune({"--policy", "snapkv", "--search", "kernel=4"}));
  EXPECT_NE(odd.out.find("kernel=4"), std::string::npos) << odd.out;
  EXPECT_NE(odd.out.find("skipped"), std::string::npos) << odd.out;
  EXPECT_EQ(Ok(Tune({"--policy", "snapkv", "--search", "kernel=4"})).out, odd.out);
}

TEST_F(TuneTest, RefusesBeforeItSearches) {
  EXPECT_NE(Ok({"tune", "--help"}).out.find("--search"), std::string::npos);
  ExpectError({"tune", "-m", ModelPath("llama"), "-o", "p.json"}, {"--policy"});
  ExpectError({"tune", "-m", ModelPath("llama"), "--policy", "h2o"}, {"--output"});
  ExpectError(Tune({"--policy", "window"}), {"window", "--search"});
  ExpectError(Tune({"--policy", "h2o:share=0.5"}), {"h2o", "beside"});
  ExpectError(Tune({"--policy", "h2o:share=0.5", "--search", "share=0.1"}), {"share", "both"});
  ExpectError(Tune({"--policy", "h2o", "--search", "shares=0.1"}), {"shares"});
  ExpectError(Tune({"--policy", "h2o", "--search", "share=2"}), {"share"});
  ExpectError(Tune({"--policy", "h2o", "--weights", "0,0,0"}), {"weights"});
  ExpectError(Tune({"--policy", "h2o", "--weights", "1,1"}), {"--weights"});
  ExpectError(Tune({"--policy", "h2o", "--trials", "1"}), {"--trials"});
  ExpectError(Tune({"--policy", "h2o", "-f", "none.txt"}), {"none.txt"});
  ExpectError({"tune", "-m", ModelPath("llama"), "--policy", "h2o", "--pot", "16", "-o", "p.json"}, {"pot of 16"});
  ExpectError({"tune", "-m", ModelPath("llama"), "--policy", "h2o", "-o", "no/such/p.json"}, {"No such file"});
  ExpectError({"tune", "-m", ModelPath("llama"), "--policy", "h2o", "-o", dir_.path()}, {"regular"});
  dir_.Write("short.txt", "the man and the sea");
  ExpectError(Tune({"--policy", "h2o", "-f", "short.txt"}), {"tokens"});
}

TEST_F(TuneTest, AnInterruptLeavesTheOldProfile) {
  const std::string old = dir_.Write("p.json", "old");
  RunOptions options;
  options.interrupt_after_ms = 300;
  const RunResult run = Run({"tune", "-m", ModelPath("llama"), "--pot", "128", "--trials", "5000", "--questions", "100",
                             "-o", "p.json", "--policy", "h2o"},
                            options);
  EXPECT_EQ(run.code, 130) << run.err;
  EXPECT_EQ(FileBytes(old), "old");
  EXPECT_EQ(dir_.Names(), Arguments{"p.json"});
}

TEST_F(TuneTest, ProfilesInOtherCommands) {
  WriteProfileOf("streaming_llm", "{\"sinks\":7}");
  const std::string with = "streaming_llm:profile=given.json";
  const std::string effective = "policy streaming_llm:sinks=7,step=0";
  const RunResult run = Ok(RunTiny({"--policy", with, "--pot", "64"}));
  EXPECT_NE(run.err.find(effective), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("warning: profile given.json was tuned with M and a pot of 64"), std::string::npos) << run.err;
  EXPECT_NE(Ok(RunTiny({"--policy", with + ",sinks=3", "--pot", "64"})).err.find("sinks=3,step=0"), std::string::npos);
  EXPECT_EQ(Ok(RunTiny({"--policy", with, "--pot", "64"})).out,
            Ok(RunTiny({"--policy", "streaming_llm:sinks=7", "--pot", "64"})).out);
  Ok({"plan", "-m", ModelPath("llama"), "--policy", with, "--pot", "64"});
  const std::string trace = dir_.File("t.jsonl");
  Ok({"read", dir_.Write("book.txt", "the man and the sea"), "-m", ModelPath("llama"), "--ask", "Who?", "-n", "2",
      "--policy", with, "--pot", "64", "--trace", trace});
  EXPECT_NE(FileBytes(trace).find("streaming_llm:sinks=7,step=0"), std::string::npos);

  ExpectError(RunTiny({"--policy", "h2o:profile=given.json"}), {"given.json", "streaming_llm", "h2o"});
  ExpectError(RunTiny({"--policy", "streaming_llm:profile=none.json"}), {"none.json"});
  ExpectError(RunTiny({"--policy", "streaming_llm:profile=/dev/zero"}), {"regular"});
  ExpectError(RunTiny({"--policy", "streaming_llm:profile=" + ModelPath("llama")}), {"llama.gguf"});
  WriteProfileOf("streaming_llm", "{\"sink\":7}");
  ExpectError(RunTiny({"--policy", with}), {"given.json", "sink"});
  WriteProfileOf("streaming_llm", "{\"sinks\":-7}");
  ExpectError(RunTiny({"--policy", with}), {"given.json", "sinks"});
  WriteProfileOf("streaming_llm", "{},\"colour\":\"\\u001b[31mred\"");
  ExpectError(RunTiny({"--policy", with}), {"given.json", "colour"});
}

}  // namespace
}  // namespace weir::testing
