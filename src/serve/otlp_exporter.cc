// SPDX-License-Identifier: Apache-2.0
#include "serve/otlp_exporter.h"

#include <httplib.h>

#include <algorithm>
#include <optional>

#include "base/caught.h"
#include "base/clock.h"
#include "serve/http_address.h"

namespace weir {
namespace {

constexpr std::chrono::milliseconds kGather{1000};  // spans are sent this late, so that they go together
constexpr std::chrono::milliseconds kFirstPause{500}, kLongestPause{30000};
constexpr std::chrono::milliseconds kLastTry{1000};
constexpr std::chrono::seconds kConnectTime{2};
constexpr size_t kMostReplyBytes = 1 << 16;
// A span as JSON, and the values it is made of, by its bytes in memory.
constexpr int64_t kJsonFactor = 12;
constexpr int64_t kMetricsBytes = 2 << 20;

int64_t UnixNow() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

bool IsHeaderLine(const std::string& name, const std::string& value) {
  const auto token = [](unsigned char c) { return c > 0x20 && c < 0x7F && c != ':'; };
  const auto text = [](unsigned char c) { return c >= 0x20 && c != 0x7F; };
  return !name.empty() && std::all_of(name.begin(), name.end(), token) && std::all_of(value.begin(), value.end(), text);
}

}  // namespace

// One connection to one address of the collector.
class OtlpExporter::Sender {
 public:
  enum class Outcome { kTaken, kRefused, kAgain };
  Sender(const HttpAddress& address, std::string path, const OtlpOptions& options)
      : path_(std::move(path)), client_(address.origin) {
    client_.set_connection_timeout(std::min<std::chrono::milliseconds>(kConnectTime, options.timeout));
    client_.set_read_timeout(options.timeout);
    client_.set_write_timeout(options.timeout);
    client_.set_keep_alive(true);
    for (const auto& [name, value] : options.headers) headers_.emplace(name, value);
    headers_.emplace("Content-Type", "application/json");
    headers_.emplace("User-Agent", "weir");
  }

  // `retry_after`: how long the collector asks to wait.
  Outcome Send(std::string body, std::chrono::seconds* retry_after) {
    httplib::Request request;
    request.method = "POST";
    request.path = path_;
    request.headers = headers_;
    request.body = std::move(body);
    size_t n_read = 0;
    request.content_receiver = [&](const char*, size_t n, uint64_t, uint64_t) {
      return (n_read += n) < kMostReplyBytes;
    };
    int http = 0;
    request.response_handler = [&](const httplib::Response& response) {
      http = response.status;
      *retry_after = RetryAfter(response);
      return true;
    };
    (void)client_.send(request);
    if (http >= 200 && http < 300) return Outcome::kTaken;
    return http == 0 || http == 429 || http == 502 || http == 503 || http == 504 ? Outcome::kAgain : Outcome::kRefused;
  }
  // Breaks off a request that is under way. Any thread.
  void BreakOff() { client_.stop(); }

 private:
  const std::string path_;
  httplib::Client client_;
  httplib::Headers headers_;
};

int64_t OtlpExporter::MemoryBytes(const OtlpOptions& options) {
  return options.endpoint.empty() ? 0 : kMostSpanBytes + kBatchBytes * (1 + kJsonFactor) + kMetricsBytes;
}

Result<std::unique_ptr<OtlpExporter>> OtlpExporter::Make(const OtlpOptions& options, Ledger& ledger) {
  auto address = ParseHttpAddress(options.endpoint);
  if (!address) {
    return InvalidArgument("--otlp {} is not an address such as http://collector:4318", options.endpoint);
  }
  for (const auto& [name, value] : options.headers) {
    if (!IsHeaderLine(name, value))
      return InvalidArgument("a header for --otlp is not NAME=VALUE of printable characters");
  }
  while (address->path.ends_with('/')) address->path.pop_back();
  WEIR_ASSIGN_OR_RETURN(Reservation room, ledger.Reserve(MemTag::kOther, MemoryBytes(options)));
  std::unique_ptr<OtlpExporter> out(new OtlpExporter(options));
  out->room_ = std::move(room);
  out->spans_to_ = std::make_unique<Sender>(*address, address->path + "/v1/traces", options);
  out->metrics_to_ = std::make_unique<Sender>(*address, address->path + "/v1/metrics", options);
  out->spans_thread_ = std::thread([exporter = out.get()] { exporter->SendSpans(); });
  return out;
}

OtlpExporter::OtlpExporter(const OtlpOptions& options) : options_(options), since_ns_(UnixNow()) {}

OtlpExporter::~OtlpExporter() {
  StopMetrics();
  {
    std::unique_lock<std::mutex> lock(mutex_);
    stop_ = true;
    changed_.notify_all();
    // A request that is not connected yet cannot be broken off.
    const auto end = Clock::now() + kLastTry;
    const auto over = [this] { return idle_ && spans_.empty(); };
    if (!changed_.wait_until(lock, end, over)) {
      spans_.clear();
      while (!changed_.wait_for(lock, std::chrono::milliseconds(50), [this] { return idle_; })) spans_to_->BreakOff();
    }
  }
  spans_thread_.join();
}

void OtlpExporter::Post(std::vector<Span> spans) {
  bool many = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Span& span : spans) {
      const int64_t bytes = span.bytes();
      if (stop_ || span_bytes_ + bytes > kMostSpanBytes) {
        ++counters_.dropped;
        continue;
      }
      span_bytes_ += bytes;
      spans_.push_back(std::move(span));
    }
    many = spans_.size() >= kBatchSpans;
  }
  if (many) changed_.notify_all();
}

