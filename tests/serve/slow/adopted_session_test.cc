// SPDX-License-Identifier: Apache-2.0
// Sessions that earlier versions left under another name when they were killed: found again, but not while somebody may
// still be at it.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "cli/process.h"
#include "serve/session_client.h"

namespace weir::testing {
namespace {

TEST(AdoptedSession, IsAnsweredAfterAMinute) {
  const TempDir folder;
  const std::vector<std::string> flags = {"--pot", "96", "--snapshots", folder.path(), "--hand-over"};
  std::string id;
  Json seen;
  {
    ServerProcess one(flags);
    id = Client(one).Create();
    seen = Client(one).Append(id, Words(50, "sea"))["seen"];
    ASSERT_EQ(one.Terminate(), 0);
  }
  const std::string file = folder.File("handover/" + id + ".weir"), claimed = file + ".4711-0-0x5555";
  std::filesystem::rename(file, claimed);
  {
    const ServerProcess soon(flags);
    EXPECT_EQ(soon.Get(kSessions + "/" + id).status, 404);
    EXPECT_TRUE(std::filesystem::exists(claimed));
  }
  std::this_thread::sleep_for(std::chrono::seconds(62));
  const ServerProcess later(flags);
  EXPECT_EQ(Client(later).State(id)["seen"], seen);
  EXPECT_FALSE(std::filesystem::exists(claimed));
}

}  // namespace
}  // namespace weir::testing
