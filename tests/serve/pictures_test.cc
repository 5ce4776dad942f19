// SPDX-License-Identifier: Apache-2.0
// Pictures and video over HTTP: what they become, what is counted, and what is refused without harm to anybody else.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "cli/process.h"
#include "serve/picture_client.h"
#include "serve/session_client.h"
#include "support/pictures.h"
#include "support/sanitizers.h"

namespace weir::testing {
namespace {

constexpr int kRows = 25;  // of the tiny encoder
const std::string kChat = "/v1/chat/completions";

class PicturesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
  }
};

Json Ask(const ServerProcess& server, const Parts& content, const Json& more = Json::object()) {
  const HttpAnswer answer = server.Post(kChat, PictureChat(content, more));
  EXPECT_EQ(answer.status, 200) << answer.body;
  return answer.status == 200 ? answer.json() : Json();
}

std::string Text(const Json& answer) { return answer["choices"][0]["message"]["content"]; }

// What `weir run` says of the same.
Json RunOf(const std::vector<std::string>& more, const std::string& model = "llava.gguf",
           const std::string& mmproj = "clip.gguf") {
  std::vector<std::string> words = {"run",
                                    "-m",
                                    VisionFile(model),
                                    "--mmproj",
                                    VisionFile(mmproj),
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
                                    "-t",
                                    "1"};
  words.insert(words.end(), more.begin(), more.end());
  const RunResult run = RunWeir(words);
  EXPECT_EQ(run.code, 0) << run.err;
  return Json::parse(run.out, nullptr, false);
}

TEST_F(PicturesTest, AChatSeesWhatTheProgramSees) {
  const TempDir dir;
  const ServerProcess server(SeeingFlags({"--pot", "256"}), VisionFile("llava.gguf"));
  const std::string picture = PpmBytes(60, 40), clip = Y4mBytes(8, 4);
  const Json one = Ask(server, {PicturePart(picture), TextPart("the man")});
  const Json run = RunOf({"--image", dir.Write("one.ppm", picture)});
  EXPECT_EQ(Text(one), run["text"]);
  EXPECT_EQ(one["weir"]["modalities"]["image"]["seen"], kRows);
  EXPECT_EQ(one["usage"]["prompt_tokens"].get<int>(),
            run["tokens_seen"].get<int>() - run["tokens_generated"].get<int>());
  // A place in the middle, two pictures, and words that look like our mark.
  const Json two = Ask(server, {TextPart("a <__media__> "), PicturePart(picture), TextPart(" b "),
                                PicturePart(PpmBytes(60, 40, 100)), TextPart("the man")});
  EXPECT_EQ(two["weir"]["modalities"]["image"]["seen"], 2 * kRows);
  EXPECT_NE(Text(two), Text(one));
  // A mark that only two parts together say.
  const Json halves = Ask(server, {TextPart("<__media"), TextPart("__>"), PicturePart(picture), TextPart("the man")});
  EXPECT_EQ(halves["weir"]["modalities"]["image"]["seen"], kRows);

  const Json video = Ask(server, {VideoPart({{"data", EncodeBase64(clip)}, {"fps", 2}}), TextPart("the man")});
  EXPECT_EQ(Text(video), RunOf({"--video", dir.Write("v.y4m", clip), "--fps", "2"})["text"]);
  EXPECT_EQ(video["weir"]["modalities"]["video"],
            (Json{{"seen", 4 * kRows}, {"kept", 4 * kRows}, {"dropped", 0}, {"from_ms", 0}, {"to_ms", 1500}}));
  EXPECT_EQ(video["weir"]["t_ms"], 1500);
  // The same as a list of frames: one video, with moments of its own.
  Json frames = Json::array();
  for (int i = 0; i < 3; ++i) frames.push_back(DataUrl(PpmBytes(32, 16, 40 * i)));
  const Json list = Ask(server, {VideoPart({{"frames", frames}, {"t_ms", {0, 700, 9000}}}), TextPart("the man")});
  EXPECT_EQ(list["weir"]["modalities"]["video"]["seen"], 3 * kRows);
  EXPECT_EQ(list["weir"]["modalities"]["video"]["to_ms"], 9000);
  // Streamed it says the same.
  std::string streamed;
  for (const Json& event :
       server.Post(kChat, PictureChat({PicturePart(picture), TextPart("the man")}, {{"stream", true}})).events()) {
    streamed += event["choices"][0]["delta"].value("content", "");
  }
  EXPECT_EQ(streamed, Text(one));
}

