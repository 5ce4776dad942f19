// SPDX-License-Identifier: Apache-2.0
// Stream sessions as a client speaks to them.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "serve/server_process.h"

namespace weir::testing {

inline const std::string kSessions = "/v1/sessions";

inline std::string Words(int n, const std::string& word) {
  std::string out;
  for (int i = 0; i < n; ++i) out += word + (i % 7 == 6 ? ". " : " ");
  return out;
}

inline Json Question(const std::string& question, const Json& more = Json::object()) {
  Json body = {{"question", question}, {"max_tokens", 16}, {"temperature", 0.8}, {"seed", 5}, {"ignore_eos", true}};
  body.update(more);
  return body;
}

class Client {
 public:
  explicit Client(const ServerProcess& server) : server_(server) {}
  std::string Create(const Json& body = Json::object()) {
    const HttpAnswer answer = server_.Post(kSessions, body);
    EXPECT_EQ(answer.status, 201) << answer.body;
    return answer.status == 201 ? answer.json()["id"].get<std::string>() : "none";
  }
  HttpAnswer Do(const std::string& id, const std::string& what, const Json& body) {
    return server_.Post(kSessions + "/" + id + "/" + what, body);
  }
  Json Append(const std::string& id, const std::string& text) {
    const HttpAnswer answer = Do(id, "append", {{"text", text}});
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  std::string Ask(const std::string& id, const std::string& question) {
    const HttpAnswer answer = Do(id, "ask", Question(question));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.status == 200 ? answer.json()["choices"][0]["message"]["content"].get<std::string>() : "";
  }
  Json State(const std::string& id) { return server_.Get(kSessions + "/" + id).json(); }
  // A short life that depends on everything that was said.
  std::vector<std::string> Talk(const std::string& id, const std::string& about) {
    std::vector<std::string> out;
    for (int round = 0; round < 3; ++round) {
      Append(id, Words(40 + 30 * round, about));
      out.push_back(Ask(id, "what of " + about + "?"));
    }
    return out;
  }

 private:
  const ServerProcess& server_;
};

}  // namespace weir::testing
