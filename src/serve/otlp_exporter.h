// SPDX-License-Identifier: Apache-2.0
// Sends spans and metrics to an OpenTelemetry collector: OTLP over HTTP, as JSON.
//
// Whoever posts spans waits for nobody. What waits to be sent is bounded; what does not fit is dropped and counted. A
// collector that is away or slow (429, 502, 503, 504, no answer) gets the same spans again after half a second, a
// second ... up to half a minute, and a Retry-After is kept to; every other refusal drops them. All methods: any
// thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/ledger.h"
#include "base/status.h"
#include "serve/metric_family.h"
#include "serve/otlp_json.h"
#include "serve/span.h"

namespace weir {

struct OtlpOptions {
  // http://collector:4318: spans go to /v1/traces below it, metrics to /v1/metrics. Empty: nothing is sent.
  std::string endpoint;
  std::vector<std::pair<std::string, std::string>> headers;  // of every request: they may be secrets
  OtlpResource resource;
  std::chrono::milliseconds timeout{10000};           // of a request
  std::chrono::milliseconds metrics_interval{60000};  // 0: no metrics
};

class OtlpExporter {
 public:
  static constexpr int64_t kMostSpanBytes = 4 << 20;  // that wait, as Span::bytes() counts
  static constexpr size_t kBatchSpans = 512;
  static constexpr int64_t kBatchBytes = 512 << 10;

  // What Make() reserves: the spans that wait, and the requests that are under way.
  static int64_t MemoryBytes(const OtlpOptions& options);
  // kInvalidArgument for an endpoint or a header that is none; kOverBudget. `ledger` must outlive it.
  static Result<std::unique_ptr<OtlpExporter>> Make(const OtlpOptions& options, Ledger& ledger);
  // Tries for a second to send what waits.
  ~OtlpExporter();

  // Spans of one request.
  void Post(std::vector<Span> spans);
  // Sends what `collect` returns from time to time, until StopMetrics(). `collect` may wait.
  void StartMetrics(std::function<std::vector<MetricFamily>()> collect);
  void StopMetrics();

  struct Counters {
    int64_t waiting = 0;            // spans
    int64_t sent = 0, dropped = 0;  // spans
    int64_t failed = 0;             // requests without an answer of 2xx
  };
  Counters counters() const;

 private:
  class Sender;
  explicit OtlpExporter(const OtlpOptions& options);
  void SendSpans();
  void SendMetrics(const std::function<std::vector<MetricFamily>()>& collect);

  const OtlpOptions options_;
  const int64_t since_ns_;
  Reservation room_;
  std::unique_ptr<Sender> spans_to_, metrics_to_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Span> spans_;  // under mutex_, as are the next
  int64_t span_bytes_ = 0;
  Counters counters_;
  bool stop_ = false, stop_metrics_ = false, idle_ = true;
  std::thread spans_thread_, metrics_thread_;
};

}  // namespace weir