TEST_F(PicturesTest, AVideoLongerThanThePotIsForgottenByItsTime) {
  const ServerProcess server(SeeingFlags({"--pot", "128", "--policy", "streaming_llm"}), VisionFile("llava.gguf"));
  const Json video =
      Ask(server, {VideoPart({{"data", EncodeBase64(Y4mBytes(200, 4))}, {"fps", 1}}), TextPart("the man")});
  const Json& seen = video["weir"]["modalities"]["video"];
  EXPECT_EQ(seen["seen"], 50 * kRows);
  EXPECT_LE(seen["kept"].get<int>(), 128);
  EXPECT_GT(seen["from_ms"].get<int>(), 40000);
  EXPECT_EQ(seen["to_ms"], 49000);
}

TEST_F(PicturesTest, ASessionSees) {
  const TempDir folder;
  std::string went_on;
  Json saved;
  {
    const ServerProcess server(SeeingFlags({"--pot", "256", "--snapshots", folder.path()}), VisionFile("llava.gguf"));
    Client client(server);
    const std::string id = client.Create(), blind = client.Create();
    ASSERT_EQ(client.Do(id, "append", {{"image", DataUrl(PpmBytes(60, 40))}}).status, 200);
    ASSERT_EQ(client.Do(id, "append", {{"video", {{"data", EncodeBase64(Y4mBytes(8, 4))}, {"fps", 1}}}, {"t_ms", 5000}})
                  .status,
              200);
    EXPECT_EQ(client.State(id)["t_ms"], 6000);
    ASSERT_EQ(client.Do(id, "append", {{"frame", DataUrl(PpmBytes(40, 60))}, {"t_ms", 8000}, {"wait", true}}).status,
              200);
    const Json state = client.State(id);
    EXPECT_EQ(state["modalities"]["image"]["seen"], kRows);
    EXPECT_EQ(state["modalities"]["video"]["seen"], 3 * kRows);
    EXPECT_EQ(state["modalities"]["video"]["from_ms"], 5000);
    EXPECT_EQ(state["modalities"]["video"]["to_ms"], 8000);
    const HttpAnswer answer = client.Do(id, "ask", Question("who?"));
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.json()["weir"]["t_ms"], 8000);
    EXPECT_NE(Text(answer.json()), client.Ask(blind, "who?"));
    // A copy has seen the same, and so has a snapshot.
    const std::string copy = client.Do(id, "fork", Json::object()).json()["id"];
    ASSERT_EQ(client.Do(id, "save", {{"name", "seen"}}).status, 200);
    saved = client.State(id);
    went_on = client.Ask(id, "and then?");
    EXPECT_EQ(client.Ask(copy, "and then?"), went_on);
    EXPECT_EQ(client.State(copy)["t_ms"], 8000);
  }
  const ServerProcess other(SeeingFlags({"--pot", "256", "--snapshots", folder.path()}), VisionFile("llava.gguf"));
  const HttpAnswer restored = other.Post(kSessions + "/restore", {{"name", "seen"}});
  ASSERT_EQ(restored.status, 201) << restored.body;
  for (const char* key : {"t_ms", "modalities", "frames", "seen", "bytes"}) {
    EXPECT_EQ(restored.json()[key], saved[key]) << key;
  }
  EXPECT_EQ(Client(other).Ask(restored.json()["id"], "and then?"), went_on);
}

