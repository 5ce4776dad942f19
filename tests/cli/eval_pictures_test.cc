// SPDX-License-Identifier: Apache-2.0
// What the suites of `weir eval` that show pictures promise to the programs that read their rows.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/process.h"
#include "cli/refusal.h"
#include "support/build_paths.h"
#include "support/pictures.h"

namespace weir::testing {
namespace {

using nlohmann::json;

std::string VisionFile(const std::string& name) { return SourceDir() + "/tests/golden/vision/" + name; }

class EvalPicturesTest : public RefusalTest {
 protected:
  void SetUp() override {
    if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
    for (int i = 0; i < 4; ++i) dir_.Write(std::to_string(i) + ".ppm", PpmBytes(40, 30, 50 * i));
    std::string streams;
    for (int i = 0; i < 8; ++i) {
      json line = {{"stream", i / 4},
                   {"clip", i % 4},
                   {"lead", "Clip " + std::to_string(i % 4) + ":"},
                   {"frames", {std::to_string(i % 4) + ".ppm"}},
                   {"question", "the man"},
                   {"answer", "sea"},
                   {"kind", i % 2 == 0 ? "present" : "back"},
                   {"distance", i % 2}};
      streams += line.dump() + "\n";
      if (i % 4 != 3) continue;
      line.update({{"frames", json::array()}, {"lead", ""}, {"kind", "recall"}, {"distance", 3}, {"aside", true}});
      streams += line.dump() + "\n";
    }
    dir_.Write("streams.jsonl", streams);
  }
  Arguments Command(const std::string& suite, const Arguments& more, bool blip = false) {
    Arguments out = {"eval",     suite,
                     "-m",       blip ? ModelPath("opt") : VisionFile("llava.gguf"),
                     "--mmproj", VisionFile(blip ? "blip2.gguf" : "clip.gguf"),
                     "--answer", "3"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  std::vector<json> Rows(const Arguments& arguments, int code = 0) {
    const RunResult run = Run(arguments);
    EXPECT_EQ(run.code, code) << ::testing::PrintToString(arguments) << "\n" << run.err;
    std::vector<json> rows;
    for (const std::string& line : Lines(run.out)) {
      rows.push_back(json::parse(line, nullptr, /*allow_exceptions=*/false));
      const json& row = rows.back();
      EXPECT_TRUE(row.is_object()) << line;
      for (const char* key : {"suite", "task", "model", "policy", "data", "prune", "prompt", "metric", "kind"}) {
        EXPECT_TRUE(row.contains(key) && row[key].is_string()) << key << " in " << line;
      }
      for (const char* key : {"pot", "budget_bytes", "value", "stderr", "n", "tokens", "peak_bytes", "vision_bytes"}) {
        EXPECT_TRUE(row.contains(key) && row[key].is_number()) << key << " in " << line;
      }
      EXPECT_GT(row["n"], 0);
      EXPECT_EQ(row["complete"], code == 0);
    }
    last_err_ = run.err;
    return rows;
  }
  static std::string Figures(std::vector<json> rows) {
    std::string out;
    for (json& row : rows) {
      for (const char* key : {"seconds", "tokens_per_s", "answer_tokens_per_s", "resident_bytes", "ms_per_token",
                              "ms_per_token_stderr", "latency_ratio"}) {
        row.erase(key);
      }
      out += row.dump() + "\n";
    }
    return out;
  }
  std::string last_err_;
};

TEST_F(EvalPicturesTest, VideoQaHasARowForEveryPolicyPotRoundsAndKind) {
  const Arguments arguments =
      Command("videoqa", {"--data", dir_.path(), "--policy", "full;window;weir", "--pot", "64,96", "--rounds", "2,4"});
  const std::vector<json> rows = Rows(arguments);
  std::map<std::string, int> kinds;
  std::set<int64_t> kv;
  for (const json& row : rows) {
    EXPECT_EQ(row["suite"], "videoqa");
    ++kinds[row["kind"].get<std::string>() + "/" + row["rounds"].dump()];
    if (row["rounds"] == 4 && row["kind"] == "all") {
      EXPECT_EQ(row["n"], 10);
    }
    if (row["rounds"] == 4 && row["kind"] == "memory") {
      EXPECT_EQ(row["n"], 6);
    }
    if (row["rounds"] == 2 && row["kind"] == "present") {
      EXPECT_EQ(row["n"], 2);
    }
    if (row["policy"] == "full") {
      EXPECT_GE(row["pot"], 256);
    }
  }
  // Two policies in two pots, and one that never forgets, once. Nothing is recalled within two rounds.
  EXPECT_EQ(kinds, (std::map<std::string, int>{{"all/2", 5},
                                               {"present/2", 5},
                                               {"memory/2", 5},
                                               {"back/2", 5},
                                               {"all/4", 5},
                                               {"present/4", 5},
                                               {"memory/4", 5},
                                               {"back/4", 5},
                                               {"recall/4", 5}}));
  EXPECT_EQ(Figures(Rows(arguments)), Figures(rows));
}

// Encoders that make rows of all frames together sit the same exam, and what they keep is in the session's bytes.
TEST_F(EvalPicturesTest, FramesThatAreKeptSitTheExam) {
  for (const char* name : {"flash_vstream.gguf", "chat_univi.gguf"}) {
    SCOPED_TRACE(name);
    for (const char* suite : {"videoqa", "streamvideo"}) {
      const Arguments arguments = {"eval",     suite,
                                   "-m",       VisionFile("llava.gguf"),
                                   "--mmproj", VisionFile(name),
                                   "--answer", "3",
                                   "--data",   dir_.path(),
                                   "--policy", "full;streaming_llm",
                                   "--pot",    "128"};
      const std::vector<json> rows = Rows(arguments);
      EXPECT_FALSE(rows.empty());
      EXPECT_EQ(Figures(Rows(arguments)), Figures(rows));
    }
  }
}

TEST_F(EvalPicturesTest, AllContendersWithoutBeingNamed) {
  std::set<std::string> policies;
  for (const json& row : Rows(Command("videoqa", {"--data", dir_.path(), "--pot", "96", "--rounds", "4"}))) {
    policies.insert(row["policy"].get<std::string>().substr(0, row["policy"].get<std::string>().find(':')));
  }
  EXPECT_EQ(policies,
            (std::set<std::string>{"full", "window", "last_frames", "streaming_llm", "h2o", "snapkv", "inf_mllm",
                                   "infinipot", "infinipot_v", "weir", "streaming_vlm", "a_vl", "fastv"}));
}

TEST_F(EvalPicturesTest, WhatIsCompleteIsNotRunAgain) {
  const auto command = [&](const std::string& policies, const std::string& resume) {
    Arguments out = Command("videoqa", {"--data", dir_.path(), "--policy", policies, "--pot", "64", "--rounds", "4"});
    if (!resume.empty()) out.insert(out.end(), {"--resume", resume});
    return out;
  };
  const RunResult first = Run(command("window", ""));
  ASSERT_EQ(first.code, 0) << first.err;
  const std::string rows = dir_.Write("rows.jsonl", first.out + "{\"half a ro");
  for (const json& row : Rows(command("window;h2o", rows)))
    EXPECT_EQ(row["policy"].get<std::string>().substr(0, 3), "h2o");
  EXPECT_NE(last_err_.find("already finished"), std::string::npos) << last_err_;
  // Runs that were stopped, or used another pot, are run again.
  std::string stopped = first.out;
  for (size_t at; (at = stopped.find("\"complete\":true")) != std::string::npos;) {
    stopped.replace(at, 15, "\"complete\":false");
  }
  EXPECT_FALSE(Rows(command("window", dir_.Write("rows.jsonl", stopped))).empty());
  ExpectError(command("window", dir_.File("none.jsonl")), {"none.jsonl"});
}

TEST_F(EvalPicturesTest, StreamVideoTellsPresentFromMemory) {
  std::set<std::string> cells;
  const Arguments arguments = Command("streamvideo", {"--data", dir_.path(), "--policy", "weir", "--pot", "64", "--fps",
                                                      "0.0333", "--first", "0.1", "--ages", "1.5", "--transcript"});
  for (const json& row : Rows(arguments)) {
    cells.insert(row["kind"].get<std::string>());
    EXPECT_TRUE(row["turnovers"].is_number());
    if (row["kind"] == "first_minute") {
      EXPECT_EQ(row["n"], 2);
      EXPECT_EQ(row["age_min"], 1.5);
      EXPECT_GT(row["turnovers"], 0);
    }
  }
  EXPECT_EQ(cells, (std::set<std::string>{"present", "memory", "first_minute"}));
  EXPECT_NE(last_err_.find("[2:00] the man"), std::string::npos) << last_err_;
}

TEST_F(EvalPicturesTest, VqaScoresAFolderByEveryMetric) {
  const std::string file = dir_.Write("questions.jsonl", R"({"image": "0.ppm", "question": "the man", "answer": "sea"}
{"image": "1.ppm", "question": "the man", "answers": ["sea", "man"]}
{"image": "1.ppm", "question": "the sea", "answers": ["sea", "man"]}
)");
  const std::vector<json> rows =
      Rows(Command("vqa", {"--data", dir_.path(), "--metric", "exact,vqa,anls,f1,rouge_l,cider"}));
  ASSERT_EQ(rows.size(), 6u);
  for (const json& row : rows) {
    EXPECT_EQ(row["n"], 3);
    EXPECT_EQ(row["stored_share"], 1);
    EXPECT_EQ(row["used_share"], 1);
  }
  EXPECT_EQ(Rows(Command("vqa", {"--data", file, "--n", "2"}))[0]["n"], 2);
  const std::vector<json> beams = Rows(Command("vqa", {"--data", file, "--beams", "3", "--length-penalty", "0.5"}));
  ASSERT_EQ(beams.size(), 1u);
  EXPECT_EQ(beams[0]["n"], 3);
  EXPECT_EQ(beams[0]["stored_share"], 1);
  EXPECT_NE(beams[0]["settings"].get<std::string>().find("beams=3^0.5"), std::string::npos);
  const std::vector<json> pruned = Rows(Command("vqa", {"--data", file, "--prune", "none;l2:keep=0.2"}, true));
  ASSERT_EQ(pruned.size(), 2u);
  EXPECT_EQ(pruned[1]["method"], "l2");
  EXPECT_EQ(pruned[1]["keep"], 0.2);
  EXPECT_LT(pruned[1]["kv_bytes"], pruned[0]["kv_bytes"]);
}

TEST_F(EvalPicturesTest, CatpRunsItsTable) {
  const std::string file =
      dir_.Write("questions.jsonl", "{\"image\": \"0.ppm\", \"question\": \"the man\", \"answer\": \"sea\"}\n");
  std::map<std::string, std::set<double>> methods;
  for (const json& row :
       Rows(Command("catp", {"--data", file, "--keep", "0.5,0.25", "--prompt", "completion"}, true))) {
    methods[row["method"].get<std::string>()].insert(row["keep"].get<double>());
    EXPECT_EQ(row["prompt"], "completion");
  }
  EXPECT_EQ(methods["none"], std::set<double>{1});
  methods.erase("none");
  for (const char* name :
       {"catp:layers=all,weights=none,layer_weights=even", "catp:layers=all,weights=image,layer_weights=even",
        "catp:layers=first,weights=none,layer_weights=even", "l2", "self_attention:cascade=off",
        "self_attention:cascade=on"}) {
    EXPECT_EQ(methods[name], (std::set<double>{0.25, 0.5})) << name;
  }
  ExpectError(Command("catp", {"--data", file}), {"Q-Former"});
}

TEST_F(EvalPicturesTest, AvlReportsShares) {
  const std::string file =
      dir_.Write("questions.jsonl", "{\"image\": \"0.ppm\", \"question\": \"the man\", \"answer\": \"sea\"}\n");
  std::map<std::string, json> by_policy;
  for (const json& row : Rows(Command("avl", {"--data", file, "--decode", "12"}))) by_policy[row["policy"]] = row;
  EXPECT_EQ(by_policy.size(), 11u);
  for (const auto& [policy, row] : by_policy) {
    EXPECT_GT(row["latency_ratio"], 0) << policy;
    if (policy == "full") {
      EXPECT_EQ(row["stored_share"], 1);
      EXPECT_EQ(row["latency_ratio"], 1);
    } else if (policy.rfind("a_vl", 0) == 0) {
      EXPECT_LE(row["stored_visual_share"], 0.45);
      EXPECT_LE(row["used_share"], row["stored_share"].get<double>() + 0.5);  // written tokens are added
    } else if (policy.rfind("h2o", 0) == 0) {  // FastV's first layers are all that the tiny model has
      EXPECT_LT(row["kv_bytes"], by_policy["full"]["kv_bytes"]) << policy;
    }
  }
}

TEST_F(EvalPicturesTest, WhatCannotBeRunIsSaid) {
  const std::string line = "{\"image\": \"none.ppm\", \"question\": \"the man\", \"answer\": \"sea\"}\n";
  ExpectError(Command("vqa", {"--data", dir_.Write("a.jsonl", line)}), {"none.ppm"}, true);
  ExpectError(Command("vqa", {"--data", dir_.Write("b.jsonl", "{\"image\": 5}\n")}), {"b.jsonl", "line 1"});
  ExpectError(Command("vqa", {"--data", dir_.File("nowhere")}), {"nowhere"});
  ExpectError(Command("vqa", {"--data", dir_.path(), "--metric", "bleu"}), {"bleu", "rouge_l"});
  ExpectError(Command("videoqa", {"--data", dir_.path(), "--policy", "nobody"}), {"nobody"});
  ExpectError(Command("videoqa", {"--data", dir_.path(), "--prune", "nobody"}), {"nobody"});
  ExpectError({"eval", "vqa", "-m", VisionFile("llava.gguf"), "--data", dir_.path()}, {"--mmproj"});
}

}  // namespace
}  // namespace weir::testing
