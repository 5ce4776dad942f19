// SPDX-License-Identifier: Apache-2.0
// What the suites of `weir eval` promise to the programs that read their rows.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/edited_model.h"
#include "cli/process.h"

namespace weir::testing {
namespace {

using Arguments = std::vector<std::string>;
using nlohmann::json;

RunResult Eval(const std::string& suite, const Arguments& more) {
  Arguments arguments = {"eval", suite, "-m", ModelPath("llama")};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunWeir(arguments);
}

std::vector<json> Rows(const std::string& suite, const Arguments& more) {
  const RunResult run = Eval(suite, more);
  EXPECT_EQ(run.code, 0) << suite << "\n" << run.err;
  std::vector<json> rows;
  for (const std::string& line : Lines(run.out)) {
    rows.push_back(json::parse(line, nullptr, /*allow_exceptions=*/false));
    EXPECT_TRUE(rows.back().is_object()) << line;
  }
  for (const json& row : rows) {
    for (const char* key : {"suite", "task", "model", "policy", "prompt", "metric"}) {
      EXPECT_TRUE(row.contains(key) && row[key].is_string()) << key << " in " << row.dump();
    }
    for (const char* key : {"pot", "chunk", "value", "stderr", "n", "seed", "tokens", "seconds", "tokens_per_s",
                            "answer_tokens_per_s", "peak_bytes"}) {
      EXPECT_TRUE(row.contains(key) && row[key].is_number()) << key << " in " << row.dump();
    }
    EXPECT_EQ(row["suite"], suite);
    EXPECT_GE(row["value"], 0.0);
    EXPECT_LE(row["value"], 1.0);
    EXPECT_GT(row["n"], 0);
  }
  return rows;
}

// What depends on the machine's speed and memory is left out.
std::string Figures(std::vector<json> rows) {
  std::string out;
  for (json& row : rows) {
    for (const char* key : {"seconds", "tokens_per_s", "answer_tokens_per_s", "resident_bytes"}) row.erase(key);
    out += row.dump() + "\n";
  }
  return out;
}

TEST(EvalLinesTest, OneRowForEveryPolicyPotAndDistance) {
  const Arguments arguments = {
      "--policy", "full,window;streaming_llm:sinks=2", "--pot", "64,96", "--distance", "1,4", "--n", "2", "--every",
      "2"};
  const std::vector<json> rows = Rows("lines", arguments);
  // Two policies in two pots, and one that never forgets, once.
  ASSERT_EQ(rows.size(), (2 * 2 + 1) * 2u);
  std::set<std::string> cells;
  for (const json& row : rows) {
    cells.insert(row["policy"].get<std::string>() + "/" + row["pot"].dump() + "/" + row["distance"].dump());
    EXPECT_EQ(row["n"], 2);
    EXPECT_TRUE(row["gold_nll"].is_number());
    EXPECT_EQ(row["inside_pot"], row["tokens_back"] < row["pot"]);
  }
  EXPECT_EQ(cells.size(), rows.size());
  EXPECT_EQ(Figures(Rows("lines", arguments)), Figures(rows));
  Arguments other = arguments;
  other.insert(other.end(), {"-s", "9"});
  EXPECT_NE(Figures(Rows("lines", other)), Figures(rows));
}

TEST(EvalLinesTest, RoundsPromptsAndFiles) {
  EXPECT_EQ(Rows("lines", {"--carry", "--pot", "128", "--distance", "1,3", "--n", "2"}).size(), 2u);
  const std::vector<json> prompts =
      Rows("lines", {"--style", "longeval", "--lines", "3,6", "--n", "2", "--keys", "pair"});
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[1]["lines"], 6);
  TempDir dir;
  const std::string good =
      dir.Write("cases.jsonl", "{\"prompt\": \"line a: <5>\", \"expected_number\": 5, \"num_lines\": 1}\n");
  EXPECT_EQ(Rows("lines", {"--file", good}).size(), 1u);
  const RunResult bad = Eval("lines", {"--file", dir.Write("bad.jsonl", "{\"prompt\": 5}\n")});
  EXPECT_EQ(bad.code, 2);
  EXPECT_NE(bad.err.find("bad.jsonl: line 1"), std::string::npos) << bad.err;
}

TEST(EvalPasskeyTest, BothModes) {
  const std::vector<json> growing =
      Rows("passkey", {"--pot", "96", "--length", "200,300", "--key-at", "20", "--n", "2"});
  ASSERT_EQ(growing.size(), 2u);
  EXPECT_EQ(growing[1]["length"], 300);
  EXPECT_EQ(growing[1]["key_at"], 20);
  EXPECT_EQ(
      Rows("passkey", {"--mode", "grid", "--pot", "96", "--length", "200", "--depth", "0,0.5", "--n", "1"}).size(), 2u);
}

TEST(EvalPasskeyTest, RoundsThatStay) {
  const Arguments rounds = {"--carry", "--pot", "96", "--length", "200,400,500", "--key-at", "150", "--n", "2"};
  const std::vector<json> rows = Rows("passkey", rounds);
  ASSERT_EQ(rows.size(), 2u) << "the key comes after the first length";
  for (const json& row : rows) {
    EXPECT_EQ(row["task"], "carried");
    EXPECT_EQ(row["n"], 2);
    EXPECT_FALSE(row.contains("gold_nll"));
  }
  // A round's question and answer lie between the two lengths.
  EXPECT_GT(rows[1]["tokens_back"], rows[0]["tokens_back"].get<double>() + 100);
  const RunResult grid = Eval("passkey", {"--carry", "--mode", "grid", "--pot", "96"});
  EXPECT_EQ(grid.code, 2);
  EXPECT_NE(grid.err.find("--carry"), std::string::npos) << grid.err;
}

TEST(EvalPasskeyTest, AKeyBehindTheEndIsRefused) {
  const RunResult run = Eval("passkey", {"--pot", "96", "--length", "200,300", "--key-at", "20,290", "--n", "1"});
  EXPECT_EQ(run.code, 2);
  EXPECT_NE(run.err.find("290"), std::string::npos) << run.err;
}

TEST(EvalNeedleTest, OwnAndGivenNeedles) {
  TempDir dir;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "The man and the sea. ";
  const Arguments tail = {"--pot", "128", "--length", "200", "--depth", "0.5", "--n", "1", "--answer", "4"};
  Arguments given = {
      "--file", dir.Write("book.txt", text), "--needles",
      dir.Write("needles.json",
                R"({"single": [{"needle": "A boat.", "question": "What?", "must_contain": ["boat"]}]})")};
  given.insert(given.end(), tail.begin(), tail.end());
  EXPECT_EQ(Rows("needle", tail).size(), 1u);
  EXPECT_EQ(Rows("needle", given).size(), 1u);
}

TEST(EvalStreamQaTest, PresentAndMemory) {
  const std::vector<json> rows =
      Rows("streamqa", {"--pot", "96", "--distance", "64,256", "--gap", "64", "--every", "64", "--n", "2"});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["kind"], "present");
  EXPECT_EQ(rows[2]["kind"], "memory");
  EXPECT_GT(rows[2]["tokens_back"], rows[1]["tokens_back"]);
}

