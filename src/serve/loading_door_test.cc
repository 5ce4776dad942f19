// SPDX-License-Identifier: Apache-2.0
#include "serve/loading_door.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <string>

#include "io/json.h"

namespace weir {
namespace {

TEST(LoadingDoor, IsAliveAndNotReadyAndFreesThePort) {
  int port = 0;
  {
    const auto door = LoadingDoor::Open("127.0.0.1", 0);
    ASSERT_TRUE(door.ok()) << door.status().message();
    port = (*door)->port();
    httplib::Client client("127.0.0.1", port);
    EXPECT_EQ(client.Get("/livez")->status, 200);
    for (const char* path : {"/readyz", "/health", "/v1/models", "/", "/livez/x"}) {
      const auto answer = client.Get(path);
      ASSERT_TRUE(answer) << path;
      EXPECT_EQ(answer->status, 503) << path;
      EXPECT_EQ(Json::parse(answer->body)["error"]["code"], "loading");
      EXPECT_EQ(answer->get_header_value("Retry-After"), "1");
      EXPECT_EQ(answer->get_header_value("x-should-retry"), "true");
    }
    const auto posted = client.Post("/v1/chat/completions", std::string(1 << 12, ' '), "application/json");
    ASSERT_TRUE(posted);
    EXPECT_EQ(posted->status, 503);
    EXPECT_EQ(LoadingDoor::Open("127.0.0.1", port).status().code(), StatusCode::kIo);
  }
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(LoadingDoor::Open("127.0.0.1", port).ok()) << "opened and closed at once";
}

}  // namespace
}  // namespace weir
