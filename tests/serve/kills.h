// SPDX-License-Identifier: Apache-2.0
// Kills a server while it works on a session and its snapshots: what is restored afterwards is the old or the new
// state, and continues as it would have.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "cli/process.h"
#include "serve/session_client.h"

namespace weir::testing {

// WEIR_KILLS: how often, `usual` times unless set.
inline int NumberOfKills(int usual) {
  const char* const kills = std::getenv("WEIR_KILLS");
  return kills == nullptr ? usual : std::atoi(kills);
}

// SIGKILL at a random moment of n times `what`: "save" over an older file of the same name, "restore" or "fork". Tests
// fail when a snapshot is neither the old nor the new state afterwards, or answers otherwise than that state does.
inline void KillDuring(const std::string& what, int n_kills) {
  const TempDir folder;
  const std::vector<std::string> arguments = {"--pot", "512", "--answer-pots", "1", "--snapshots", folder.path()};
  const bool saves = what == "save";
  std::vector<std::string> answers;  // of the old and the new state, uninterrupted
  std::vector<int64_t> seen;
  const auto act = [&](const ServerProcess& server, const std::string& id, const std::string& name) {
    if (what == "restore") return server.Post(kSessions + "/restore", {{"name", "new"}});
    return Client(server).Do(id, what, saves ? Json({{"name", name}}) : Json::object());
  };
  double act_us = 0;
  {
    const ServerProcess server(arguments);
    Client client(server);
    const std::string id = client.Create();
    client.Append(id, Words(290, "man"));
    ASSERT_EQ(client.Do(id, "save", {{"name", "old"}}).status, 200);
    seen.push_back(client.State(id)["seen"]);
    answers.push_back(client.Ask(id, "who?"));
    const std::string next = server.Post(kSessions + "/restore", {{"name", "old"}}).json()["id"];
    client.Append(next, Words(150, "sea"));
    seen.push_back(client.State(next)["seen"]);
    ASSERT_EQ(client.Do(next, "save", {{"name", "new"}}).status, 200);
    const auto start = Clock::now();
    const int status = act(server, next, "again").status;
    act_us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    ASSERT_EQ(status, saves ? 200 : 201);
    answers.push_back(client.Ask(next, "who?"));
    ASSERT_NE(answers[0], answers[1]);
  }
  Rng rng(3);
  int n_new = 0, n_parts = 0, n_answered = 0;
  for (int kill = 0; kill < n_kills; ++kill) {
    const std::string state = folder.File("state.weir");
    std::filesystem::copy_file(folder.File(saves ? "old.weir" : "new.weir"), state,
                               std::filesystem::copy_options::overwrite_existing);
    std::filesystem::remove(state + ".part");
    ServerProcess server(arguments);
    const std::string id = server.Post(kSessions + "/restore", {{"name", "new"}}).json()["id"];
    int status = 0;
    std::thread acting([&] { status = act(server, id, "state").status; });
    // From before the request to well after one as long as the first: on a busy machine they differ.
    const uint64_t most_us = static_cast<uint64_t>(std::max(1000.0, 4 * act_us));
    std::this_thread::sleep_for(std::chrono::microseconds(rng.Below(most_us)));
    server.Kill();
    acting.join();
    n_answered += status != 0;
    n_parts += std::filesystem::exists(state + ".part");
    const ServerProcess after(arguments);
    const HttpAnswer restored = after.Post(kSessions + "/restore", {{"name", "state"}});
    ASSERT_EQ(restored.status, 201) << "kill " << kill << ": " << restored.body;
    const bool is_new = restored.json()["seen"] == seen[1];
    // What was acknowledged is there; what is only read stays as it is.
    EXPECT_TRUE(is_new || (saves && status == 0 && restored.json()["seen"] == seen[0])) << restored.body;
    EXPECT_EQ(Client(after).Ask(restored.json()["id"], "who?"), answers[is_new ? 1 : 0]) << "kill " << kill;
    n_new += is_new;
  }
  if (saves) {
    std::printf("of %d kills %d came after the rename, %d while the part was written, %d earlier\n", n_kills, n_new,
                n_parts, n_kills - n_new - n_parts);
  } else {
    std::printf("of %d kills %d came after the answer to the %s\n", n_kills, n_answered, what.c_str());
  }
}

}  // namespace weir::testing
