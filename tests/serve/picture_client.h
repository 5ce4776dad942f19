// SPDX-License-Identifier: Apache-2.0
// Pictures and videos as a client sends them, to the tiny pair of tests/golden/vision.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "serve/server_process.h"
#include "support/build_paths.h"
#include "support/pictures.h"

namespace weir::testing {

inline std::string VisionFile(const std::string& name) { return SourceDir() + "/tests/golden/vision/" + name; }

inline std::vector<std::string> SeeingFlags(std::vector<std::string> more) {
  more.insert(more.end(), {"--mmproj", VisionFile("clip.gguf")});
  return more;
}

inline Json TextPart(const std::string& text) { return {{"type", "text"}, {"text", text}}; }
inline Json PicturePart(const std::string& bytes) {
  return {{"type", "image_url"}, {"image_url", {{"url", DataUrl(bytes)}}}};
}
inline Json VideoPart(const Json& video) { return {{"type", "input_video"}, {"input_video", video}}; }

using Parts = std::vector<Json>;

inline Json PictureChat(const Parts& content, const Json& more = Json::object()) {
  Json body = {{"messages", Json::array({{{"role", "user"}, {"content", content}}})},
               {"max_tokens", 8},
               {"temperature", 0},
               {"ignore_eos", true}};
  body.update(more);
  return body;
}

// Until `holds` of a session's frames; fails after a minute.
inline void WaitFor(const ServerProcess& server, const std::string& id, const std::function<bool(const Json&)>& holds) {
  Json state;
  for (int i = 0; i < 1200; ++i) {
    state = server.Get("/v1/sessions/" + id).json();
    if (holds(state["frames"])) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  ADD_FAILURE() << "not in a minute: " << state.dump();
}

}  // namespace weir::testing