void OtlpExporter::SendSpans() {
  std::unique_lock<std::mutex> lock(mutex_);
  std::chrono::milliseconds wait = kFirstPause;
  while (!stop_ || !spans_.empty()) {
    if (!stop_) changed_.wait_for(lock, kGather, [this] { return stop_ || spans_.size() >= kBatchSpans; });
    if (spans_.empty()) continue;
    std::vector<Span> batch;
    if (!Tried([&] { batch.reserve(kBatchSpans); })) {
      changed_.wait_for(lock, kGather);
      continue;
    }
    int64_t bytes = 0;
    while (!spans_.empty() && batch.size() < kBatchSpans && (batch.empty() || bytes < kBatchBytes)) {
      bytes += spans_.front().bytes();
      batch.push_back(std::move(spans_.front()));
      spans_.pop_front();
    }
    span_bytes_ -= bytes;
    idle_ = false;
    const auto n = static_cast<int64_t>(batch.size());
    for (;;) {
      lock.unlock();
      std::chrono::seconds retry_after{0};
      auto outcome = Sender::Outcome::kAgain;
      (void)Tried([&] { outcome = spans_to_->Send(SpansBody(options_.resource, batch), &retry_after); });
      lock.lock();
      if (outcome != Sender::Outcome::kTaken) ++counters_.failed;
      if (outcome == Sender::Outcome::kTaken) {
        counters_.sent += n;
        wait = kFirstPause;
        break;
      }
      if (outcome == Sender::Outcome::kRefused || stop_) {
        counters_.dropped += n;
        break;
      }
      changed_.wait_for(lock, std::max<std::chrono::milliseconds>(wait, retry_after), [this] { return stop_; });
      wait = std::min(2 * wait, kLongestPause);
    }
    idle_ = true;
    changed_.notify_all();
  }
}

void OtlpExporter::StartMetrics(std::function<std::vector<MetricFamily>()> collect) {
  if (options_.metrics_interval.count() <= 0 || metrics_thread_.joinable()) return;
  metrics_thread_ = std::thread([this, collect = std::move(collect)] { SendMetrics(collect); });
}

void OtlpExporter::StopMetrics() {
  if (!metrics_thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_metrics_ = true;
  }
  changed_.notify_all();
  metrics_to_->BreakOff();
  metrics_thread_.join();
}

// A set of metrics that did not arrive is not sent again: the next one counts the same things further.
void OtlpExporter::SendMetrics(const std::function<std::vector<MetricFamily>()>& collect) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_metrics_) {
    if (changed_.wait_for(lock, options_.metrics_interval, [this] { return stop_metrics_; })) break;
    lock.unlock();
    bool taken = false;
    (void)Tried([&] {
      const std::vector<MetricFamily> families = collect();
      std::chrono::seconds retry_after{0};
      taken = families.empty() || metrics_to_->Send(MetricsBody(options_.resource, families, since_ns_, UnixNow()),
                                                    &retry_after) == Sender::Outcome::kTaken;
    });
    lock.lock();
    if (!taken) ++counters_.failed;
  }
}

OtlpExporter::Counters OtlpExporter::counters() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Counters out = counters_;
  out.waiting = static_cast<int64_t>(spans_.size());
  return out;
}

}  // namespace weir
