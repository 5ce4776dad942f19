// SPDX-License-Identifier: Apache-2.0
// Pictures and video through the program: what they become, what is counted and planned, and what is refused.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/refusal.h"
#include "support/pictures.h"

namespace weir::testing {
namespace {

using nlohmann::json;

constexpr int kRows = 25;  // of the tiny encoder

class PicturesTest : public RefusalTest {
 protected:
  void SetUp() override {
    if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
  }
  Arguments Command(const std::string& name, const Arguments& more) {
    return Join({name, "-m", VisionPath("llava.gguf"), "--mmproj", VisionPath("clip.gguf"), "--temp", "0", "-n", "6",
                 "--ignore-eos"},
                more);
  }
  json Json(const Arguments& arguments) {
    const RunResult run = Run(Join(arguments, {"-o", "json"}));
    EXPECT_EQ(run.code, 0) << ::testing::PrintToString(arguments) << "\n" << run.err;
    json value = json::parse(run.out, nullptr, false);
    EXPECT_TRUE(value.is_object()) << run.out;
    return value;
  }
  std::vector<json> Rows(const std::string& out) {
    std::vector<json> rows;
    for (const std::string& line : Lines(out)) rows.push_back(json::parse(line, nullptr, false));
    return rows;
  }
  std::string Ppm(const std::string& name, int width, int height, int shade = 0) {
    return dir_.Write(name, PpmBytes(width, height, shade));
  }
  // While it lives, scripts with this `body` stand in for ffmpeg and ffprobe on PATH.
  class Instead {
   public:
    Instead(const TempDir& dir, const std::string& body) : old_(std::getenv("PATH")) {
      for (const char* name : {"ffmpeg", "ffprobe"}) {
        chmod(dir.Write(name, "#!/bin/sh\n" + body).c_str(), 0755);
      }
      setenv("PATH", (dir.path() + ":" + old_).c_str(), 1);
    }
    ~Instead() { setenv("PATH", old_.c_str(), 1); }