TEST(EvalStreamQaTest, RoundsThatStay) {
  const Arguments rounds = {"--carry", "--pot", "96", "--distance", "64,256", "--gap", "64", "--n", "2"};
  Arguments few = rounds, enough = rounds;
  few.insert(few.end(), {"--every", "64"});
  enough.insert(enough.end(), {"--every", "160"});
  const std::vector<json> rows = Rows("streamqa", enough);
  ASSERT_EQ(rows.size(), 3u);
  for (const json& row : rows) EXPECT_FALSE(row.contains("gold_nll")) << row;
  const RunResult refused = Eval("streamqa", few);
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("at least 128"), std::string::npos) << refused.err;
}

TEST(EvalHitsTest, ARowForEveryCycle) {
  const Arguments arguments = {
      "--policy", "infinipot:alpha=0,template=off;window:step=32", "--pot", "96", "--cycles", "2", "--n", "2"};
  const std::vector<json> rows = Rows("hits", arguments);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["metric"], "hit_rate");
  EXPECT_EQ(rows[1]["cycle"], 2);
  for (const json& row : rows) {
    EXPECT_EQ(row["n"], 2);
    EXPECT_TRUE(row["nll_global"].is_number()) << row;
    EXPECT_TRUE(row["held"].is_number()) << row;
  }
  EXPECT_EQ(rows[0]["value"], 1) << "the first distillation scores everything";
  EXPECT_EQ(Figures(Rows("hits", arguments)), Figures(rows));
  const RunResult refused = Eval("hits", {"--pot", "96", "--cycles", "1", "--n", "1", "--global", "h2o"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("ratio"), std::string::npos) << refused.err;
}