// A session that was made where no pictures come goes on where they do, and the other way round.
TEST_F(PicturesTest, SessionsMoveBetweenServersWithAndWithoutAnEncoder) {
  const TempDir folder;
  const std::vector<std::string> flags = {"--pot", "96", "--snapshots", folder.path()};
  const ServerProcess reads(flags, VisionFile("llava.gguf")), sees(SeeingFlags(flags), VisionFile("llava.gguf"));
  const auto move = [&](const ServerProcess& from, const ServerProcess& to, bool picture) {
    Client there(from), here(to);
    const std::string id = there.Create();
    there.Append(id, Words(80, "sea"));
    if (picture) {
      EXPECT_EQ(there.Do(id, "append", {{"image", DataUrl(PpmBytes(60, 40))}}).status, 200);
    }
    EXPECT_EQ(there.Do(id, "save", {{"name", "moved"}}).status, 200);
    const HttpAnswer restored = to.Post(kSessions + "/restore", {{"name", "moved"}});
    EXPECT_EQ(restored.status, 201) << restored.body;
    const std::string moved = restored.json()["id"];
    EXPECT_EQ(here.State(moved)["kept"], there.State(id)["kept"]);
    EXPECT_EQ(here.Talk(moved, "man"), there.Talk(id, "man"));
    return moved;
  };
  const std::string here = move(reads, sees, false);
  EXPECT_EQ(Client(sees).Do(here, "append", {{"image", DataUrl(PpmBytes(60, 40))}}).status, 200);
  EXPECT_EQ(Client(sees).State(here)["modalities"]["image"]["seen"], kRows);
  move(sees, reads, true);
}

// A picture that left the pot comes back with the words in front of it.
TEST_F(PicturesTest, ASessionRecallsPictures) {
  const ServerProcess server(SeeingFlags({"--pot", "96", "--recall", "words", "--recall-tokens", "200"}),
                             VisionFile("llava.gguf"));
  Client client(server);
  const std::string id = client.Create();
  client.Append(id, "The harpoon of Varnholm:");
  ASSERT_EQ(client.Do(id, "append", {{"image", DataUrl(PpmBytes(60, 40))}}).status, 200);
  client.Append(id, Words(300, "man"));
  const HttpAnswer answer = client.Do(id, "ask", Question("what of the harpoon of Varnholm?"));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json recalled = answer.json()["weir"]["recalled"];
  ASSERT_FALSE(recalled.empty()) << answer.body;
  EXPECT_GE(recalled[0]["end"].get<int64_t>() - recalled[0]["seq"].get<int64_t>(), kRows) << answer.body;
}