   private:
    const std::string old_;
  };
};

TEST_F(PicturesTest, APictureStandsBeforeThePromptOrWhereItSays) {
  const std::string one = Ppm("one.ppm", 60, 40), two = Ppm("two.ppm", 60, 40, 100);
  const json run = Json(Command("run", {"--image", one, "-p", "the man"}));
  EXPECT_EQ(run["modalities"]["image"]["tokens_seen"], kRows);
  EXPECT_EQ(run["tokens_seen"], run["modalities"]["text"]["tokens_seen"].get<int>() + kRows);
  EXPECT_EQ(run["tokens_dropped"], 0);
  const auto text = [&](const Arguments& more) { return Json(Command("run", more))["text"].get<std::string>(); };
  EXPECT_EQ(run["text"], text({"--image", one, "-p", "<__media__>the man"}));
  EXPECT_EQ(Json(Command("run", {"-p", "the man"}))["tokens_seen"], run["tokens_seen"].get<int>() - kRows);
  // The position of the picture matters, and so does its content.
  const Arguments both = {"--image", one, "--image", two, "-p"};
  EXPECT_EQ(text(Join(both, {"the man"})), text(Join(both, {"<__media__><__media__>the man"})));
  EXPECT_EQ(Json(Command("run", Join(both, {"a <__media__> b <__media__>"})))["modalities"]["image"]["tokens_seen"],
            2 * kRows);
  ExpectError(Command("run", Join(both, {"only <__media__> here"})), {"1 place", "2 pictures"});
}

TEST_F(PicturesTest, ChatSeesWhatRunSees) {
  const std::string picture = Ppm("one.ppm", 60, 40), video = dir_.Write("v.y4m", Y4mBytes(8, 4));
  RunOptions options;
  for (const bool is_video : {false, true}) {
    options.input = (is_video ? "/video " + video : "/image " + picture) + "\nwhat is it\n";
    const RunResult chat = Run(Command("chat", {"--max-side", "64", "--fps", "2"}), options);
    ASSERT_EQ(chat.code, 0) << chat.err;
    const json run = Json(Command("run", {"--chat", is_video ? "--video" : "--image", is_video ? video : picture,
                                          "--fps", "2", "-p", "what is it"}));
    EXPECT_EQ(Lines(chat.out).front(), Lines(run["text"].get<std::string>() + "\n").front());
    EXPECT_EQ(run["modalities"][is_video ? "video" : "image"]["tokens_seen"], is_video ? 4 * kRows : kRows);
    EXPECT_NE(chat.err.find(is_video ? "4 frames" : "read 25 tokens"), std::string::npos) << chat.err;
  }
  options.input =
      "/image " + dir_.File("none.png") + "\n/image " + dir_.Write("no.png", "no picture") + "\nwhat is it\n";
  const RunResult chat = Run(Command("chat", {}), options);
  EXPECT_EQ(chat.code, 0) << chat.err;
  EXPECT_NE(chat.err.find("none.png: no such file"), std::string::npos) << chat.err;
  EXPECT_NE(chat.err.find("weir: error: " + dir_.File("no.png")), std::string::npos) << chat.err;
  EXPECT_FALSE(chat.out.empty());
}

// Of every kind of encoder that takes pictures apart, or of any size.
TEST_F(PicturesTest, PlansCoverEveryEncoder) {
  const std::string picture = Ppm("wide.ppm", 210, 160);
  for (const auto& [model, encoder] : {std::pair{"gemma3_text.gguf", "gemma3_vision.gguf"},
                                       {"gemma4_text.gguf", "gemma4_vision.gguf"},
                                       {"gemma4_large_text.gguf", "gemma4_large_vision.gguf"},
                                       {"mistral3_text.gguf", "mistral3_pixtral.gguf"},
                                       {"minicpmv_text.gguf", "minicpmv.gguf"},
                                       {"lfm2_text.gguf", "lfm2_vision.gguf"},
                                       {"internvl_qwen2.gguf", "internvl.gguf"},
                                       {"qwen3vl_deepstack.gguf", "qwen3vl_merger.gguf"}}) {
    SCOPED_TRACE(encoder);
    const Arguments pair = {
        "-m", VisionPath(model), "--mmproj", VisionPath(encoder), "--image", picture, "--pot", "128", "-o", "json"};
    const RunResult planned = Run(Join({"plan"}, pair));
    ASSERT_EQ(planned.code, 0) << planned.err;
    const json plan = json::parse(planned.out);
    const RunResult ran = Run(Join({"run", "-p", "the man", "--temp", "0", "-n", "3"}, pair));
    ASSERT_EQ(ran.code, 0) << ran.err;
    const json run = json::parse(ran.out);
    EXPECT_LE(run["peak_bytes"], plan["session_bytes"]);
    EXPECT_GT(run["modalities"]["image"]["tokens_seen"], 8);
  }
}

TEST_F(PicturesTest, ThePlanIsWhatASessionUses) {
  const std::string picture = Ppm("one.ppm", 300, 200);
  const json plan = [&] {
    const RunResult run = Run({"plan", "-m", VisionPath("llava.gguf"), "--mmproj", VisionPath("clip.gguf"), "--image",
                               picture, "--pot", "64", "-o", "json"});
    EXPECT_EQ(run.code, 0) << run.err;
    return json::parse(run.out);
  }();
  int64_t vision = 0, sum = 0;
  for (const json& item : plan["items"]) {
    sum += item["bytes"].get<int64_t>();
    if (item["tag"] == "vision") vision += item["bytes"].get<int64_t>();
  }
  EXPECT_EQ(sum, plan["session_bytes"]);
  EXPECT_GT(vision, 3 * 300 * 200);
  EXPECT_GT(plan["encoder_weights_bytes"], 100'000);
  const json run = Json(Command("run", {"--image", picture, "-p", "the man", "--pot", "64"}));
  EXPECT_LE(run["peak_bytes"], plan["session_bytes"]);
  EXPECT_GT(run["peak_bytes"], plan["session_bytes"].get<int64_t>() - (300 << 10));
  // A budget covers pictures too: one that just fits, and a byte less than the smallest.
  const std::string least = std::to_string(plan["minimum_bytes"].get<int64_t>());
  EXPECT_EQ(Json(Command(
                "run", {"--image", picture, "-p", "the man", "--budget", least}))["modalities"]["image"]["tokens_seen"],
            kRows);
  ExpectError(Command("run", {"--image", picture, "-p", "a", "--budget",
                              std::to_string(plan["minimum_bytes"].get<int64_t>() - 1)}),
              {"too small", least});
}

TEST_F(PicturesTest, AVideoLongerThanThePotIsTracedByModalityAndTime) {
  const std::string video = dir_.Write("v.y4m", Y4mBytes(100, 5)), trace = dir_.File("t.jsonl");
  const json run = Json(Command("run", {"--video", video, "--fps", "1", "-p", "the man", "--pot", "128", "--policy",
                                        "streaming_llm", "--trace", trace}));
  const json& seen = run["modalities"]["video"];
  EXPECT_EQ(seen["tokens_seen"], 20 * kRows);
  EXPECT_EQ(seen["tokens_seen"], seen["tokens_kept"].get<int>() + seen["tokens_dropped"].get<int>());
  EXPECT_GT(seen["tokens_dropped"], 300);
  const RunResult table = Run({"trace", trace});
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_NE(table.out.find("video"), std::string::npos);
  EXPECT_NE(table.out.find("0.0 to 1.9"), std::string::npos) << table.out;
  int64_t n_video = 0;
  for (const json& event : Rows(Run({"trace", trace, "--events"}).out)) {
    if (event["modality"] != "video") continue;
    ++n_video;
    EXPECT_EQ(event["token"], -1);
    EXPECT_LE(event["t_src_ms"], 19'000);
  }
  EXPECT_EQ(n_video, seen["tokens_dropped"]);
}

TEST_F(PicturesTest, WatchAnswersAtItsMoments) {
  const std::string video = dir_.Write("v.y4m", Y4mBytes(60, 5));
  RunOptions options;
  options.input = "@3.5 what was that\nand this\n@7.9 and then\n";
  const RunResult run =
      Run(Command("watch", {video, "--fps", "2", "--fast", "--pot", "128", "--policy", "streaming_llm", "--ask",
                            "what is it", "--every", "5s", "--report", "4s", "-o", "json"}),
          options);
  ASSERT_EQ(run.code, 0) << run.err;
  std::vector<std::pair<int64_t, std::string>> answers;
  std::vector<int64_t> reports;
  const std::vector<json> rows = Rows(run.out);
  for (const json& row : rows) {
    ASSERT_TRUE(row.is_object()) << run.out;
    EXPECT_EQ(row["frames_dropped"], 0);
    EXPECT_EQ(row["tokens_seen"], row["tokens_kept"].get<int64_t>() + row["tokens_dropped"].get<int64_t>());
    if (row["type"] == "report") {
      reports.push_back(row["t_ms"]);
      continue;
    }
    answers.emplace_back(row["t_ms"], row["question"]);
    EXPECT_GT(row["ttft_ms"], 0);
    EXPECT_FALSE(row["text"].get<std::string>().empty());
  }
  EXPECT_EQ(reports, (std::vector<int64_t>{4000, 8000, 11500}));
  ASSERT_EQ(answers.size(), 5u);
  // A question without a time is asked as soon as the first frame is there.
  EXPECT_EQ(answers[0].second, "and this");
  EXPECT_LE(answers[0].first, 3500);
  EXPECT_EQ(answers[1], (std::pair<int64_t, std::string>{3500, "what was that"}));
  EXPECT_EQ(answers[2], (std::pair<int64_t, std::string>{5000, "what is it"}));
  // Between the frames of 7.5 and 8.0 seconds: from what was seen by then.
  EXPECT_EQ(answers[3], (std::pair<int64_t, std::string>{7500, "and then"}));
  EXPECT_EQ(answers[4], (std::pair<int64_t, std::string>{10000, "what is it"}));
  EXPECT_EQ(rows.back()["frames_looked_at"], 24);
  EXPECT_EQ(rows.back()["frames_arrived"], 24);
}

// Frames that an encoder keeps together take no token until a question or the video's end: 20 frames of a second, then
// as many rows as the memory has.
TEST_F(PicturesTest, FramesThatAreReadTogether) {
  const std::string video = dir_.Write("v.y4m", Y4mBytes(100, 5));
  const struct {
    std::string name;
    int at_the_end, at_questions;  // at seconds 5, 10, 15
  } cases[] = {{"flash_vstream", 80, 3 * 80}, {"chat_univi", 63 + 63, 42 + 42 + 42}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const Arguments pair = {"-m",
                            VisionPath("llava.gguf"),
                            "--mmproj",
                            VisionPath(c.name + ".gguf"),
                            "--temp",
                            "0",
                            "-n",
                            "4",
                            "--ignore-eos",
                            "--fps",
                            "1"};
    const json run = Json(Join({"run", "--video", video, "-p", "the man", "--pot", "256"}, pair));
    EXPECT_EQ(run["modalities"]["video"]["tokens_seen"], c.at_the_end);
    const RunResult watch = Run(Join({"watch", video, "--fast", "--pot", "256", "--policy", "streaming_llm", "--ask",
                                      "what is it", "--every", "5s", "-o", "json"},
                                     pair));
    ASSERT_EQ(watch.code, 0) << watch.err;
    const json last = Rows(watch.out).back();
    EXPECT_EQ(last["frames_looked_at"], 20);
    EXPECT_EQ(last["modalities"]["video"]["tokens_seen"], c.at_questions) << "each reads what is kept by then";
  }
}

// Two frames are one, whose first half waits for a question, for a rule and for the video's end at most.
TEST_F(PicturesTest, TwoFramesThatAreReadAsOne) {
  const std::string video = dir_.Write("v.y4m", Y4mBytes(5, 2));  // 3 x 2 rows
  for (const auto& [model, encoder] :
       {std::pair{"qwen25vl.gguf", "qwen25vl_merger.gguf"}, {"qwen3vl_deepstack.gguf", "qwen3vl_merger.gguf"}}) {
    SCOPED_TRACE(encoder);
    const Arguments pair = {
        "-m", VisionPath(model), "--mmproj", VisionPath(encoder), "--temp",       "0", "-n", "4", "--fps",
        "2",  "--pot",           "256",      "--policy",          "streaming_llm"};
    const json run = Json(Join({"run", "--video", video, "-p", "the man", "--ignore-eos"}, pair));
    EXPECT_EQ(run["modalities"]["video"]["tokens_seen"], 3 * 6);
    const struct {
      Arguments flags;
      int n_pairs;
    } cases[] = {{{}, 3},
                 // Every other frame looks like the one before it, which then waits no longer.
                 {{"--skip-still", "10s"}, 3},
                 {{"--ask", "what is it", "--every", "500ms"}, 4},  // from the second frame on, at each
                 {{"--when", "who => sea"}, 5},
                 {{"--when", "who => sea", "--check", "2"}, 3}};
    for (const auto& c : cases) {
      SCOPED_TRACE(::testing::PrintToString(c.flags));
      const RunResult watch = Run(Join(Join({"watch", video, "--fast", "-o", "json"}, pair), c.flags));
      ASSERT_EQ(watch.code, 0) << watch.err;
      const json last = Rows(watch.out).back();
      EXPECT_EQ(last["frames_looked_at"].get<int>() + last["frames_still"].get<int>(), 5);
      EXPECT_EQ(last["modalities"]["video"]["tokens_seen"], c.n_pairs * 6);
    }
  }
}

TEST_F(PicturesTest, WatchPlaysAndCountsWhatItMissed) {
  // 40 frames in 2 seconds, a queue of one: an answer in between costs frames, and every one of them is counted.
  const std::string video = dir_.Write("v.y4m", Y4mBytes(40, 20));
  RunOptions options;
  options.input = "what is it\n";
  const RunResult run =
      Run({"watch", video, "-m", VisionPath("llava.gguf"), "--mmproj", VisionPath("clip.gguf"), "--temp", "0", "-n",
           "200", "--ignore-eos", "--fps", "20", "--queue", "1", "--pot", "512", "-o", "json"},
          options);
  ASSERT_EQ(run.code, 0) << run.err;
  const json last = Rows(run.out).back();
  EXPECT_EQ(last["frames_arrived"], 40);
  EXPECT_EQ(last["frames_arrived"], last["frames_looked_at"].get<int>() + last["frames_dropped"].get<int>());
  EXPECT_EQ(last["modalities"]["video"]["tokens_seen"], last["frames_looked_at"].get<int>() * kRows);
  EXPECT_EQ(last["t_ms"], 1950);
}

TEST_F(PicturesTest, WhatCannotWork) {
  const std::string picture = Ppm("one.ppm", 8, 8), other = ModelPath("llama");
  const Arguments tail = {"-p", "a", "-n", "2"};
  ExpectError(Join({"run", "-m", VisionPath("llava.gguf"), "--image", picture}, tail), {"--mmproj"});
  ExpectError(Join({"run", "-m", other, "--mmproj", VisionPath("clip.gguf"), "--image", picture}, tail),
              {"48", "64", "do not belong together"});
  ExpectError(Join({"run", "-m", VisionPath("llava.gguf"), "--mmproj", other, "--image", picture}, tail),
              {"no vision encoder"});
  ExpectError({"watch", picture, "-m", VisionPath("llava.gguf")}, {"--mmproj"});
  ExpectError(Command("watch", {picture, "--ask", "what", "--every", "soon"}), {"--every", "soon"});
  ExpectError(Command("watch", {picture, "--every", "3s"}), {"--ask"});
  ExpectError(Command("run", {"--video", picture, "--fps", "0", "-p", "a"}), {"--fps"});
  ExpectError(Command("run", {"--image", picture, "-p", ""}), {"empty"});
}

// One chunk of a PNG.
std::string PngChunk(const std::string& type, const std::string& data) {
  const auto number = [](uint32_t n) {
    return std::string{static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8),
                       static_cast<char>(n)};
  };
  uint32_t crc = 0xFFFFFFFFu;
  for (const char c : type + data) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
  }
  return number(static_cast<uint32_t>(data.size())) + type + data + number(~crc);
}

TEST_F(PicturesTest, HostileFilesAreOneLine) {
  const std::string header = "\x89PNG\r\n\x1a\n";
  const auto png = [&](const std::string& size) {
    return header + PngChunk("IHDR", size + size + std::string("\x08\x02\x00\x00\x00", 5)) +
           PngChunk("IDAT", std::string("\x78\x9c\x63\x00\x00\x00\x01\x00\x01", 9)) + PngChunk("IEND", "");
  };
  const std::string wav = std::string("RIFF\x24\x08\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00", 24) +
                          std::string(
                              "\x40\x1f\x00\x00\x80\x3e\x00\x00\x02\x00\x10\x00"
                              "data\x00\x08\x00\x00",
                              20) +
                          std::string(2048, '\0');
  struct Case {
    std::string name, bytes;
    Arguments words;
  };
  const Case cases[] = {
      {"empty.png", "", {"empty.png"}},
      {"text.png", "this is no picture\n", {"text.png"}},
      {"cut.ppm", PpmBytes(64, 64).substr(0, 200), {"cut.ppm"}},
      {"cut.png", header + "\x00\x00", {"cut.png"}},
      {"nothing.png", png(std::string(4, '\0')), {"nothing.png"}},
      {"huge.png", png(std::string("\x00\x00\x75\x30", 4)), {"huge.png", "30000x30000"}},
      {"large.png", png(std::string("\x00\x00\x2e\xe0", 4)), {"large.png", "12000 x 12000"}},
      {"sound.wav", wav, {"sound.wav", "no picture"}},
      {"sound.mp4", wav, {"sound.mp4", "no picture"}},
  };
  for (const Case& c : cases) {
    const std::string path = dir_.Write(c.name, c.bytes);
    for (const char* flag : {"--image", "--video"}) {
      const bool late = c.name == "cut.ppm";  // its size is fine
      ExpectError(Command("run", {flag, path, "-p", "a"}), c.words, late);
    }
    ExpectError(Command("watch", {path, "--ask", "what", "--fast"}), c.words, c.name == "cut.ppm");
  }
  // The file name does not determine the format.
  EXPECT_EQ(
      Json(Command("run", {"--image", Ppm("picture.mp4", 40, 40), "-p", "a"}))["modalities"]["image"]["tokens_seen"],
      kRows);
}

TEST_F(PicturesTest, ADecoderThatHangsOrDiesEndsNothingElse) {
  const std::string picture = Ppm("one.ppm", 40, 40);
  for (const char* body : {"sleep 600\n", "kill -9 $$\n", "echo broken >&2; exit 3\n", "exit 0\n",
                           "while :; do echo P6 9999999999 1; done\n"}) {
    SCOPED_TRACE(body);
    const Instead broken(dir_, body);
    ExpectError(Command("run", {"--image", picture, "-p", "a", "--media-timeout", "1"}), {"one.ppm"});
    RunOptions options;
    options.input = "/image " + picture + "\nwho are you\n";
    const RunResult chat = Run(Command("chat", {"--media-timeout", "1"}), options);
    EXPECT_EQ(chat.code, 0) << chat.err;
    EXPECT_NE(chat.err.find("one.ppm"), std::string::npos) << chat.err;
    EXPECT_FALSE(chat.out.empty()) << "the conversation goes on";
  }
}

}  // namespace
}  // namespace weir::testing
