// SPDX-License-Identifier: Apache-2.0
// `weir trace --attention`: on attention that is known, and on what a tiny pair writes.
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/refusal.h"
#include "support/pictures.h"

namespace weir::testing {
namespace {

using nlohmann::json;

class TraceAttentionTest : public RefusalTest {
 protected:
  // Words of the line of the table that begins with `first`, behind the line that begins with `head`.
  std::vector<std::string> Row(const std::string& out, const std::string& head, const std::string& first) {
    bool inside = false;
    for (const std::string& line : Lines(out)) {
      if (StartsWith(line, head)) inside = true;
      std::istringstream words(line);
      std::vector<std::string> row(std::istream_iterator<std::string>(words), {});
      if (inside && !row.empty() && row[0] == first) return row;
    }
    ADD_FAILURE() << "no line " << first << " behind " << head << " in\n" << out;
    return {};
  }
  // Two layers; token 0 is text, 1 to 9 are a picture, 10 and 11 text. Rows of the tokens 10 and 11.
  std::string Known() {
    const std::string head =
        R"({"type":"trace","version":1,"model":"m","policy":"full","layers":2,"kv_heads":2,"slots":16,"spread":1,)"
        R"("granularity":"global","positions":"cache","all_scores":false})";
    // In one layer tokens 8, 6, 5 lead, in the other 6, 5, 9: the paper's example.
    return head + "\n" +
           R"({"type":"tokens","seq":0,"ids":[3,-1,-1,-1,-1,-1,-1,-1,-1,-1,4],"t_src_ms":[[0,11]],"image":[[1,9]]})" +
           "\n" + R"({"type":"attention","n_seen":11,"layer":0,"score":[0.1,0,0,0,0,0.1,0.2,0,0.5,0,0.1]})" + "\n" +
           R"({"type":"attention","n_seen":11,"layer":1,"score":[0.1,0,0,0,0,0.2,0.5,0,0,0.1,0.1]})" + "\n" +
           R"({"type":"tokens","seq":11,"ids":[5],"t_src_ms":[[0,1]]})" + "\n" +
           R"({"type":"attention","n_seen":12,"layer":0,"score":[0.1,0.5,0.2,0.1,0,0,0,0,0,0,0,0.1]})" + "\n" +
           R"({"type":"attention","n_seen":12,"layer":1,"score":[0.1,0,0,0,0,0.1,0.5,0,0,0.2,0,0.1]})" + "\n" +
           R"({"type":"end","seen":12,"kept":12,"dropped":0,"selections":0})" + "\n";
  }
};

TEST_F(TraceAttentionTest, KnownAttentionGivesKnownFigures) {
  const std::string trace = dir_.Write("known.jsonl", Known());
  const RunResult run = Run({"trace", trace, "--attention", "--top", "0.3"});
  ASSERT_EQ(run.code, 0) << run.err;
  // Layer 0: 3 of 9 visual tokens have all; of 0.8 the first has 0.5, the second 0.2. At 30 % of 9: 0.5 + 0.2 + 0.7 x
  // 0.1.
  const auto first = Row(run.out, "layer", "0"), second = Row(run.out, "layer", "1");
  EXPECT_EQ(first, (std::vector<std::string>{"0", "0.7841", "0.8000", "0.1900", "0.9625", "1.0000"}));
  // In common with layer 0: two of three at the first row (0.67), none at the second.
  EXPECT_EQ(second.back(), "0.3333");
  // Of the second row's tops layer 0 has none of the first's, layer 1 all.
  EXPECT_EQ(Row(run.out, "token", "10"), (std::vector<std::string>{"10", "1.0000", "-"}));
  EXPECT_EQ(Row(run.out, "token", "11"), (std::vector<std::string>{"11", "0.5000", "0.5000"}));
  // Text: itself, its neighbour, and token 0, ten or eleven tokens away.
  EXPECT_EQ(Row(run.out, "text", "0"), (std::vector<std::string>{"0", "0.5000", "0.1000", "0.1000"}));
  EXPECT_EQ(Row(run.out, "text", "1"), (std::vector<std::string>{"1", "0.0000", "-", "0.0000"}));
  EXPECT_EQ(Row(run.out, "text", "8"), (std::vector<std::string>{"8", "to", "15", "0.5000", "0.1000", "0.1000"}));
  // One layer alone.
  const RunResult one = Run({"trace", trace, "--attention", "--top", "0.3", "--layer", "1"});
  EXPECT_EQ(Row(one.out, "token", "11"), (std::vector<std::string>{"11", "1.0000", "1.0000"}));
}

TEST_F(TraceAttentionTest, Pictures) {
  const std::string trace = dir_.Write("known.jsonl", Known()), svg = dir_.File("a.svg"), png = dir_.File("a.png");
  const RunResult drawn = Run({"trace", trace, "--attention", "-o", svg});
  ASSERT_EQ(drawn.code, 0) << drawn.err;
  EXPECT_EQ(drawn.out, "");
  const std::string text = FileBytes(svg);
  size_t n_maps = 0;
  for (size_t at = text.find("<image"); at != std::string::npos; at = text.find("<image", at + 1)) ++n_maps;
  EXPECT_EQ(n_maps, 4u);
  for (const char* words : {"PPCI at 50%", "best tokens receive", "moments", "Attention per token of text"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words;
  }
  EXPECT_EQ(Run({"trace", trace, "--attention", "-o", png}).code, 0);
  EXPECT_TRUE(StartsWith(FileBytes(png), "\x89PNG"));
}

TEST_F(TraceAttentionTest, WhatAPairWrites) {
  if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
  const std::string picture = dir_.Write("one.ppm", PpmBytes(60, 40)), trace = dir_.File("t.jsonl");
  const Arguments command = {"run",
                             "-m",
                             VisionPath("llava.gguf"),
                             "--mmproj",
                             VisionPath("clip.gguf"),
                             "-p",
                             "the man",
                             "--image",
                             picture,
                             "-n",
                             "12",
                             "--ignore-eos",
                             "--temp",
                             "0",
                             "--trace",
                             trace};
  const RunResult plain = Run(command);
  for (const auto& [policy, n_rows] : {std::pair{"full", 6}, {"streaming_llm", 6}, {"a_vl:K=3", 5}, {"fastv", 6}}) {
    SCOPED_TRACE(policy);
    const Arguments more = {"--policy", policy, "--trace-attention", "6"};
    const RunResult run = Run(Join(command, more));
    ASSERT_EQ(run.code, 0) << run.err;
    if (std::string(policy) == "full") EXPECT_EQ(run.out, plain.out) << "looking changes nothing";
    std::map<int64_t, int> layers;
    for (const std::string& line : Lines(FileBytes(trace))) {
      const json row = json::parse(line, nullptr, false);
      if (row["type"] != "attention") continue;
      ++layers[row["n_seen"]];
      double sum = 0;
      for (const json& score : row["score"]) sum += score.get<double>();
      EXPECT_NEAR(sum, 1, 1e-3);
    }
    // Of A-VL's steps only those that read everything are written: the prompt's end and every third.
    EXPECT_EQ(std::ssize(layers), n_rows);
    for (const auto& [row, n] : layers) EXPECT_EQ(n, 2) << row;
    const RunResult table = Run({"trace", trace, "--attention"});
    EXPECT_EQ(table.code, 0) << table.err;
    EXPECT_NE(table.out.find("PPCI"), std::string::npos) << table.out;
  }
}

TEST_F(TraceAttentionTest, WhatCannotWork) {
  const Arguments tail = {"-p", "a", "-n", "2"};
  ExpectError(Join({"run", "-m", ModelPath("llama"), "--trace-attention", "4"}, tail), {"--trace"});
  ExpectError(
      Join({"run", "-m", ModelPath("llama"), "--trace", dir_.File("t"), "--trace-attention", "4", "--policy", "h2o"},
           tail),
      {"h2o", "each head"});
  const std::string good = Known();
  const std::string none = dir_.Write("none.jsonl", good.substr(0, good.find("{\"type\":\"attention")));
  ExpectError({"trace", none, "--attention"}, {"none.jsonl", "--trace-attention"});
  ExpectError({"trace", none, "--attention", "-o", "a.gif"}, {"a.gif"});
  ExpectError({"trace", none, "--top", "0.3"}, {"--attention"});
  ExpectError({"trace", none, "--attention", "--events"}, {"--events"});
  const std::string known = dir_.Write("known.jsonl", good);
  ExpectError({"trace", known, "--attention", "--layer", "2"}, {"no such layer"});
  for (const auto& [from, to] : {std::pair{"\"layer\":1", "\"layer\":2"},
                                 {"\"n_seen\":11", "\"n_seen\":10"},
                                 {"0.1,0,0,0,0,0.1", "0.1,0,0,0,0.1"},
                                 {"[0.1,0,", "[\"x\",0,"},
                                 {"\"granularity\":\"global\"", "\"granularity\":\"per_head\""}}) {
    std::string bad = good;
    bad.replace(bad.find(from), std::string(from).size(), to);
    ExpectError({"trace", dir_.Write("bad.jsonl", bad), "--attention"}, {"bad.jsonl", "line"});
  }
}

}  // namespace
}  // namespace weir::testing
