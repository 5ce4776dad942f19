// SPDX-License-Identifier: Apache-2.0
// Pruners through the programs: how many rows of pictures the language model sees, what is counted, planned and
// refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/refusal.h"
#include "support/pictures.h"

namespace weir::testing {
namespace {

using nlohmann::json;

constexpr int kRows = 12;  // of the tiny BLIP-2 encoder

class PrunersTest : public RefusalTest {
 protected:
  void SetUp() override {
    if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
    model_ = dir_.Write("opt.gguf", SpeakingOpt().Bytes());
    picture_ = dir_.Write("one.ppm", PpmBytes(60, 40));
  }
  Arguments Command(const std::string& name, const Arguments& more) {
    return Join({name, "-m", model_, "--mmproj", VisionPath("blip2.gguf"), "--temp", "0", "-n", "4", "--ignore-eos"},
                more);
  }
  json Json(const Arguments& arguments) {
    const RunResult run = Run(Join(arguments, {"-o", "json"}));
    EXPECT_EQ(run.code, 0) << ::testing::PrintToString(arguments) << "\n" << run.err;
    return json::parse(run.out, nullptr, false);
  }
  std::string model_, picture_;
};

TEST_F(PrunersTest, TheModelSeesTheShareThatStays) {
  const Arguments look = {"--image", picture_, "-p", "the man"};
  const json all = Json(Command("run", look));
  EXPECT_EQ(all["modalities"]["image"]["tokens_seen"], kRows);
  EXPECT_FALSE(all.contains("rows_pruned"));
  for (const auto& [prune, n_left] : {std::pair{"catp:keep=0.5", 6},
                                      {"catp:keep=0.25,layers=first,weights=image", 3},
                                      {"l2:keep=0.125", 2},
                                      {"self_attention", 6},
                                      {"catp:keep=1", kRows}}) {
    SCOPED_TRACE(prune);
    const json run = Json(Command("run", Join(look, {"--prune", prune})));
    EXPECT_EQ(run["modalities"]["image"]["tokens_seen"], n_left);
    EXPECT_EQ(run["rows_pruned"], kRows - n_left);
    EXPECT_EQ(run["tokens_seen"], all["tokens_seen"].get<int>() - (kRows - n_left));
    if (n_left == kRows) EXPECT_EQ(run["text"], all["text"]);
  }
  // Every picture on its own, with text output too.
  const RunResult run = Run(Command("run", Join(look, {"--image", picture_, "--prune", "catp"})));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.err.find("pruner   catp, keeps 6 of a picture's 12 tokens"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("12 rows of pictures pruned"), std::string::npos) << run.err;
}

TEST_F(PrunersTest, PoliciesForgetWhatIsLeft) {
  const std::string video = dir_.Write("v.y4m", Y4mBytes(40, 5)), trace = dir_.File("t.jsonl");
  const Arguments flags = {"--fps", "5", "--prune", "catp:keep=0.25", "--pot", "48", "--policy"};
  for (const char* policy : {"streaming_llm", "h2o", "streaming_vlm"}) {
    SCOPED_TRACE(policy);
    const json run = Json(Command("run", Join(Join(flags, {policy}), {"--video", video, "-p", "the man"})));
    EXPECT_EQ(run["rows_pruned"], 40 * 9);
    const json& seen = run["modalities"]["video"];
    EXPECT_EQ(seen["tokens_seen"], 40 * 3);
    EXPECT_EQ(seen["tokens_seen"], seen["tokens_kept"].get<int>() + seen["tokens_dropped"].get<int>());
    EXPECT_GT(seen["tokens_dropped"], 40);
  }
  const RunResult watch =
      Run(Command("watch", Join(Join(flags, {"streaming_llm"}), {video, "--fast", "--ask", "what", "-o", "json"})));
  ASSERT_EQ(watch.code, 0) << watch.err;
  const json last = json::parse(Lines(watch.out).back(), nullptr, false);
  EXPECT_EQ(last["rows_pruned"], 40 * 9);
  EXPECT_EQ(last["modalities"]["video"]["tokens_seen"], 40 * 3);
}

TEST_F(PrunersTest, ChatTellsHowMany) {
  RunOptions options;
  options.input = "/image " + picture_ + "\n/memory\nwhat is it\n";
  const RunResult chat = Run(Command("chat", {"--prune", "l2:keep=0.25", "--max-side", "64"}), options);
  ASSERT_EQ(chat.code, 0) << chat.err;
  EXPECT_NE(chat.err.find("read 3 tokens of " + picture_ + ", 9 rows pruned"), std::string::npos) << chat.err;
  EXPECT_NE(chat.err.find("9 rows of pictures pruned"), std::string::npos) << chat.err;
}

TEST_F(PrunersTest, ThePlanHoldsThePruner) {
  const Arguments tail = {"--image", picture_, "--pot", "32", "--prune", "catp:weights=image"};
  const json plan = Json(Join({"plan", "-m", model_, "--mmproj", VisionPath("blip2.gguf")}, tail));
  EXPECT_EQ(plan["prune"], "catp:keep=0.5,layers=all,weights=image,layer_weights=even");
  int64_t sum = 0, pruner = 0;
  for (const json& item : plan["items"]) {
    sum += item["bytes"].get<int64_t>();
    if (StartsWith(item["what"].get<std::string>(), "pruner catp")) pruner = item["bytes"];
  }
  EXPECT_EQ(sum, plan["session_bytes"]);
  EXPECT_GT(pruner, kRows * 16);
  const json run = Json(Command("run", Join(tail, {"-p", "the man"})));
  EXPECT_LE(run["peak_bytes"], plan["session_bytes"]);
}

TEST_F(PrunersTest, WhatCannotWork) {
  const auto refused = [&](const std::string& prune, const Arguments& words) {
    ExpectError(Command("run", {"--image", picture_, "-p", "a", "--prune", prune}), words);
    ExpectError({"plan", "-m", model_, "--mmproj", VisionPath("blip2.gguf"), "--prune", prune}, words);
  };
  refused("nobody", {"nobody", "catp", "self_attention"});
  refused("catp:keep=2", {"keep=2"});
  refused("catp:layers=7", {"layer 7", "cross-attention"});
  refused("catp:K=3", {"no option 'K'"});
  ExpectError({"run", "-m", model_, "-p", "a", "--prune", "catp"}, {"--prune", "--mmproj"});
  ExpectError({"run", "-m", VisionPath("llava.gguf"), "--mmproj", VisionPath("clip.gguf"), "--image", picture_, "-p",
               "a", "--prune", "catp"},
              {"catp", "none"});
  ExpectError({"run", "-m", VisionPath("llava.gguf"), "--mmproj", VisionPath("clip_next.gguf"), "--image", picture_,
               "-p", "a", "--prune", "l2"},
              {"l2", "tiles"});
  // A pair without learned queries still has rows.
  const json run = Json({"run", "-m", VisionPath("llava.gguf"), "--mmproj", VisionPath("clip.gguf"), "--image",
                         picture_, "-p", "a", "-n", "2", "--temp", "0", "--prune", "l2:keep=0.2"});
  EXPECT_EQ(run["modalities"]["image"]["tokens_seen"], 5);
  EXPECT_EQ(run["rows_pruned"], 20);
}

}  // namespace
}  // namespace weir::testing
