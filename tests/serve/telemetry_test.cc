// SPDX-License-Identifier: Apache-2.0
// Traces of the real server: who asked, what was done for it, and where it is told.
#include <gtest/gtest.h>
#include <httplib.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cli/process.h"
#include "serve/session_client.h"
#include "support/until.h"

namespace weir::testing {
namespace {

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736", kSpan = "00f067aa0ba902b7";
const std::string kParent = "00-" + kTrace + "-" + kSpan + "-01";
const std::string kChat = "/v1/chat/completions";

Json Chat(bool stream = false) {
  return {{"messages", {{{"role", "user"}, {"content", "the man and the sea"}}}},
          {"max_tokens", 4},
          {"ignore_eos", true},
          {"stream", stream}};
}

class Collector {
 public:
  Collector() {
    server_.Post("/v1/traces", [this](const httplib::Request& request, httplib::Response&) {
      const Json body = Json::parse(request.body);
      const std::lock_guard<std::mutex> lock(mutex_);
      for (const Json& one : body["resourceSpans"]) {
        for (const Json& span : one["scopeSpans"][0]["spans"]) spans_.push_back(span);
      }
    });
    server_.Post("/v1/metrics", [](const httplib::Request&, httplib::Response&) {});
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    EXPECT_TRUE(Until([this] { return server_.is_running(); }));
  }
  ~Collector() {
    server_.stop();
    thread_.join();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::vector<Json> spans(const std::string& name = "") {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Json> out = spans_;
    if (!name.empty()) std::erase_if(out, [&](const Json& span) { return span["name"] != name; });
    return out;
  }
  // The first span of a name, once it is there.
  Json Wait(const std::string& name) {
    EXPECT_TRUE(Until([&] { return !spans(name).empty(); })) << "no span " << name;
    const auto found = spans(name);
    return found.empty() ? Json::object() : found[0];
  }

 private:
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<Json> spans_;
};

Json Attribute(const Json& span, const std::string& key) {
  for (const Json& one : span.value("attributes", Json::array())) {
    if (one["key"] == key) return one["value"].begin().value();
  }
  return nullptr;
}

// The answer's whole head, in small letters no letter is changed to.
std::string RawPost(const ServerProcess& server, const std::string& path, const Json& body,
                    const std::string& headers) {
  const std::string text = body.dump();
  return server.Raw("POST " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" + headers +
                    "Content-Length: " + std::to_string(text.size()) + "\r\nConnection: close\r\n\r\n" + text);
}

std::string TraceResponse(const std::string& answer) {
  constexpr std::string_view kName = "traceresponse: ";
  const size_t at = answer.find(kName);
  return at == answer.npos ? "" : answer.substr(at + kName.size(), 55);
}

TEST(Telemetry, AnAnswersSpansHangTogetherBelowWhoAsked) {
  Collector collector;
  const ServerProcess server({"--pot", "96", "--otlp", collector.url()});
  for (const bool stream : {false, true}) {
    const size_t n_before = collector.spans().size();
    const std::string answer =
        RawPost(server, kChat, Chat(stream), "traceparent: " + kParent + "\r\ntracestate: a=1,b=2\r\n");
    EXPECT_EQ(answer.rfind("HTTP/1.1 200", 0), 0u) << answer;
    const std::string told = TraceResponse(answer);
    EXPECT_EQ(told.substr(3, 32), kTrace);
    EXPECT_EQ(told.substr(53), "01");
    ASSERT_TRUE(Until([&] { return collector.spans().size() >= n_before + 5; }));
    std::vector<Json> spans = collector.spans();
    spans.erase(spans.begin(), spans.begin() + static_cast<ptrdiff_t>(n_before));
    ASSERT_EQ(spans.size(), 5u);
    const auto named = [&](const std::string& name) {
      for (const Json& span : spans) {
        if (span["name"] == name) return span;
      }
      ADD_FAILURE() << "no " << name;
      return Json::object();
    };
    const Json root = named("POST " + kChat), chat = named("chat tiny-random-llama");
    EXPECT_EQ(root["parentSpanId"], kSpan);
    EXPECT_EQ(root["spanId"], told.substr(36, 16));
    EXPECT_EQ(root["kind"], 2);
    EXPECT_EQ(Attribute(root, "http.response.status_code"), "200");
    EXPECT_EQ(Attribute(root, "http.route"), kChat);
    EXPECT_EQ(chat["parentSpanId"], root["spanId"]);
    EXPECT_EQ(Attribute(chat, "gen_ai.operation.name"), "chat");
    EXPECT_EQ(Attribute(chat, "gen_ai.usage.output_tokens"), "4");
    EXPECT_EQ(Attribute(chat, "gen_ai.request.max_tokens"), "4");
    EXPECT_GT(std::stoi(Attribute(chat, "gen_ai.usage.input_tokens").get<std::string>()), 4);
    for (const char* part : {"wait", "read", "write"}) EXPECT_EQ(named(part)["parentSpanId"], chat["spanId"]) << part;
    const auto at = [](const Json& span, const char* end) { return std::stoll(span[end].get<std::string>()); };
    for (const Json& span : spans) {
      EXPECT_EQ(span["traceId"], kTrace);
      EXPECT_EQ(span["traceState"], "a=1,b=2");
      EXPECT_GE(at(span, "startTimeUnixNano"), at(root, "startTimeUnixNano"));
      EXPECT_LE(at(span, "startTimeUnixNano"), at(span, "endTimeUnixNano"));
      EXPECT_LE(at(span, "endTimeUnixNano"), at(root, "endTimeUnixNano")) << span["name"];
    }
    EXPECT_LE(at(named("wait"), "endTimeUnixNano"), at(named("read"), "startTimeUnixNano"));
    EXPECT_LE(at(named("read"), "endTimeUnixNano"), at(named("write"), "startTimeUnixNano"));
  }
}

TEST(Telemetry, ACompletionAndARefusedAnswerSayWhatTheyAre) {
  Collector collector;
  const ServerProcess server({"--pot", "96", "--policy", "full", "--otlp", collector.url()});
  EXPECT_EQ(server.Post("/v1/completions", {{"prompt", "the sea"}, {"max_tokens", 2}}).status, 200);
  const Json completion = collector.Wait("text_completion tiny-random-llama");
  EXPECT_EQ(Attribute(completion, "gen_ai.operation.name"), "text_completion");
  EXPECT_FALSE(completion.contains("status"));
  // It does not fit into a pot that may not forget.
  EXPECT_EQ(server.Post("/v1/completions", {{"prompt", Words(200, "sea")}, {"max_tokens", 2}}).status, 400);
  ASSERT_TRUE(Until([&] { return collector.spans("text_completion tiny-random-llama").size() == 2; }));
  const Json refused = collector.spans("text_completion tiny-random-llama")[1];
  EXPECT_EQ(refused["status"]["code"], 2);
  EXPECT_EQ(Attribute(refused, "error.type"), "over_budget");
}

TEST(Telemetry, OnlyTheSampleIsToldAndInvalidHeadersBeginATrace) {
  Collector collector;
  const ServerProcess none({"--pot", "96", "--otlp", collector.url(), "--trace-sample", "0"}),
      all({"--pot", "96", "--otlp", collector.url()});
  // Who asked decides; without one the share does.
  const std::string quiet = TraceResponse(
      RawPost(all, "/tokenize", {{"content", "a"}}, "traceparent: 00-" + kTrace + "-" + kSpan + "-00\r\n"));
  EXPECT_EQ(quiet.substr(3, 32), kTrace);
  EXPECT_EQ(quiet.substr(53), "00");
  EXPECT_EQ(TraceResponse(RawPost(none, "/tokenize", {{"content", "a"}}, "")).substr(53), "00");
  EXPECT_EQ(
      TraceResponse(RawPost(none, "/tokenize", {{"content", "a"}}, "traceparent: " + kParent + "\r\n")).substr(53),
      "01");
  std::set<std::string> ids = {kTrace};
  for (const std::string& bad : {std::string("traceparent: nonsense\r\n"), "traceparent: " + kParent + "-more\r\n",
                                 "traceparent: " + kParent + "\r\ntraceparent: " + kParent + "\r\n",
                                 "traceparent: 00-" + std::string(32, '0') + "-" + kSpan + "-01\r\n",
                                 std::string("traceparent: \r\ntracestate: a=1\r\n")}) {
    const std::string answer = RawPost(all, "/tokenize", {{"content", "a"}}, bad);
    EXPECT_EQ(answer.rfind("HTTP/1.1 200", 0), 0u) << answer;
    EXPECT_TRUE(ids.insert(TraceResponse(answer).substr(3, 32)).second) << bad;
  }
  EXPECT_TRUE(Until([&] { return collector.spans("POST /tokenize").size() == 6; }));
  for (const Json& span : collector.spans()) EXPECT_FALSE(span.contains("traceState"));
  // What is refused has a span, too.
  (void)all.Get("/nowhere");
  EXPECT_EQ(Attribute(collector.Wait("other"), "http.response.status_code"), "404");
}

TEST(Telemetry, SessionsTellWhatTheyReadForgetStoreAndHandOver) {
  Collector collector;
  const TempDir folder;
  const std::vector<std::string> flags = {"--pot",         "96",          "--policy",    "h2o",        "--otlp",
                                          collector.url(), "--snapshots", folder.path(), "--hand-over"};
  auto one = std::make_unique<ServerProcess>(flags);
  const ServerProcess two(flags);
  Client client(*one);
  const std::string id = client.Create();
  client.Append(id, Words(200, "sea"));
  const Json read = collector.Wait("POST /v1/sessions/{id}/append");
  EXPECT_EQ(Attribute(read, "gen_ai.conversation.id"), id.substr(0, 8)) << "whoever knows an id can use the session";
  bool forgot = false;
  for (const Json& span : collector.spans("read")) {
    const Json evicted = Attribute(span, "weir.tokens.evicted");
    forgot = forgot || (!evicted.is_null() && std::stoi(evicted.get<std::string>()) > 0);
  }
  EXPECT_TRUE(forgot);
  EXPECT_EQ(client.Do(id, "save", {{"name", "kept"}}).status, 200);
  EXPECT_GT(std::stoi(Attribute(collector.Wait("store"), "weir.snapshot.bytes").get<std::string>()), 0);
  EXPECT_EQ(one->Terminate(), 0);
  EXPECT_EQ(two.Get(kSessions + "/" + id).status, 200);
  const Json took = collector.Wait("take over");
  EXPECT_EQ(collector.Wait("GET /v1/sessions/{id}")["spanId"], took["parentSpanId"]);
  for (const Json& span : collector.spans()) EXPECT_EQ(span.dump().find(id), std::string::npos) << span.dump();
}

TEST(Telemetry, HistogramsHaveExemplarsForScrapersThatAskForThem) {
  Collector collector;
  const ServerProcess server({"--pot", "96", "--otlp", collector.url()});
  (void)RawPost(server, kChat, Chat(), "traceparent: " + kParent + "\r\n");
  const std::string open = server.Raw(
      "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: "
      "application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n"
      "Connection: close\r\n\r\n");
  EXPECT_NE(open.find("application/openmetrics-text; version=1.0.0"), std::string::npos);
  EXPECT_NE(open.find(" # {trace_id=\"" + kTrace + "\",span_id=\""), std::string::npos) << open;
  EXPECT_NE(open.find("\n# TYPE weir_answers counter\n"), std::string::npos);
  EXPECT_NE(open.find("\nweir_answers_total 1\n"), std::string::npos);
  EXPECT_EQ(open.substr(open.size() - 6), "# EOF\n");
  const std::string plain = server.Get("/metrics").body;
  EXPECT_EQ(plain.find("trace_id"), std::string::npos);
  EXPECT_NE(plain.find("\n# TYPE weir_answers_total counter\n"), std::string::npos);
}

TEST(Telemetry, AnAbsentCollectorCostsNoAnswer) {
  ServerProcess server({"--pot", "96", "--otlp", "http://127.0.0.1:1"});  // a port that nobody listens on
  for (int i = 0; i < 20; ++i) EXPECT_EQ(server.Post(kChat, Chat()).status, 200);
  EXPECT_TRUE(
      Until([&] { return server.Get("/metrics").body.find("\nweir_otlp_failed_total 0\n") == std::string::npos; }));
  EXPECT_EQ(server.Terminate(), 0);
}

}  // namespace
}  // namespace weir::testing
