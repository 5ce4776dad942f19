// SPDX-License-Identifier: Apache-2.0
#include "serve/router.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "serve/apis/api.h"

namespace weir {
namespace {

// Whether a path matches a route's pattern; fills in the values of its {names}.
bool Matches(std::string_view pattern, std::string_view path, std::vector<std::string>* arguments) {
  arguments->clear();
  while (!pattern.empty() && !path.empty()) {
    const std::string_view want = pattern.substr(0, pattern.find('/', 1)), have = path.substr(0, path.find('/', 1));
    if (want.starts_with("/{")) {
      if (have.size() < 2) return false;
      arguments->emplace_back(have.substr(1));
    } else if (want != have) {
      return false;
    }
    pattern.remove_prefix(want.size());
    path.remove_prefix(have.size());
  }
  return pattern.empty() && path.empty();
}

bool Matches(const RouteInfo& route, std::string_view path, std::vector<std::string>* arguments) {
  return Matches(route.path, path, arguments) || (*route.other_path != '\0' && path == route.other_path);
}

int MethodOrder(std::string_view method) { return method == "GET" ? 0 : method == "POST" ? 1 : 2; }

}  // namespace

Router::Router(std::span<const RouteInfo* const> routes) : routes_(routes.begin(), routes.end()) {
  // '{' sorts after every letter, so that literal paths are tried first.
  const auto key = [](const RouteInfo* route) {
    return std::tuple(std::string_view(route->path), MethodOrder(route->method));
  };
  std::sort(routes_.begin(), routes_.end(), [&](const RouteInfo* a, const RouteInfo* b) { return key(a) < key(b); });
}

Router::Match Router::Find(std::string_view method, std::string_view path) const {
  if (method == "HEAD") method = "GET";
  Match out;
  for (const RouteInfo* route : routes_) {
    if (!Matches(*route, path, &out.arguments)) continue;
    if (method == route->method) {
      out.route = route;
      return out;
    }
    out.allowed += (out.allowed.empty() ? "" : ", ") + std::string(route->method);
  }
  return out;
}

KeyRule Router::KeyOf(std::string_view path) const {
  std::vector<std::string> arguments;
  for (const RouteInfo* route : routes_) {
    if (Matches(*route, path, &arguments)) return route->key;
  }
  return KeyRule::kAlways;
}

std::vector<const RouteInfo*> AllRoutes() {
  std::vector<const RouteInfo*> out(AllRouteInfos().begin(), AllRouteInfos().end());
  for (const ApiInfo* api : AllApiInfos()) {
    for (const RouteInfo& route : api->routes) out.push_back(&route);
  }
  return out;
}

ApiError NotServed(std::string_view path) {
  constexpr const char* kNoRanks = "this server does not rank documents; /v1/embeddings gives vectors to compare";
  constexpr std::pair<std::string_view, const char*> kElsewhere[] = {
      {"/embedding", "there is no such page; use /v1/embeddings"},
      {"/v1/rerank", kNoRanks},
      {"/rerank", kNoRanks},
      {"/v1/reranking", kNoRanks},
      {"/reranking", kNoRanks},
      {"/v1/audio/transcriptions", "this server does not hear; send a text"},
      {"/v1/audio/speech", "this server does not speak"},
      {"/v1/images/generations", "this server makes no pictures"},
      {"/v1/moderations", "this server does not judge texts"},
      {"/api/pull", "this server has one model, given at its start"},
      {"/api/push", "this server has one model, given at its start"},
      {"/api/create", "this server has one model, given at its start"},
      {"/completion", "there is no such page; use /v1/completions"},
      // llama-server answers it in a different shape, so it is not an alias of /v1/completions.
      {"/completions", "there is no such page; use /v1/completions"},
  };
  for (const auto& [other, reason] : kElsewhere) {
    if (path == other) return {404, "not_found", reason};
  }
  return {404, "not_found", OfHttp(404).message};
}

}  // namespace weir
