// SPDX-License-Identifier: Apache-2.0
// Streams whose encoder reads two frames as one, over HTTP: what waits is read before a question, a text or a picture,
// saved, restored and copied with its session, and never found by another request.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/base64.h"
#include "cli/process.h"
#include "serve/picture_client.h"
#include "serve/session_client.h"

namespace weir::testing {
namespace {

constexpr int kRows = 12;  // of a frame of 40 x 30 pixels

struct Family {
  std::string name, model, encoder;
};

class FramePairsTest : public ::testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
  }
  std::string Encoder() const { return VisionFile(GetParam().encoder); }
  std::string Model() const { return VisionFile(GetParam().model); }
  std::vector<std::string> Flags(std::vector<std::string> more = {}) const {
    more.insert(more.end(),
                {"--pot", "256", "--policy", "streaming_llm", "--snapshots", folder_.path(), "--mmproj", Encoder()});
    return more;
  }
  static void Frames(Client& client, const std::string& id, int from, int to) {
    for (int i = from; i < to; ++i) {
      const HttpAnswer answer =
          client.Do(id, "append", {{"frame", DataUrl(PpmBytes(40, 30, 37 * i))}, {"t_ms", 500 * i}, {"wait", true}});
      ASSERT_EQ(answer.status, 200) << answer.body;
    }
  }
  static int SeenOf(Client& client, const std::string& id, const char* modality = "video") {
    return client.State(id)["modalities"].value(modality, Json::object()).value("seen", 0);
  }

  const TempDir folder_;
};

TEST_P(FramePairsTest, WhatComesBetweenTwoFramesReadsTheFirst) {
  const ServerProcess server(Flags(), Model());
  Client client(server);
  const std::string id = client.Create();
  Frames(client, id, 0, 1);
  EXPECT_EQ(SeenOf(client, id), 0) << "it waits";
  Frames(client, id, 1, 3);
  EXPECT_EQ(SeenOf(client, id), kRows);
  EXPECT_EQ(client.State(id)["modalities"]["video"]["to_ms"], 500);
  client.Append(id, "so much for that. ");
  EXPECT_EQ(SeenOf(client, id), 2 * kRows);
  Frames(client, id, 3, 4);
  const HttpAnswer picture = client.Do(id, "append", {{"image", DataUrl(PpmBytes(40, 30))}});
  ASSERT_EQ(picture.status, 200) << picture.body;
  EXPECT_EQ(SeenOf(client, id), 3 * kRows);
  EXPECT_EQ(SeenOf(client, id, "image"), kRows);
  Frames(client, id, 4, 5);
  client.Ask(id, "who?");
  EXPECT_EQ(SeenOf(client, id), 4 * kRows);
  EXPECT_EQ(client.State(id)["modalities"]["video"]["to_ms"], 2000);
  client.Ask(id, "and?");
  EXPECT_EQ(SeenOf(client, id), 4 * kRows) << "once is enough";
}

TEST_P(FramePairsTest, AStreamGoesOnAfterARestart) {
  std::vector<std::string> went_on;
  {
    const ServerProcess server(Flags(), Model());
    Client client(server);
    const std::string id = client.Create();
    Frames(client, id, 0, 3);
    ASSERT_EQ(client.Do(id, "save", {{"name", "seen"}}).status, 200);
    const HttpAnswer copied = client.Do(id, "fork", Json::object());
    ASSERT_EQ(copied.status, 201) << copied.body;
    const std::string copy = copied.json()["id"];
    for (const std::string& of : {id, copy}) {
      Frames(client, of, 3, 4);
      EXPECT_EQ(SeenOf(client, of), 2 * kRows);
      const std::vector<std::string> said = {client.Ask(of, "who?"), client.Ask(of, "and?")};
      if (of == id) went_on = said;
      EXPECT_EQ(said, went_on);
    }
  }
  const ServerProcess other(Flags(), Model());
  Client client(other);
  const HttpAnswer restored = other.Post(kSessions + "/restore", {{"name", "seen"}});
  ASSERT_EQ(restored.status, 201) << restored.body;
  const std::string id = restored.json()["id"];
  Frames(client, id, 3, 4);
  EXPECT_EQ(SeenOf(client, id), 2 * kRows);
  EXPECT_EQ(client.Ask(id, "who?"), went_on[0]);
  EXPECT_EQ(client.Ask(id, "and?"), went_on[1]);
  const HttpAnswer refused = ServerProcess({"--pot", "256", "--snapshots", folder_.path()}, Model())
                                 .Post(kSessions + "/restore", {{"name", "seen"}});
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_NE(refused.body.find("vision encoder"), std::string::npos) << refused.body;
}

