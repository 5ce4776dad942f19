// SPDX-License-Identifier: Apache-2.0
#include "serve/kills.h"

#include <gtest/gtest.h>

#include <csignal>

namespace weir::testing {
namespace {

TEST(Kills, DuringSaves) { KillDuring("save", NumberOfKills(200)); }
TEST(Kills, DuringRestores) { KillDuring("restore", NumberOfKills(100)); }
TEST(Kills, DuringForks) { KillDuring("fork", NumberOfKills(100)); }

// A session that a server was about to leave to others is there as it was, or not at all.
TEST(Kills, DuringHandOvers) {
  const TempDir folder;
  const std::vector<std::string> flags = {"--pot", "512", "--snapshots", folder.path(), "--hand-over"};
  const int n_kills = NumberOfKills(100);
  Rng rng(5);
  int n_left = 0;
  for (int kill = 0; kill < n_kills; ++kill) {
    SCOPED_TRACE(kill);
    std::string id;
    Json seen;
    {
      ServerProcess one(flags);
      Client client(one);
      id = client.Create();
      seen = client.Append(id, Words(290, "sea"))["seen"];
      one.Signal(SIGTERM);  // which is noticed within 50 ms
      std::this_thread::sleep_for(std::chrono::microseconds(rng.Below(70000)));
      one.Kill();
    }
    const std::string file = folder.File("handover/" + id + ".weir");
    const bool left = std::filesystem::exists(file);
    n_left += left;
    const ServerProcess two(flags);
    const HttpAnswer answer = two.Get(kSessions + "/" + id);
    ASSERT_EQ(answer.status, left ? 200 : 404) << answer.body;
    if (left) EXPECT_EQ(answer.json()["seen"], seen);
    two.Delete(kSessions + "/" + id);
  }
  std::printf("of %d kills %d came after the session was left\n", n_kills, n_left);
}

}  // namespace
}  // namespace weir::testing
