// SPDX-License-Identifier: Apache-2.0
// Streams whose encoder makes rows of all frames together, over HTTP: what is kept of frames is read before a question,
// saved, restored and copied with its session, and counted in its bytes.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>

#include "base/base64.h"
#include "cli/process.h"
#include "io/snapshot_test_util.h"
#include "serve/picture_client.h"
#include "serve/session_client.h"

namespace weir::testing {
namespace {

// Rows that 9 frames become: of Flash-VStream 3 x 4 abstract, 5 x 4 temporal, (2 + 1) x 16 retrieved and spatial; of
// Chat-UniVi as many events as frames / 4, of 21 rows each.
struct Family {
  std::string name;
  int n_rows;
};

class KeptFramesTest : public ::testing::TestWithParam<Family> {
 protected:
  void SetUp() override {
    if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
  }
  std::string Encoder() const { return VisionFile(GetParam().name + ".gguf"); }
  std::vector<std::string> Flags() const {
    return {"--pot", "256", "--policy", "streaming_llm", "--snapshots", folder_.path(), "--mmproj", Encoder()};
  }
  static std::string Model() { return VisionFile("llava.gguf"); }
  static HttpAnswer Frame(Client& client, const std::string& id, int i, bool wait = true) {
    Json body = {{"frame", DataUrl(PpmBytes(40, 30, 37 * i))}, {"t_ms", 500 * i}};
    if (wait) body["wait"] = true;
    return client.Do(id, "append", body);
  }
  static void Frames(Client& client, const std::string& id, int from, int to) {
    for (int i = from; i < to; ++i) {
      const HttpAnswer answer = Frame(client, id, i);
      ASSERT_EQ(answer.status, 200) << answer.body;
    }
  }
  static Json VideoOf(const Json& state) { return state["modalities"].value("video", Json::object()); }

  const TempDir folder_;
};

TEST_P(KeptFramesTest, AStreamGoesOnAfterARestart) {
  std::string id;
  std::vector<std::string> went_on;
  Json saved;
  {
    const ServerProcess server(Flags(), Model());
    Client client(server);
    id = client.Create();
    Frames(client, id, 0, 9);
    EXPECT_EQ(VideoOf(client.State(id)).value("seen", 0), 0) << "a frame takes no slot until it is asked about";
    const std::string first = client.Ask(id, "who?");
    EXPECT_EQ(VideoOf(client.State(id))["seen"], GetParam().n_rows);
    EXPECT_EQ(VideoOf(client.State(id))["to_ms"], 4000);
    client.Ask(id, "and?");
    EXPECT_EQ(VideoOf(client.State(id))["seen"], GetParam().n_rows) << "nothing new to read";
    Frames(client, id, 9, 12);  // these wait for the next question
    const HttpAnswer file = client.Do(id, "save", {{"name", "seen"}});
    ASSERT_EQ(file.status, 200) << file.body;
    saved = client.State(id);
    const HttpAnswer copied = client.Do(id, "fork", Json::object());
    ASSERT_EQ(copied.status, 201) << copied.body;
    const std::string copy = copied.json()["id"];
    for (const std::string& of : {id, copy}) {
      std::vector<std::string> said = {client.Ask(of, "and then?")};
      Frames(client, of, 12, 16);
      said.push_back(client.Ask(of, "who?"));
      if (of == id) went_on = said;
      EXPECT_EQ(said, went_on);
    }
    // What is kept decides what is said.
    const std::string blind = client.Create();
    Frames(client, blind, 2, 4);
    EXPECT_NE(client.Ask(blind, "who?"), first);
  }
  const ServerProcess other(Flags(), Model());
  Client client(other);
  const HttpAnswer restored = other.Post(kSessions + "/restore", {{"name", "seen"}});
  ASSERT_EQ(restored.status, 201) << restored.body;
  for (const char* key : {"t_ms", "modalities", "seen", "bytes"}) EXPECT_EQ(restored.json()[key], saved[key]) << key;
  id = restored.json()["id"];
  EXPECT_EQ(client.Ask(id, "and then?"), went_on[0]);
  Frames(client, id, 12, 16);
  EXPECT_EQ(client.Ask(id, "who?"), went_on[1]);
  // A server without the encoder, and one with another one, say what is missing.
  for (const bool other_encoder : {false, true}) {
    std::vector<std::string> flags = {"--pot", "256", "--snapshots", folder_.path()};
    if (other_encoder) flags.insert(flags.end(), {"--mmproj", VisionFile("clip.gguf")});
    const HttpAnswer refused = ServerProcess(flags, Model()).Post(kSessions + "/restore", {{"name", "seen"}});
    EXPECT_EQ(refused.status, 400) << refused.body;
    EXPECT_NE(refused.body.find("vision encoder"), std::string::npos) << refused.body;
  }
}

// A live video fills the same store, and `weir chat` continues from the file.
TEST_P(KeptFramesTest, ALiveVideoIsKeptToo) {
  const ServerProcess server(Flags(), Model());
  Client client(server);
  const std::string live = client.Create(), waited = client.Create();
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(Frame(client, live, i, /*wait=*/false).status, 202);
    WaitFor(server, live, [&](const Json& frames) { return frames["read"] == i + 1; });
  }
  Frames(client, waited, 0, 5);
  EXPECT_EQ(client.Ask(live, "who?"), client.Ask(waited, "who?"));
  // A video of a session joins its frames.
  Json list = Json::array();
  for (int i = 0; i < 5; ++i) list.push_back(DataUrl(PpmBytes(40, 30, 37 * i)));
  const std::string whole = client.Create();
  const HttpAnswer video =
      client.Do(whole, "append", {{"video", {{"frames", list}, {"t_ms", {0, 500, 1000, 1500, 2000}}}}});
  ASSERT_EQ(video.status, 200) << video.body;
  EXPECT_EQ(VideoOf(client.State(whole)).value("seen", 0), 0);
  EXPECT_EQ(client.Ask(whole, "and then?"), [&] {
    const std::string again = client.Create();
    Frames(client, again, 0, 5);
    return client.Ask(again, "and then?");
  }());
}

// A chat request carries its whole video, whose rows are read in its place, as in `weir run`.
TEST_P(KeptFramesTest, AChatSeesWhatTheProgramSees) {
  const ServerProcess server(Flags(), Model());
  const std::string clip = Y4mBytes(9, 2);
  const Json body = PictureChat({VideoPart({{"data", EncodeBase64(clip)}, {"fps", 2}}), TextPart("the man")});
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
  for (int round = 0; round < 2; ++round) {  // the second one finds no frames of the first
    const HttpAnswer answer = server.Post("/v1/chat/completions", body);
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.json()["choices"][0]["message"]["content"], said["text"]);
    EXPECT_EQ(answer.json()["weir"]["modalities"]["video"]["seen"], said["modalities"]["video"]["tokens_seen"]);
  }
}