// Of an odd number, with a second part after it whose frames count from its own beginning; each request finds nothing
// of the one before, not even of one that failed within a video.
TEST_P(FramePairsTest, AChatSeesWhatTheProgramSees) {
  const ServerProcess server(Flags(), Model());
  const std::string clip = Y4mBytes(5, 2, 40, 30);
  const Json video = VideoPart({{"data", EncodeBase64(clip)}, {"fps", 2}});
  const RunResult run = RunWeir({"run",
                                 "-m",
                                 Model(),
                                 "--mmproj",
                                 Encoder(),
                                 "--chat",
                                 "-p",
                                 "the man",
                                 "--temp",
                                 "0",
                                 "-n",
                                 "8",
                                 "--ignore-eos",
                                 "-o",
                                 "json",
                                 "--pot",
                                 "256",
                                 "--policy",
                                 "streaming_llm",
                                 "--video",
                                 folder_.Write("v.y4m", clip),
                                 "--fps",
                                 "2"});
  ASSERT_EQ(run.code, 0) << run.err;
  const Json said = Json::parse(run.out, nullptr, false);
  EXPECT_EQ(said["modalities"]["video"]["tokens_seen"], 3 * kRows);
  const std::string frame = DataUrl(PpmBytes(40, 30));
  const Json broken = VideoPart({{"frames", {frame, "data:image/png;base64,AAAA"}}, {"t_ms", {0, 500}}});
  for (int round = 0; round < 2; ++round) {
    const HttpAnswer answer = server.Post("/v1/chat/completions", PictureChat({video, TextPart("the man")}));
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.json()["choices"][0]["message"]["content"], said["text"]);
    EXPECT_EQ(answer.json()["weir"]["modalities"]["video"]["seen"], 3 * kRows);
    EXPECT_EQ(server.Post("/v1/chat/completions", PictureChat({broken, TextPart("the man")})).status, 400);
    const HttpAnswer picture =
        server.Post("/v1/chat/completions", PictureChat({PicturePart(PpmBytes(40, 30)), TextPart("the man")}));
    ASSERT_EQ(picture.status, 200) << picture.body;
    EXPECT_FALSE(picture.json()["weir"]["modalities"].contains("video")) << picture.body;
  }
}

// Rules are about what has come: each frame is asked about, so none waits.
TEST_P(FramePairsTest, RulesDoNotWaitForTheNextFrame) {
  const ServerProcess server(Flags(), Model());
  Client client(server);
  const std::string id = client.Create({{"rule_tokens", 96}});
  Frames(client, id, 0, 3);
  EXPECT_EQ(SeenOf(client, id), kRows) << "no rule yet";
  const HttpAnswer made = server.Post(kSessions + "/" + id + "/rules", {{"when", "who came? => sea"}});
  ASSERT_EQ(made.status, 201) << made.body;
  Frames(client, id, 3, 4);
  EXPECT_EQ(SeenOf(client, id), 2 * kRows) << "a pair";
  Frames(client, id, 4, 6);
  EXPECT_EQ(SeenOf(client, id), 4 * kRows);
}

INSTANTIATE_TEST_SUITE_P(Families, FramePairsTest,
                         ::testing::Values(Family{"qwen25vl", "qwen25vl.gguf", "qwen25vl_merger.gguf"},
                                           Family{"qwen3vl", "qwen3vl_deepstack.gguf", "qwen3vl_merger.gguf"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weir::testing