TEST(EvalLongBenchTest, ScoresTasksOfAFile) {
  TempDir dir;
  const std::string file = dir.Write(
      "samples.jsonl",
      R"({"dataset": "qasper", "metric": "qa_f1", "prompt": "the man and the sea", "answers": ["man"], "max_new_tokens": 4}
{"dataset": "trec", "metric": "qa_f1", "prompt": "the man", "answers": ["man"], "max_new_tokens": 4}
{"dataset": "lcc", "metric": "code_sim", "prompt": "the man", "answers": ["man"], "max_new_tokens": 4}
{"dataset": "vcsum", "metric": "rouge_zh", "prompt": "the man", "answers": ["man"], "max_new_tokens": 4}
)");
  EXPECT_EQ(Rows("longbench", {"--file", file, "--task", "qasper,trec,lcc", "--pot", "64"}).size(), 3u);
  const RunResult unknown = Eval("longbench", {"--file", file, "--pot", "64"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("rouge_zh"), std::string::npos) << unknown.err;
  EXPECT_EQ(Lines(unknown.out).size(), 3u);  // what was finished stays
}

// A row for each task, policy and pot, and one for each pot's truncation; what an earlier run finished is left out.
TEST(EvalRulerTest, TasksPotsTruncationAndResume) {
  TempDir dir;
  const Arguments arguments = {
      "--policy", "full;streaming_llm", "--pot",    "512", "--length", "2048",      "--limit", "2",
      "--task",   "niah_multivalue,vt", "--answer", "4",   "--prompt", "completion"};
  const std::vector<json> rows = Rows("ruler", arguments);
  ASSERT_EQ(rows.size(), 3 * 2u);
  for (const json& row : rows) {
    EXPECT_EQ(row["n"], 2);
    EXPECT_EQ(row["length"], 2048);
    EXPECT_EQ(row["complete"], true);
    EXPECT_EQ(row["metric"], "all");
  }
  EXPECT_EQ(rows[4]["policy"], "truncation");
  EXPECT_EQ(rows[4]["pot"], 512);
  EXPECT_LE(rows[4]["tokens"], 2 * 512) << "prompts are cut to fit";
  EXPECT_EQ(Figures(Rows("ruler", arguments)), Figures(rows));
  Arguments again = arguments;
  again.insert(again.end(), {"--resume", dir.Write("rows.jsonl", rows[0].dump() + "\n" + rows[5].dump() + "\n{\"sui")});
  const std::vector<json> rest = Rows("ruler", again);
  ASSERT_EQ(rest.size(), 4u);
  EXPECT_EQ(rest[0]["task"], rows[1]["task"]);
  Arguments alone = arguments;
  alone.push_back("--no-truncation");
  EXPECT_EQ(Rows("ruler", alone).size(), 4u);
  const RunResult unknown = Eval("ruler", {"--pot", "512", "--length", "2048", "--task", "niah_single_9"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("niah_multiquery"), std::string::npos) << unknown.err;
  EXPECT_EQ(Eval("ruler", {"--pot", "512", "--length", "2048", "--task", "qa_1"}).code, 2);
}

TEST(EvalLongMemEvalTest, EvidenceIsHeldOrNot) {
  TempDir dir;
  std::string filler;
  for (int i = 0; i < 40; ++i) filler += "the man and the sea ";
  const auto session = [&](const std::string& words, bool answers) {
    return R"([{"role": "user", "content": ")" + words + R"(", "has_answer": )" + (answers ? "true" : "false") + "}]";
  };
  dir.Write("longmemeval_s.json",
            R"([{"question_id": "a", "question_type": "single-session-user", "question": "the sea", "answer": "man",
  "question_date": "2023", "haystack_dates": ["1", "2"], "haystack_sessions": [)" +
                session("and the man", true) + "," + session(filler, false) + "]}]");
  const std::vector<json> rows = Rows("longmemeval", {"--data", dir.path(), "--policy", "full;streaming_llm:sinks=0",
                                                      "--pot", "128", "--answer", "2", "--prompt", "completion"});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["evidence_held"], 1) << "everything is kept";
  EXPECT_EQ(rows[1]["evidence_held"], 0) << "it came long before the newest tokens";
  EXPECT_TRUE(rows[2].contains("evidence_held"));
  EXPECT_EQ(Rows("longmemeval", {"--data", dir.path(), "--policy", "streaming_llm", "--pot", "128", "--answer", "2",
                                 "--prompt", "completion", "--no-truncation", "--recall", "words"})[0]
                .contains("span_found"),
            true);
  const RunResult bad =
      Eval("longmemeval", {"--data", dir.Write("bad.json", "[{}]"), "--pot", "128", "--prompt", "completion"});
  EXPECT_EQ(bad.code, 2);
  EXPECT_NE(bad.err.find("bad.json: sample 0"), std::string::npos) << bad.err;
}

TEST(EvalInfiniteBenchTest, FilesOfAFolder) {
  TempDir dir;
  dir.Write("passkey.jsonl", "{\"context\": \"the man and the sea\", \"input\": \"the man\", \"answer\": [\"5\"]}\n");
  dir.Write("longbook_choice_eng.jsonl",
            R"({"context": "the sea", "input": "the", "answer": "b", "options": ["a", "b", "c", "d"]})");
  const std::vector<json> rows = Rows("infinitebench", {"--data", dir.path(), "--pot", "256", "--no-truncation"});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["task"], "passkey");
  dir.Write(
      "scbench_vt.jsonl",
      R"({"context": "the man", "multi_turns": [{"input": "the sea", "answer": ["a"]}, {"input": "a", "answer": "b"}]})");
  std::filesystem::create_directory(dir.File("json_kv"));
  dir.Write("json_kv/k.jsonl",
            R"({"context": "the", "question": "a", "answer": "b", "demos": [["the", "man"], ["the", "sea"]]})");
  EXPECT_EQ(Rows("helmet", {"--data", dir.path(), "--pot", "128", "--no-truncation", "--answer", "2"}).size(), 1u);
  const std::vector<json> turns =
      Rows("scbench", {"--data", dir.path(), "--policy", "full;streaming_llm", "--pot", "64"});
  ASSERT_EQ(turns.size(), 3u);
  EXPECT_EQ(turns[0]["n"], 2) << "each turn counts";
  EXPECT_EQ(turns[0]["complete"], true);
  const RunResult none = Eval("infinitebench", {"--data", dir.path(), "--pot", "256", "--task", "kv_retrieval"});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("kv_retrieval.jsonl"), std::string::npos) << none.err;
}