TEST_F(PicturesTest, FramesArriveWhileAnAnswerIsWritten) {
  const ServerProcess server(SeeingFlags({"--pot", "128", "--frames-waiting", "3"}), VisionFile("llava.gguf"));
  Client client(server);
  const std::string id = client.Create();
  const auto frame = [&](int i) {
    return client.Do(id, "append", {{"frame", DataUrl(PpmBytes(32, 16, 20 * i))}, {"t_ms", 1000 * i}});
  };
  EXPECT_EQ(frame(1).status, 202);
  WaitFor(server, id, [](const Json& frames) { return frames["read"] == 1; });
  // An answer that continues until its client disconnects: no frame is read meanwhile, and only the newest frames wait.
  const std::string body = Question("who?", {{"max_tokens", 100000000}, {"stream", true}}).dump();
  const int answering = server.Connect();
  const std::string request = "POST " + kSessions + "/" + id +
                              "/ask HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + std::to_string(body.size()) +
                              "\r\n\r\n" + body;
  ASSERT_EQ(write(answering, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  char first = 0;
  ASSERT_EQ(read(answering, &first, 1), 1);  // the answer has begun
  for (int i = 2; i <= 9; ++i) {
    const HttpAnswer arrived = frame(i);
    EXPECT_EQ(arrived.status, 202) << arrived.body;
    EXPECT_EQ(arrived.json()["frames"]["waiting"], std::min(i - 1, 3));
  }
  const HttpAnswer back = frame(3);
  EXPECT_EQ(back.status, 400) << back.body;  // time does not go back
  Json state = client.State(id);
  EXPECT_EQ(state["frames"], (Json{{"arrived", 9}, {"read", 1}, {"dropped", 5}, {"waiting", 3}}));
  EXPECT_EQ(state["t_ms"], 1000);
  close(answering);
  WaitFor(server, id, [](const Json& frames) { return frames["read"] == 4 && frames["waiting"] == 0; });
  state = client.State(id);
  EXPECT_EQ(state["t_ms"], 9000);
  EXPECT_EQ(state["modalities"]["video"]["seen"], 4 * kRows);
  const std::string metrics = server.Get("/metrics").body;
  for (const char* line : {"weir_frames_arrived_total 9", "weir_frames_dropped_total 5", "weir_frames_read_total 4"}) {
    EXPECT_NE(metrics.find(std::string("\n") + line + "\n"), std::string::npos) << line;
  }
  EXPECT_NE(metrics.find("weir_tokens_resident{modality=\"video\"} "), std::string::npos);
  EXPECT_EQ(client.Do(id, "ask", Question("who?")).json()["weir"]["t_ms"], 9000);
  // A session without a queue waits for every frame.
  const std::string none = client.Create({{"frames_waiting", 0}});
  EXPECT_EQ(client.Do(none, "append", {{"frame", DataUrl(PpmBytes(8, 8))}, {"t_ms", 0}}).status, 400);
  EXPECT_LT(client.State(none)["bytes"], client.State(id)["bytes"]);
}

TEST_F(PicturesTest, HostileFilesAreAnswersAndNothingElse) {
  const TempDir dir;
  const ServerProcess server(SeeingFlags({"--pot", "128"}), VisionFile("llava.gguf"));
  Client client(server);
  const std::string id = client.Create();
  ASSERT_EQ(client.Do(id, "append", {{"image", DataUrl(PpmBytes(60, 40))}}).status, 200);
  client.Ask(id, "who?");  // the turn is over: what is refused opens no other
  const Json before = client.State(id);
  const int64_t resident = server.ResidentBytes();
  const std::string clip = dir.Write("clip.y4m", Y4mBytes(8, 4));
  const std::string bomb = "P6\n60000 60000\n255\n",
                    playlist = "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nfile:" + clip + "\n#EXT-X-ENDLIST\n";
  for (const std::string& url :
       {std::string("http://127.0.0.1:1/a.png"), std::string("https://example.com/a.png"), "file://" + clip,
        "FILE:" + clip, std::string("rtsp://127.0.0.1/a"), std::string("data:image/png,abc"),
        std::string("data:;base64,"), std::string("data:;base64,a"), std::string("%%%"), clip, std::string(),
        DataUrl("no picture"), DataUrl(bomb), DataUrl(playlist), DataUrl("ffconcat version 1.0\nfile " + clip + "\n"),
        DataUrl(PpmBytes(60, 40).substr(0, 50)), DataUrl("\x89PNG\r\n\x1a\n"), DataUrl(std::string(100000, '\0'))}) {
    SCOPED_TRACE(url.substr(0, 80));
    const HttpAnswer chat =
        server.Post(kChat, PictureChat({Json{{"type", "image_url"}, {"image_url", {{"url", url}}}}}));
    EXPECT_EQ(chat.status, 400) << chat.body;
    EXPECT_EQ(chat.json()["error"]["param"].get<std::string>().rfind("messages[0].content[0].image_url", 0), 0u)
        << chat.body;
    EXPECT_EQ(chat.body.find("/proc/"), std::string::npos) << chat.body;
    EXPECT_EQ(client.Do(id, "append", {{"image", url}}).status, 400);
    EXPECT_EQ(client.Do(id, "append", {{"frame", url}, {"t_ms", 1}}).status, 400);
    EXPECT_EQ(client.Do(id, "append", {{"video", {{"data", url}}}}).status, 400);
  }
  for (const Json& part :
       {Json{{"type", "image_url"}}, Json{{"type", "image_url"}, {"image_url", "x"}}, Json{{"type", "input_audio"}},
        Json{{"type", "image_url"}, {"image_url", {{"url", 7}}}}, VideoPart(Json::object()),
        VideoPart({{"frames", Json::array()}}), VideoPart({{"frames", {1}}}),
        VideoPart({{"data", "AAAA"}, {"t_ms", {0}}}), VideoPart({{"frames", {"AAAA"}}, {"t_ms", {1, 2}}}),
        VideoPart({{"data", "AAAA"}, {"fps", 0}}), VideoPart({{"frames", {"AAAA", "AAAA"}}, {"t_ms", {2, 1}}}),
        VideoPart({{"data", "AAAA"}, {"colour", 1}})}) {
    const HttpAnswer refused = server.Post(kChat, PictureChat({part}));
    EXPECT_EQ(refused.status, 400) << part.dump() << ": " << refused.body;
  }
  const Json in_system = {
      {"messages", Json::array({{{"role", "system"}, {"content", Json::array({PicturePart(PpmBytes(8, 8))})}}})}};
  EXPECT_EQ(server.Post(kChat, in_system).status, 400);
  // A request may name too many frames only as many as it can hold; a video is cut off where the server says.
  const ServerProcess few(SeeingFlags({"--pot", "128", "--max-frames", "5"}), VisionFile("llava.gguf"));
  EXPECT_EQ(few.Post(kChat, PictureChat({VideoPart({{"data", EncodeBase64(Y4mBytes(40, 4))}, {"fps", 1}})})).status,
            400);
  const Json three = VideoPart({{"data", EncodeBase64(Y4mBytes(12, 4))}, {"fps", 1}}),
             picture = PicturePart(PpmBytes(8, 8));
  EXPECT_EQ(few.Post(kChat, PictureChat({VideoPart({{"data", EncodeBase64(Y4mBytes(20, 4))}, {"fps", 1}})})).status,
            200);
  EXPECT_EQ(few.Post(kChat, PictureChat({three, picture, picture})).status, 200);
  for (const Parts& many : {Parts{three, three}, Parts{three, picture, picture, picture}}) {  // of all of a request
    const HttpAnswer refused = few.Post(kChat, PictureChat(many));
    EXPECT_EQ(refused.status, 400) << refused.body;
    EXPECT_NE(refused.body.find("5 pictures and frames"), std::string::npos) << refused.body;
  }
  std::string gap = Y4mBytes(2, 1);  // a frame, and the next a day later
  gap.replace(gap.find(" F1:1 "), 6, " F1:86400 ");
  EXPECT_EQ(few.Post(kChat, PictureChat({VideoPart({{"data", EncodeBase64(gap)}, {"fps", 1}})})).status, 400);
  // Other sessions are unaffected.
  EXPECT_EQ(client.State(id)["modalities"]["image"], before["modalities"]["image"]);
  EXPECT_EQ(client.State(id)["frames"], before["frames"]);
  if (kOwnMemory) EXPECT_LT(server.ResidentBytes() - resident, 32 << 20);
  EXPECT_EQ(client.Do(id, "append", {{"image", DataUrl(PpmBytes(60, 40))}}).status, 200);
  Ask(server, {PicturePart(PpmBytes(60, 40)), TextPart("the man")});
}

TEST_F(PicturesTest, ALongVideoHoldsUpNobody) {
  const ServerProcess server(
      SeeingFlags({"--pot", "128", "--decoders", "1", "--answer-pots", "2", "--max-frames", "1000000"}),
      VisionFile("llava.gguf"));
  Client client(server);
  const std::string id = client.Create();
  HttpAnswer watched;
  std::thread watching([&] {
    watched = client.Do(id, "append", {{"video", {{"data", EncodeBase64(Y4mBytes(2000, 1, 16, 16))}, {"fps", 50}}}});
  });
  WaitFor(server, id, [&](const Json&) { return client.State(id)["seen"].get<int>() > 100; });
  EXPECT_EQ(server.Post("/v1/completions", {{"prompt", "the man"}, {"max_tokens", 4}}).status, 200);
  // One that needs the same decoder waits, and gets it when the session that held it is gone.
  std::thread asking([&] { Ask(server, {PicturePart(PpmBytes(60, 40)), TextPart("the man")}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(server.Delete(kSessions + "/" + id).status, 200);
  watching.join();
  asking.join();
  EXPECT_EQ(watched.status, 404) << watched.body;
  ServerProcess ending(SeeingFlags({"--pot", "128", "--max-frames", "1000000"}), VisionFile("llava.gguf"));
  std::thread until_the_end([&] {
    ending.Post(kChat, PictureChat({VideoPart({{"data", EncodeBase64(Y4mBytes(2000, 1, 16, 16))}, {"fps", 50}})}));
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(ending.Terminate(), 0);
  until_the_end.join();
}

// Live frames that wait for a decoder: the newest of them, and not on every connection.
TEST_F(PicturesTest, FramesDoNotWaitForADecoderWithoutEnd) {
  const ServerProcess server(
      SeeingFlags({"--pot", "128", "--decoders", "1", "--frames-waiting", "2", "--max-frames", "1000000"}),
      VisionFile("llava.gguf"));
  Client client(server);
  const std::string films = client.Create(), live = client.Create();
  std::thread watching([&] {
    client.Do(films, "append", {{"video", {{"data", EncodeBase64(Y4mBytes(2000, 1, 16, 16))}, {"fps", 50}}}});
  });
  WaitFor(server, films, [&](const Json&) { return client.State(films)["seen"].get<int>() > 0; });
  // One after the other, so that it is known who is the oldest.
  std::vector<HttpAnswer> answers(5);
  std::vector<std::thread> sending;
  for (int i = 0; i < 5; ++i) {
    sending.emplace_back([&, i] {
      answers[static_cast<size_t>(i)] =
          client.Do(live, "append", {{"frame", DataUrl(PpmBytes(32, 16, 20 * i))}, {"t_ms", 1000 * i}});
    });
    if (i >= 2) WaitFor(server, live, [&](const Json& frames) { return frames["dropped"] == i - 1; });
    if (i < 2) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  for (size_t i = 0; i < 3; ++i) sending[i].join();  // while the decoder is still taken
  EXPECT_EQ(client.State(films)["busy"], true);
  EXPECT_EQ(server.Delete(kSessions + "/" + films).status, 200);
  watching.join();
  sending[3].join();
  sending[4].join();
  for (const HttpAnswer& answer : answers) EXPECT_EQ(answer.status, 202) << answer.body;
  WaitFor(server, live, [](const Json& frames) { return frames["waiting"] == 0 && frames["read"] == 2; });
  EXPECT_EQ(client.State(live)["frames"], (Json{{"arrived", 5}, {"read", 2}, {"dropped", 3}, {"waiting", 0}}));
}

// A client that sends frames continuously does not starve others of a decoder: clients take turns.
TEST_F(PicturesTest, AChatHasItsTurnAmongLiveFrames) {
  const ServerProcess server(SeeingFlags({"--pot", "128", "--decoders", "1"}), VisionFile("llava.gguf"));
  std::atomic<bool> ended{false};
  std::vector<std::thread> sending;
  for (int i = 0; i < 4; ++i) {
    sending.emplace_back([&] {
      Client client(server);
      const std::string id = client.Create();
      for (int k = 0; !ended; ++k) {
        client.Do(id, "append", {{"frame", DataUrl(PpmBytes(600, 400, k))}, {"t_ms", 100 * k}});
      }
    });
  }
  for (int i = 0; i < 3; ++i) Ask(server, {PicturePart(PpmBytes(60, 40)), TextPart("the man")});
  ended = true;
  for (std::thread& thread : sending) thread.join();
}

TEST_F(PicturesTest, WithoutAnEncoderTheyAreRefusedByName) {
  const ServerProcess server({"--pot", "128"}, VisionFile("llava.gguf"));
  EXPECT_TRUE(server.Get("/props").json()["vision"].is_null());
  const HttpAnswer refused = server.Post(kChat, PictureChat({PicturePart(PpmBytes(8, 8))}));
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json()["error"]["param"], "messages[0].content[0].type") << refused.body;
  Client client(server);
  EXPECT_EQ(client.Do(client.Create(), "append", {{"image", DataUrl(PpmBytes(8, 8))}}).status, 400);
}

// A family whose pictures are several, with words between them.
TEST_F(PicturesTest, WordsAroundPicturesAreReadAsTheProgramReadsThem) {
  const TempDir dir;
  const ServerProcess server({"--pot", "256", "--mmproj", VisionFile("idefics3.gguf")}, VisionFile("smolvlm.gguf"));
  const Json seen = Ask(server, {PicturePart(PpmBytes(60, 40)), TextPart("the man")});
  const Json run = RunOf({"--image", dir.Write("one.ppm", PpmBytes(60, 40))}, "smolvlm.gguf", "idefics3.gguf");
  EXPECT_EQ(Text(seen), run["text"]);
  EXPECT_EQ(seen["weir"]["modalities"]["image"]["seen"], run["modalities"]["image"]["tokens_seen"]);
}

}  // namespace
}  // namespace weir::testing
