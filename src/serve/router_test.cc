// SPDX-License-Identifier: Apache-2.0
#include "serve/router.h"

#include <gtest/gtest.h>

#include <set>

namespace weir {
namespace {

void Nothing(const Call&, httplib::Response&) {}

constexpr RouteInfo kDelete = {.method = "DELETE", .path = "/v1/sessions/{id}", .handle = Nothing};
constexpr RouteInfo kGet = {.method = "GET", .path = "/v1/sessions/{id}", .handle = Nothing};
constexpr RouteInfo kRestore = {.method = "POST", .path = "/v1/sessions/restore", .handle = Nothing};
constexpr RouteInfo kHeld = {.method = "GET", .path = "/v1/sessions/{id}/held", .handle = Nothing};
constexpr RouteInfo kModels = {
    .method = "GET", .path = "/v1/models", .handle = Nothing, .other_path = "/models", .key = KeyRule::kIfGiven};
constexpr RouteInfo kRoot = {.method = "GET", .path = "/", .handle = Nothing, .key = KeyRule::kNever};
constexpr const RouteInfo* kRoutes[] = {&kDelete, &kGet, &kHeld, &kRestore, &kModels, &kRoot};

TEST(Router, FindsByMethodAndPath) {
  const Router router(kRoutes);
  EXPECT_EQ(router.Find("GET", "/").route, &kRoot);
  EXPECT_EQ(router.Find("HEAD", "/").route, &kRoot);
  EXPECT_EQ(router.Find("POST", "/v1/sessions/restore").route, &kRestore);
  EXPECT_EQ(router.Find("GET", "/v1/sessions/restore").route, &kGet);
  EXPECT_EQ(router.Find("GET", "/models").route, &kModels);
  const Router::Match held = router.Find("GET", "/v1/sessions/s-1/held");
  EXPECT_EQ(held.route, &kHeld);
  EXPECT_EQ(held.arguments, std::vector<std::string>{"s-1"});
  for (const char* path : {"", "/v1", "/v1/sessions/", "/v1/sessions//held", "/v1/sessions/a/b", "/models/", "//"}) {
    const Router::Match none = router.Find("GET", path);
    EXPECT_EQ(none.route, nullptr) << path;
    EXPECT_EQ(none.allowed, "") << path;
  }
}

TEST(Router, SaysWhatAPathTakes) {
  const Router router(kRoutes);
  EXPECT_EQ(router.Find("PUT", "/v1/sessions/x").allowed, "GET, DELETE");
  EXPECT_EQ(router.Find("PUT", "/v1/sessions/restore").allowed, "POST, GET, DELETE");
  EXPECT_EQ(router.Find("POST", "/models").allowed, "GET");
}

TEST(Router, KnowsWhoNeedsAKey) {
  const Router router(kRoutes);
  EXPECT_EQ(router.KeyOf("/"), KeyRule::kNever);
  EXPECT_EQ(router.KeyOf("/models"), KeyRule::kIfGiven);
  EXPECT_EQ(router.KeyOf("/v1/sessions/x"), KeyRule::kAlways);
  EXPECT_EQ(router.KeyOf("/none"), KeyRule::kAlways);
}

TEST(Router, EveryRouteIsFoundByItself) {
  const std::vector<const RouteInfo*> routes = AllRoutes();
  const Router router(routes);
  std::set<std::string> seen;
  for (const RouteInfo* route : routes) {
    EXPECT_TRUE(seen.insert(std::string(route->method) + " " + route->path).second) << route->path;
    EXPECT_EQ(router.Find(route->method, route->path).route, route) << route->path;
    if (*route->other_path != '\0') {
      EXPECT_EQ(router.Find(route->method, route->other_path).route, route);
    }
    // The first argument is the session; some routes have another one behind it.
    EXPECT_TRUE(!route->of_session() || !router.Find(route->method, route->path).arguments.empty());
  }
  EXPECT_FALSE(seen.empty());
}

}  // namespace
}  // namespace weir
