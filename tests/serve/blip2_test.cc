// SPDX-License-Identifier: Apache-2.0
// BLIP-2 over HTTP, with all rows of its pictures and with those that a pruner leaves: the same answers as the
// program's, and every pruned row counted.
#include <gtest/gtest.h>

#include "cli/edited_model.h"
#include "cli/process.h"
#include "serve/picture_client.h"
#include "serve/session_client.h"
#include "support/pictures.h"

namespace weir::testing {
namespace {

constexpr int kRows = 12;  // of the tiny encoder
const std::string kChat = "/v1/chat/completions";

class Blip2Test : public ::testing::Test {
 protected:
  using Flags = std::vector<std::string>;
  void SetUp() override {
    if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
    EditedModel opt = SpeakingOpt();
    chats_ = dir_.Write("chats.gguf", opt.Bytes());
    opt.metadata.erase("tokenizer.chat_template");
    plain_ = dir_.Write("plain.gguf", opt.Bytes());
  }
  static Flags Seeing(const Flags& more) {
    Flags out = {"--pot", "64", "--mmproj", VisionFile("blip2.gguf")};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  // What `weir run` says of one picture.
  Json RunOf(const std::string& model, const std::string& prompt, const Flags& more) {
    Flags words = {"run", "-m", model, "--image", dir_.Write("one.ppm", picture_), "-p", prompt, "--temp", "0"};
    for (const Flags& part : {Seeing(more), Flags{"-n", "8", "--ignore-eos", "-o", "json", "-t", "1"}}) {
      words.insert(words.end(), part.begin(), part.end());
    }
    const RunResult run = RunWeir(words);
    EXPECT_EQ(run.code, 0) << run.err;
    return Json::parse(run.out, nullptr, false);
  }
  static std::string Text(const Json& answer) { return answer["choices"][0]["message"]["content"]; }
  static void ExpectMetric(const ServerProcess& server, const std::string& line) {
    const std::string metrics = server.Get("/metrics").body;
    EXPECT_NE(metrics.find("\n" + line + "\n"), std::string::npos) << line << " in " << metrics;
  }

  const TempDir dir_;
  const std::string picture_ = PpmBytes(60, 40);
  std::string chats_, plain_;
};

// As it is published, without a chat template: it sees in sessions.
TEST_F(Blip2Test, AQuestionAboutAPicture) {
  const ServerProcess server(Seeing({}), plain_);
  Client client(server);
  const std::string id = client.Create(), blind = client.Create();
  ASSERT_EQ(client.Do(id, "append", {{"image", DataUrl(picture_)}}).status, 200);
  const HttpAnswer answer = client.Do(id, "ask", Question("the man", {{"temperature", 0}, {"max_tokens", 8}}));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json run = RunOf(plain_, "Question: the man\nAnswer:", {});
  EXPECT_EQ(Text(answer.json()), run["text"]);
  EXPECT_EQ(answer.json()["weir"]["modalities"]["image"]["seen"], kRows);
  EXPECT_FALSE(answer.json()["weir"].contains("rows_pruned"));
  EXPECT_FALSE(client.State(id).contains("rows_pruned"));
  EXPECT_NE(Text(answer.json()),
            Text(client.Do(blind, "ask", Question("the man", {{"temperature", 0}, {"max_tokens", 8}})).json()));
  EXPECT_TRUE(server.Get("/props").json()["vision"]["prune"].is_null());
  EXPECT_EQ(server.Post(kChat, PictureChat({PicturePart(picture_)})).status, 400);  // no template, no chat
}

TEST_F(Blip2Test, ChatsSeeWhatAPrunerLeaves) {
  const Flags flags = {"--prune", "catp:keep=0.25"};
  const ServerProcess server(Seeing(flags), chats_);
  const Json vision = server.Get("/props").json()["vision"];
  EXPECT_EQ(vision["prune"], "catp:keep=0.25,layers=all,weights=none,layer_weights=even");
  EXPECT_EQ(vision["tokens"], 3);
  const auto ask = [&](const Parts& parts, const Json& more = Json::object()) {
    const HttpAnswer answer = server.Post(kChat, PictureChat(parts, more));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer;
  };
  const Json one = ask({PicturePart(picture_), TextPart("the man")}).json();
  EXPECT_EQ(one["weir"]["modalities"]["image"]["seen"], 3);
  EXPECT_EQ(one["weir"]["rows_pruned"], kRows - 3);
  const Json run = RunOf(chats_, "the man", {"--prune", "catp:keep=0.25", "--chat"});
  EXPECT_EQ(Text(one), run["text"]);
  EXPECT_EQ(run["rows_pruned"], kRows - 3);
  // Each answer counts its own pictures, each frame is one.
  const Parts film = {VideoPart({{"data", EncodeBase64(Y4mBytes(8, 4))}, {"fps", 2}}), TextPart("the man")};
  EXPECT_EQ(ask(film).json()["weir"]["rows_pruned"], 4 * (kRows - 3));
  EXPECT_EQ(ask(film, {{"stream", true}}).events().back()["weir"]["rows_pruned"], 4 * (kRows - 3));
  EXPECT_EQ(ask({TextPart("the man")}).json()["weir"]["rows_pruned"], 0);
  ExpectMetric(server, "weir_rows_pruned_total 81");
}

TEST_F(Blip2Test, ASessionKeepsCountOfWhatWasPruned) {
  const TempDir folder;
  const Flags flags = {"--prune", "l2:keep=0.5", "--snapshots", folder.path()};
  Json saved;
  std::string went_on;
  {
    const ServerProcess server(Seeing(flags), plain_);
    Client client(server);
    const std::string id = client.Create();
    EXPECT_EQ(client.State(id)["rows_pruned"], 0);
    ASSERT_EQ(client.Do(id, "append", {{"image", DataUrl(picture_)}}).status, 200);
    ASSERT_EQ(client.Do(id, "append", {{"frame", DataUrl(picture_)}, {"t_ms", 500}}).status, 202);
    WaitFor(server, id, [](const Json& frames) { return frames["read"] == 1; });
    EXPECT_EQ(client.State(id)["rows_pruned"], 2 * (kRows - 6));
    EXPECT_EQ(client.Do(id, "ask", Question("who?")).json()["weir"]["rows_pruned"], 2 * (kRows - 6));
    const std::string copy = client.Do(id, "fork", Json::object()).json()["id"];
    EXPECT_EQ(client.State(copy)["rows_pruned"], 2 * (kRows - 6));
    ASSERT_EQ(client.Do(id, "save", {{"name", "pruned"}}).status, 200);
    saved = client.State(id);
    went_on = client.Ask(id, "and then?");
  }
  const ServerProcess other(Seeing(flags), plain_);
  const HttpAnswer restored = other.Post(kSessions + "/restore", {{"name", "pruned"}});
  ASSERT_EQ(restored.status, 201) << restored.body;
  EXPECT_EQ(restored.json()["rows_pruned"], saved["rows_pruned"]);
  EXPECT_EQ(Client(other).Ask(restored.json()["id"], "and then?"), went_on);
}

TEST_F(Blip2Test, PrunersThatCannotWorkAreRefusedAtTheStart) {
  const auto refused = [&](const std::string& model, const Flags& more, const std::string& word) {
    Flags words = {"serve", "-m", model, "--port", "0"};
    words.insert(words.end(), more.begin(), more.end());
    const RunResult run = RunWeir(words);
    EXPECT_EQ(run.code, 2) << run.err;
    EXPECT_NE(run.err.find(word), std::string::npos) << run.err;
  };
  refused(plain_, Seeing({"--prune", "nobody"}), "catp");
  refused(plain_, Seeing({"--prune", "catp:layers=7"}), "cross-attention");
  refused(plain_, {"--prune", "catp"}, "--mmproj");
  refused(VisionFile("llava.gguf"), {"--mmproj", VisionFile("clip_next.gguf"), "--prune", "l2"}, "tiles");
}

}  // namespace
}  // namespace weir::testing
