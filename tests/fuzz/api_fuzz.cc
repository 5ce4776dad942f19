// SPDX-License-Identifier: Apache-2.0
// Any JSON as the body of a request of any API: answered, or refused in one line, in the API's own words.
//
// Input: one byte choosing the route, one the header x-session-id, then the text. Handlers run as the server runs them,
// with a real model that answers in one token.
#include <sys/socket.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "engine/loaded_model.h"
#include "serve/answer_job.h"
#include "serve/apis/api.h"
#include "serve/call_job.h"
#include "serve/host.h"
#include "serve/reply.h"
#include "support/build_paths.h"

namespace {

class World {
 public:
  World() {
    auto model =
        weir::LoadedModel::Load({.path = weir::SourceDir() + "/tests/golden/models/llama.gguf", .n_threads = 1});
    if (!model.ok()) std::abort();
    model_ = std::move(model).value();
    auto policy = weir::ParsePolicySpec("streaming_llm");
    if (!policy.ok()) std::abort();
    options_.host.session.policy = *std::move(policy);
    options_.host.session.pot_slots = 32;
    options_.host.chat_template = "chatml";
    options_.answers.max_tokens = 1;
    auto host = weir::Host::Make(*model_, options_.host, &weir::AnswerJob::AdvanceTogether);
    if (!host.ok()) std::abort();
    host_ = std::move(host).value();
    for (const weir::ApiInfo* api : weir::AllApiInfos()) {
      for (const weir::RouteInfo& route : api->routes) routes_.push_back(&route);
    }
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) std::abort();
    socket_ = ends[0];
  }

  void Ask(const weir::RouteInfo& route, bool in_session, std::string body) {
    httplib::Request request;
    request.method = route.method;
    request.path = route.path;
    if (in_session) request.headers.emplace("x-session-id", "new");
    httplib::Response response;
    weir::Ledger bodies(1 << 26);
    weir::HttpConnection::Handle(socket_, bodies, [&] {
      route.handle({*host_, options_, request, std::move(body), {"s-0"}}, response);
    });
    if (response.status >= 400) CheckError(route, response);
    // Sessions that were made end again.
    std::vector<std::string> ids;
    (void)weir::CallEngine(*host_, [&] {
      for (const auto& [id, stream] : host_->sessions().all()) ids.push_back(id);
      return weir::Status();
    });
    for (const std::string& id : ids) (void)weir::DeleteSession(*host_, id);
  }

  const std::vector<const weir::RouteInfo*>& routes() const { return routes_; }

 private:
  static void CheckError(const weir::RouteInfo& route, const httplib::Response& response) {
    const weir::Json sent = weir::Json::parse(response.body, nullptr, false);
    if (!sent.is_object() || !sent.contains("error")) std::abort();
    const weir::ApiError error = weir::ErrorOfBody(response.status, response.body);
    if (error.message.empty() || error.message.find('\n') != std::string::npos) std::abort();
    if (route.error_body != nullptr && !route.error_body(error).contains("error")) std::abort();
  }

  weir::ServerOptions options_;
  std::unique_ptr<weir::LoadedModel> model_;
  std::unique_ptr<weir::Host> host_;
  std::vector<const weir::RouteInfo*> routes_;
  int socket_ = -1;
};

// No parser cares how long a text is that the model reads, but most of the time went into reading it.
void Shorten(weir::Json* text) {
  constexpr size_t kLongest = 32;
  if (!text->is_string()) return;
  std::string& bytes = text->get_ref<std::string&>();
  if (bytes.size() <= kLongest) return;
  size_t end = kLongest;
  while (end > 0 && (bytes[end] & 0xc0) == 0x80) --end;  // before a character
  bytes.resize(end);
}

// An answer of one token, and no stream, which would wait for its reader; most inputs are also made to have short
// texts.
void Bound(weir::Json* json, bool shorten) {
  if (!json->is_structured()) return;
  for (auto it = json->begin(); it != json->end(); ++it) {
    Bound(&*it, shorten);
    if (!json->is_object()) continue;
    for (const char* key : {"content", "text", "prompt", "input", "system", "instructions", "suffix"}) {
      if (shorten && it.key() == key) Shorten(&*it);
    }
    for (const char* key :
         {"max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict", "num_predict", "n"}) {
      if (it.key() == key && it->is_number()) *it = 1;
    }
    if (it.key() == "stream" && *it == true) *it = false;
  }
}

std::string Bounded(const std::string& text, bool shorten) {
  auto body = weir::ParseJsonObject(text);
  if (!body.ok()) return text;
  Bound(&*body, shorten);
  if (body->contains("messages") && !body->contains("stream")) (*body)["stream"] = false;  // Ollama's default is true
  return weir::JsonText(*body);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static World world;
  if (size < 2 || size > 1 << 14) return 0;
  const weir::RouteInfo& route = *world.routes()[data[0] % world.routes().size()];
  world.Ask(route, data[1] % 4 == 0, Bounded({reinterpret_cast<const char*>(data) + 2, size - 2}, data[1] < 240));
  return 0;
}