// What `weir plan` says of frames is what a session reserves for them.
TEST_P(KeptFramesTest, TheirBytesAreTheSessions) {
  const auto plan = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"plan",          "-m", Model(), "--pot", "256", "--policy",
                                      "streaming_llm", "-t", "1",     "-o",    "json"};
    words.insert(words.end(), more.begin(), more.end());
    const RunResult run = RunWeir(words);
    EXPECT_EQ(run.code, 0) << run.err;
    return Json::parse(run.out, nullptr, false);
  };
  int64_t kept = 0;
  const Json seeing = plan({"--mmproj", Encoder(), "--max-side", "64"});
  for (const Json& item : seeing["items"]) {
    if (item["what"].get<std::string>().find("kept of a video's frames") != std::string::npos)
      kept += item["bytes"].get<int64_t>();
  }
  EXPECT_GT(kept, 0);
  const ServerProcess server(Flags(), Model());
  Client client(server);
  const Json state = client.State(client.Create({{"frames_waiting", 0}}));
  EXPECT_EQ(state["bytes"], plan({})["session_bytes"].get<int64_t>() + kept);
}

TEST_P(KeptFramesTest, HostileFramesAreRefused) {
  const ServerProcess server(Flags(), Model());
  Client client(server);
  const std::string id = client.Create();
  Frames(client, id, 0, 4);
  ASSERT_EQ(client.Do(id, "save", {{"name", "good"}}).status, 200);
  auto read = ReadSnapshot(folder_.File("good.weir"), int64_t{1} << 30);
  ASSERT_TRUE(read.ok()) << read.status().message();
  const Snapshot good = *std::move(read);
  const auto expect_refused = [&](const std::function<void(Json&)>& edit, const std::vector<uint8_t>& state) {
    Json text = Json::parse(good.text, nullptr, false);
    edit(text);
    EXPECT_TRUE(WriteSnapshot(folder_.File("bad.weir"), text.dump(), state).ok());
    const HttpAnswer answer = server.Post(kSessions + "/restore", {{"name", "bad"}});
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_EQ(answer.body.find(folder_.path()), std::string::npos) << answer.body;
    EXPECT_EQ(server.Get(kSessions).json()["data"].size(), 1u);
  };
  const int64_t n_frames = Json::parse(good.text, nullptr, false)["frames"]["bytes"];
  const size_t begin = good.state.size() - static_cast<size_t>(n_frames);
  const std::vector<std::pair<const char*, Json>> values = {{"/frames/bytes", 0},
                                                            {"/frames/bytes", -1},
                                                            {"/frames/bytes", n_frames - 1},
                                                            {"/frames/bytes", INT64_MAX},
                                                            {"/frames/bytes", n_frames + 1},
                                                            {"/frames/fingerprint", "0"},
                                                            {"/frames/unknown", 1},
                                                            {"/frames", 7},
                                                            {"/frames", Json()}};
  for (const auto& [path, value] : values) {
    SCOPED_TRACE(std::string(path) + " = " + value.dump());
    expect_refused([&, path = path, &value = value](Json& text) { text[Json::json_pointer(path)] = value; },
                   good.state);
  }
  const auto same = [](Json&) {};
  expect_refused(same, {good.state.begin(), good.state.end() - 1});
  // Behind the magic: the newest frame's moment, the frames so far, whether one is new, numbers.
  const auto with = [&](size_t at, auto value) {
    std::vector<uint8_t> state = good.state;
    std::memcpy(&state[begin + at], &value, sizeof(value));
    return state;
  };
  expect_refused(same, with(0, 'x'));
  expect_refused(same, with(8, INT64_MAX));
  for (const int64_t n : {int64_t{-1}, int64_t{3}, int64_t{5}, INT64_MAX}) expect_refused(same, with(16, n));
  expect_refused(same, with(24, int64_t{2}));
  expect_refused(same, with(32, std::numeric_limits<float>::quiet_NaN()));
  EXPECT_TRUE(WriteSnapshot(folder_.File("bad.weir"), good.text, good.state).ok());
  EXPECT_EQ(server.Post(kSessions + "/restore", {{"name", "bad"}}).status, 201);
}

INSTANTIATE_TEST_SUITE_P(Families, KeptFramesTest,
                         ::testing::Values(Family{"flash_vstream", 80}, Family{"chat_univi", 63}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weir::testing
