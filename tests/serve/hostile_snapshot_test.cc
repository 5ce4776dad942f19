// SPDX-License-Identifier: Apache-2.0
// Crafted snapshots: a checksum detects damage, not malice. Each is refused without affecting other clients.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "cli/process.h"
#include "io/snapshot_test_util.h"
#include "serve/picture_client.h"
#include "serve/session_client.h"

namespace weir::testing {
namespace {

class HostileSnapshotTest : public ::testing::Test {
 protected:
  HostileSnapshotTest()
      : server_(SeeingFlags({"--pot", "64", "--snapshots", folder_.path()}), VisionFile("llava.gguf")),
        client_(server_) {
    id_ = client_.Create({{"system", "be the sea"}});
    client_.Append(id_, Words(100, "man"));
    EXPECT_EQ(client_.Do(id_, "save", {{"name", "good"}}).status, 200);
    auto read = ReadSnapshot(folder_.File("good.weir"), int64_t{1} << 30);
    if (read.ok()) {
      good_ = *std::move(read);
    } else {
      ADD_FAILURE() << read.status().message();
    }
  }
  // What the server says to a snapshot of this text and state.
  HttpAnswer Restore(const std::string& text, const std::vector<uint8_t>& state) {
    EXPECT_TRUE(WriteSnapshot(folder_.File("bad.weir"), text, state).ok());
    return server_.Post(kSessions + "/restore", {{"name", "bad"}});
  }
  void ExpectRefused(const std::string& text, const std::vector<uint8_t>& state) {
    const HttpAnswer answer = Restore(text, state);
    EXPECT_TRUE(answer.status == 400 || answer.status == 429) << answer.status << " " << answer.body.substr(0, 500);
    EXPECT_LT(answer.body.size(), 2000u);
    EXPECT_EQ(answer.body.find(folder_.path()), std::string::npos) << answer.body;
    EXPECT_EQ(server_.Get(kSessions).json()["data"].size(), 1u);
  }
  std::string Edited(const std::function<void(Json&)>& edit) const {
    Json text = Json::parse(good_.text, nullptr, false);
    edit(text);
    return text.dump();
  }

  const TempDir folder_;
  const ServerProcess server_;
  Client client_;
  std::string id_;
  Snapshot good_;
};

TEST_F(HostileSnapshotTest, TextsThatNoServerWrote) {
  const std::vector<std::pair<const char*, Json>> values = {
      {"/format", 2},
      {"/fingerprint", "0"},
      {"/policy", "profile=/etc/passwd"},
      {"/policy", "weir:profile=/etc/passwd"},
      {"/policy", "nobody"},
      {"/policy", std::string(100000, 'a')},
      {"/pot", 1 << 26},
      {"/pot", -1},
      {"/pot", 1},
      {"/chunk", 1 << 26},
      {"/k_type", "q4_0"},
      {"/k_type", "Q4_0"},
      {"/v_type", "f32"},
      {"/conversation", "none"},
      {"/conversation", Json()},
      {"/conversation/system", 7},
      {"/conversation/template", "nobody's"},
      {"/watched/t_ms", INT64_MAX},
      {"/watched/t_ms", -1},
      {"/watched/last_ms", INT64_MAX},
      {"/watched/frames/arrived", INT64_MAX},
      {"/watched/frames/dropped", INT64_MAX},
      {"/watched/rows_pruned", INT64_MAX},
      {"/unknown", 1},
  };
  for (const auto& [path, value] : values) {
    SCOPED_TRACE(std::string(path) + " = " + value.dump().substr(0, 60));
    ExpectRefused(Edited([&, path = path, &value = value](Json& text) { text[Json::json_pointer(path)] = value; }),
                  good_.state);
  }
  for (const std::string& text : {std::string(), std::string("{}"), std::string("[]"), std::string(100000, '[')}) {
    ExpectRefused(text, good_.state);
  }
  EXPECT_EQ(Restore(good_.text, good_.state).status, 201);
}

TEST_F(HostileSnapshotTest, StatesThatNoSessionHad) {
  std::vector<std::vector<uint8_t>> states = {{}, {good_.state.begin(), good_.state.end() - 1}};
  // Tokens that lie outside the stream: a map of what is held would count them beyond its end. A slot's entry begins
  // with the token's number and moment; the newest token's stands behind the one before.
  const int64_t newest = client_.State(id_)["seen"].get<int64_t>() - 1;
  const int64_t entry[2] = {newest, 0};
  const auto at = std::search(good_.state.begin(), good_.state.end(), reinterpret_cast<const uint8_t*>(entry),
                              reinterpret_cast<const uint8_t*>(entry + 2));
  ASSERT_NE(at, good_.state.end());
  for (const int64_t seq : {newest + 1, int64_t{1} << 40, int64_t{-1}, INT64_MIN}) {
    states.push_back(good_.state);
    std::memcpy(states.back().data() + (at - good_.state.begin()), &seq, 8);
  }
  for (const std::vector<uint8_t>& state : states) ExpectRefused(good_.text, state);
  EXPECT_EQ(server_.Get(kSessions + "/" + id_ + "/held").status, 200);
}

// The stream of a session does not end its time: sums of moments stay numbers.
TEST_F(HostileSnapshotTest, TimeHasAnEnd) {
  if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
  const int64_t end = int64_t{1} << 50;
  const Json video = {{"frames", {DataUrl(PpmBytes(8, 8))}}, {"t_ms", {end}}};
  EXPECT_EQ(client_.Do(id_, "append", {{"video", video}}).status, 200);
  const Json before = client_.State(id_);
  EXPECT_EQ(before["t_ms"], end);
  const HttpAnswer beyond = client_.Do(id_, "append", {{"video", video}});
  EXPECT_EQ(beyond.status, 400) << beyond.body;
  EXPECT_EQ(client_.State(id_)["t_ms"], end);
  EXPECT_EQ(client_.Do(id_, "append", {{"image", DataUrl(PpmBytes(8, 8))}}).status, 200);
}

}  // namespace
}  // namespace weir::testing
