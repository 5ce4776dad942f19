// SPDX-License-Identifier: Apache-2.0
// Collectors that are up, down, slow, or refuse.
#include "serve/otlp_exporter.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "io/json.h"
#include "support/until.h"

namespace weir {
namespace {

using testing::Until;

class Collector {
 public:
  explicit Collector(std::function<int(int)> status = nullptr) : status_(std::move(status)) {
    server_.Post(".*", [this](const httplib::Request& request, httplib::Response& response) {
      const std::lock_guard<std::mutex> lock(mutex_);
      response.status = status_ == nullptr ? 200 : status_(n_++);
      got_.emplace_back(request.path, request.body);
      header_ = request.get_header_value("x-key");
    });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    EXPECT_TRUE(Until([this] { return server_.is_running(); }));
  }
  ~Collector() {
    server_.stop();
    thread_.join();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::vector<std::pair<std::string, std::string>> got() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return got_;
  }
  std::string header() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return header_;
  }

 private:
  const std::function<int(int)> status_;
  httplib::Server server_;
  int port_ = 0, n_ = 0;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<std::pair<std::string, std::string>> got_;
  std::string header_;
};

OtlpOptions To(const std::string& url) {
  return {.endpoint = url, .headers = {{"x-key", "secret"}}, .resource = {{"service.name", "weir"}}};
}

std::vector<Span> Spans(int n, size_t bytes = 10) {
  std::vector<Span> out;
  for (int i = 0; i < n; ++i) {
    const TraceContext context = NewTrace();
    out.push_back({.name = std::string(bytes, 'n'),
                   .trace_id = context.trace_id,
                   .span_id = context.span_id,
                   .begin_ns = 1,
                   .end_ns = 2,
                   .attributes = {{"n", int64_t{i}}, {"list", std::vector<std::string>{"a", "b"}}, {"x", 0.5}}});
  }
  return out;
}

TEST(OtlpExporter, SendsWhatComesInTheEnd) {
  Collector collector;
  Ledger ledger;
  {
    const auto exporter = OtlpExporter::Make(To(collector.url()), ledger);
    ASSERT_TRUE(exporter.ok()) << exporter.status().message();
    EXPECT_EQ(ledger.used_bytes(), OtlpExporter::MemoryBytes(To(collector.url())));
    (*exporter)->Post(Spans(3));
  }
  EXPECT_EQ(ledger.used_bytes(), 0);
  const auto got = collector.got();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].first, "/v1/traces");
  EXPECT_EQ(collector.header(), "secret");
  const Json body = Json::parse(got[0].second);
  const Json& spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"];
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[2]["attributes"][0]["value"]["intValue"], "2");
  EXPECT_EQ(spans[0]["traceId"].get<std::string>().size(), 32u);
  EXPECT_FALSE(spans[0].contains("parentSpanId"));
}

TEST(OtlpExporter, TriesAgainWhenTheCollectorIsBusyAndOnlyThen) {
  Collector busy([](int n) { return n < 2 ? 503 : 200; }), refusing([](int) { return 400; });
  Ledger ledger;
  const auto one = OtlpExporter::Make(To(busy.url()), ledger), other = OtlpExporter::Make(To(refusing.url()), ledger);
  ASSERT_TRUE(one.ok() && other.ok());
  (*one)->Post(Spans(2));
  (*other)->Post(Spans(2));
  EXPECT_TRUE(Until([&] { return (*one)->counters().sent == 2 && (*other)->counters().dropped == 2; }));
  EXPECT_EQ((*one)->counters().failed, 2);
  EXPECT_EQ((*one)->counters().dropped, 0);
  EXPECT_EQ(busy.got().size(), 3u);
  EXPECT_EQ(busy.got()[0].second, busy.got()[2].second);
  EXPECT_EQ(refusing.got().size(), 1u);
}

TEST(OtlpExporter, ACollectorThatIsDownOrSilentHoldsUpNobody) {
  // A socket that listens and never answers, and a port that nobody listens on.
  httplib::Server silent;
  const int silent_port = silent.bind_to_any_port("127.0.0.1");
  for (const int port : {silent_port, 1}) {
    Ledger ledger;
    auto exporter = OtlpExporter::Make(To("http://127.0.0.1:" + std::to_string(port) + "/below/"), ledger);
    ASSERT_TRUE(exporter.ok());
    const auto start = Clock::now();
    int64_t n = 0;
    // More than there is room for, and than one batch takes away.
    for (; (*exporter)->counters().dropped == 0; ++n) (*exporter)->Post(Spans(100, 2000));
    EXPECT_LT(SecondsSince(start), 5);
    EXPECT_LT(n, 100);
    const OtlpExporter::Counters counters = (*exporter)->counters();
    EXPECT_EQ(counters.sent, 0);
    EXPECT_LE(counters.waiting * 2000, OtlpExporter::kMostSpanBytes);
    const auto ending = Clock::now();
    exporter->reset();
    EXPECT_LT(SecondsSince(ending), 6);  // a second, and a request that must be broken off
  }
}

TEST(OtlpExporter, SendsMetricsFromTimeToTime) {
  Collector collector;
  Ledger ledger;
  OtlpOptions options = To(collector.url() + "/");
  options.metrics_interval = std::chrono::milliseconds(10);
  const auto exporter = OtlpExporter::Make(options, ledger);
  ASSERT_TRUE(exporter.ok());
  (*exporter)->StartMetrics([] {
    return std::vector<MetricFamily>{
        {"a_total", MetricFamily::Type::kCounter, "Counts.", {{{{"k", "v"}}, 7, std::nullopt}}, std::nullopt}};
  });
  EXPECT_TRUE(Until([&] { return collector.got().size() >= 3; }));
  (*exporter)->StopMetrics();
  const auto [path, body] = collector.got()[0];
  EXPECT_EQ(path, "/v1/metrics");
  const Json metric = Json::parse(body)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0];
  EXPECT_EQ(metric["name"], "a_total");
  EXPECT_EQ(metric["sum"]["isMonotonic"], true);
  EXPECT_EQ(metric["sum"]["dataPoints"][0]["asInt"], "7");
}

TEST(OtlpExporter, SaysWhatIsWrongWithoutTellingSecrets) {
  Ledger ledger;
  for (const std::string bad :
       {"collector:4318", "grpc://collector", "http://", "http://user:pass@host", "http://a b"}) {
    EXPECT_EQ(OtlpExporter::Make(To(bad), ledger).status().code(), StatusCode::kInvalidArgument) << bad;
  }
  OtlpOptions options = To("http://127.0.0.1:1");
  options.headers = {{"Authorization", "Bearer secret\r\nX: y"}};
  const auto made = OtlpExporter::Make(options, ledger);
  EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(made.status().message().find("secret"), std::string::npos);
  Ledger small(1000);
  EXPECT_EQ(OtlpExporter::Make(To("http://127.0.0.1:1"), small).status().code(), StatusCode::kOverBudget);
}

}  // namespace
}  // namespace weir