TEST(EvalPplTest, PoliciesAndLengths) {
  TempDir dir;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "the man and the sea, ";
  const std::string file = dir.Write("text.txt", text);
  const RunResult run =
      Eval("ppl", {"-f", file, "--policy", "window,streaming_llm", "--pot", "64", "--lengths", "100,250"});
  ASSERT_EQ(run.code, 0) << run.err;
  std::vector<int64_t> ends;
  for (const std::string& line : Lines(run.out)) {
    const json row = json::parse(line, nullptr, false);
    if (row["task"] == "stream_length") {
      ends.push_back(row["end_token"]);
      EXPECT_EQ(row["n"], row["end_token"].get<int64_t>() - 1);
    }
  }
  EXPECT_EQ(ends, (std::vector<int64_t>{100, 250, 100, 250}));
  EXPECT_EQ(Eval("ppl", {"-f", "-", "--policy", "window,streaming_llm"}).code, 2);
  // A policy that never forgets gets a pot for all of the requested text; without a length it ends when its pot is
  // full, and the next policy runs.
  const auto tokens_of = [&](const Arguments& more) {
    Arguments arguments = {"-f", file, "--policy", "full,window", "--pot", "64"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult both = Eval("ppl", arguments);
    EXPECT_EQ(both.code, 0) << both.err;
    std::vector<int64_t> tokens;
    for (const std::string& line : Lines(both.out)) {
      const json row = json::parse(line, nullptr, false);
      if (row["task"] == "stream_total") tokens.push_back(row["tokens"]);
    }
    return tokens;
  };
  EXPECT_EQ(tokens_of({"-n", "300"}), (std::vector<int64_t>{300, 300}));
  const std::vector<int64_t> cut = tokens_of({});
  ASSERT_EQ(cut.size(), 2u);
  EXPECT_EQ(cut[0], 64);
  EXPECT_GT(cut[1], 300);
}

TEST(EvalTest, BadPoliciesAreToldBeforeAnythingRuns) {
  const RunResult run = Eval("passkey", {"--policy", "window,nonsense", "--pot", "64"});
  EXPECT_EQ(run.code, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_NE(run.err.find("nonsense"), std::string::npos) << run.err;
}

TEST(EvalTest, AStoppedRunKeepsWhatItHas) {
  RunOptions options;
  options.interrupt_after_out_bytes = 1;
  const RunResult run = RunWeir({"eval", "passkey", "-m", ModelPath("llama"), "--mode", "grid", "--pot", "64",
                                 "--length", "200", "--depth", "0,0.5,1", "--n", "200"},
                                options);
  EXPECT_EQ(run.code, 130) << run.err;
  const Arguments lines = Lines(run.out);
  ASSERT_GE(lines.size(), 1u);
  for (const std::string& line : lines) EXPECT_TRUE(json::parse(line, nullptr, false).is_object()) << line;
}

}  // namespace
}  // namespace weir::testing
