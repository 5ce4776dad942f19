// SPDX-License-Identifier: Apache-2.0
// Kills a server while it saves a session: the restored state is the old or the new one, and continues as it would
// have.
#pragma once

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "cli/process.h"
#include "serve/session_client.h"

namespace weir::testing {

// SIGKILL at a random moment of n saves over an older file of the same name. Tests fail when one of them is neither the
// old nor the new state, or answers otherwise than that state does.
inline void KillDuringSaves(int n_kills) {
  const TempDir folder;
  const std::vector<std::string> arguments = {"--pot", "512", "--answer-pots", "1", "--snapshots", folder.path()};
  std::vector<std::string> answers;  // of the old and the new state, uninterrupted
  std::vector<int64_t> seen;
  double save_us = 0;
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
    const auto start = Clock::now();
    ASSERT_EQ(client.Do(next, "save", {{"name", "new"}}).status, 200);
    save_us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    answers.push_back(client.Ask(next, "who?"));
    ASSERT_NE(answers[0], answers[1]);
  }
  Rng rng(3);
  int n_new = 0, n_parts = 0;
  for (int kill = 0; kill < n_kills; ++kill) {
    const std::string state = folder.File("state.weir");
    std::filesystem::copy_file(folder.File("old.weir"), state, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::remove(state + ".part");
    ServerProcess server(arguments);
    const std::string id = server.Post(kSessions + "/restore", {{"name", "new"}}).json()["id"];
    std::thread saving([&] { Client(server).Do(id, "save", {{"name", "state"}}); });
    // From before the request to well after a save as long as the first one: on a busy machine they differ.
    const uint64_t most_us = static_cast<uint64_t>(std::max(1000.0, 4 * save_us));
    std::this_thread::sleep_for(std::chrono::microseconds(rng.Below(most_us)));
    server.Kill();
    saving.join();
    n_parts += std::filesystem::exists(state + ".part");
    const ServerProcess after(arguments);
    const HttpAnswer restored = after.Post(kSessions + "/restore", {{"name", "state"}});
    ASSERT_EQ(restored.status, 201) << "kill " << kill << ": " << restored.body;
    const bool is_new = restored.json()["seen"] == seen[1];
    EXPECT_TRUE(is_new || restored.json()["seen"] == seen[0]) << restored.body;
    EXPECT_EQ(Client(after).Ask(restored.json()["id"], "who?"), answers[is_new ? 1 : 0]) << "kill " << kill;
    n_new += is_new;
  }
  std::printf("of %d kills %d came after the rename, %d while the part was written, %d earlier\n", n_kills, n_new,
              n_parts, n_kills - n_new - n_parts);
}

}  // namespace weir::testing
