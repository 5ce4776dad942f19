// SPDX-License-Identifier: Apache-2.0
#include "serve/metrics.h"

#include <fmt/core.h>

#include "base/status.h"

namespace weir {
namespace {

using Type = MetricFamily::Type;

class Families {
 public:
  void Gauge(const char* name, const char* help, int64_t value) {
    Add(name, Type::kGauge, help).samples = {{{}, value, {}}};
  }
  void Counter(const char* name, const char* help, int64_t value) {
    Add(name, Type::kCounter, help).samples = {{{}, value, {}}};
  }
  MetricFamily& Add(const char* name, Type type, const char* help) {
    all.push_back({name, type, help, {}, std::nullopt});
    return all.back();
  }
  std::vector<MetricFamily> all;
};

}  // namespace

double RoomShare(const Gauges& gauges) {
  if (gauges.room_bytes <= 0) return 1;
  return static_cast<double>(gauges.room_used_bytes) / static_cast<double>(gauges.room_bytes);
}

void Metrics::CountRequest(std::string_view route, int status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++requests_[{std::string(route), status}];
}

void Metrics::CountRead(int64_t n_tokens) {
  const std::lock_guard<std::mutex> lock(mutex_);
  n_read_ += n_tokens;
}

void Metrics::CountReused(int64_t n_tokens) {
  const std::lock_guard<std::mutex> lock(mutex_);
  n_reused_ += n_tokens;
}

void Metrics::CountAnswer(const AnswerTimes& times, const std::optional<Exemplar>& traced) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++n_answers_;
  n_generated_ += times.n_tokens;
  wait_.Observe(times.wait_s, traced);
  if (times.n_tokens == 0) return;
  ttft_.Observe(times.first_token_s, traced);
  if (times.n_tokens > 1) token_.Observe(times.rest_s / static_cast<double>(times.n_tokens - 1), traced);
}

void Metrics::CountEvictions(std::string_view policy, int64_t n_selections, int64_t n_tokens) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Evictions& evictions = evictions_[std::string(policy)];
  evictions.selections += n_selections;
  evictions.tokens += n_tokens;
}

void Metrics::CountRecall(int64_t n_passages) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++n_recalls_;
  n_passages_ += n_passages;
}

void Metrics::CountCancelled() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++n_cancelled_;
}

void Metrics::CountExpired() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++n_expired_;
}

std::vector<MetricFamily> Metrics::Collect(const Gauges& gauges) const {
  Families out;
  out.Gauge("weir_budget_bytes", "Bytes that all sessions together may use.", gauges.budget_bytes);
  out.Gauge("weir_used_bytes", "Bytes reserved by sessions.", gauges.used_bytes);
  out.Gauge("weir_peak_bytes", "Highest weir_used_bytes so far.", gauges.peak_bytes);
  out.Gauge("weir_kv_bytes", "Bytes of keys and values in sessions.", gauges.kv_bytes);
  out.Gauge("weir_sessions", "Stream sessions.", gauges.sessions);
  out.Gauge("weir_answer_pots", "Pots for requests without a session.", gauges.answer_pots);
  out.Gauge("weir_answer_pots_busy", "Of them, in use.", gauges.answer_pots_busy);
  MetricFamily& resident = out.Add("weir_tokens_resident", Type::kGauge, "Tokens held by stream sessions.");
  for (size_t m = 0; m < gauges.tokens_resident.size(); ++m) {
    resident.samples.push_back({{{"modality", ModalityName(static_cast<Modality>(m))}}, gauges.tokens_resident[m], {}});
  }
  out.Counter("weir_pictures_read_total", "Pictures read.", gauges.pictures_read);
  out.Counter("weir_frames_read_total", "Frames of videos read.", gauges.frames_read);
  out.Counter("weir_frames_arrived_total", "Frames of live videos that arrived.", gauges.frames_arrived);
  out.Counter("weir_frames_dropped_total", "Frames of live videos dropped because newer ones arrived.",
              gauges.frames_dropped);
  out.Counter("weir_rows_pruned_total", "Rows of pictures that --prune removed.", gauges.rows_pruned);
  out.Gauge("weir_room_bytes", "Bytes of the budget for sessions and answer pots.", gauges.room_bytes);
  out.Gauge("weir_room_used_bytes", "Of them, in sessions and in answer pots that are in use.", gauges.room_used_bytes);
  MetricFamily& share =
      out.Add("weir_room_share", Type::kGauge, "weir_room_used_bytes by weir_room_bytes, from 0 to 1.");
  share.samples = {{{}, 0, RoomShare(gauges)}};
  out.Gauge("weir_draining", "1 while the server shuts down.", gauges.draining);
  out.Gauge("weir_jobs_running", "Jobs that share the engine now.", gauges.jobs_running);
  out.Gauge("weir_jobs_waiting", "Jobs that wait to start.", gauges.jobs_waiting);
  out.Gauge("weir_jobs_limit", "Jobs that may wait; further requests are refused.", gauges.jobs_limit);
  out.Gauge("weir_recall_archive_bytes", "Bytes on disk of the sessions' archives.", gauges.archive_bytes);
  out.Gauge("weir_recall_reserved_bytes", "Bytes on disk that these archives may have.", gauges.archive_reserved_bytes);
  out.Gauge("weir_recall_disk_bytes", "Bytes on disk that all archives together may have.", gauges.archive_total_bytes);
  out.Gauge("weir_webhooks_waiting", "Events that wait to be delivered.", gauges.webhooks_waiting);
  out.Counter("weir_webhooks_delivered_total", "Events delivered.", gauges.webhooks_delivered);
  out.Counter("weir_webhooks_failed_total", "Requests with events that were not answered with 2xx.",
              gauges.webhooks_failed);
  out.Counter("weir_webhooks_dropped_total", "Events that were refused, became too old, or did not fit.",
              gauges.webhooks_dropped);
  out.Gauge("weir_mqtt_connected", "1 with a connection to the MQTT broker.", gauges.mqtt_connected);
  out.Gauge("weir_mqtt_waiting", "Messages that the broker has not confirmed.", gauges.mqtt_waiting);
  out.Counter("weir_mqtt_published_total", "Messages that it has.", gauges.mqtt_published);
  out.Counter("weir_mqtt_dropped_total", "Events that did not fit.", gauges.mqtt_dropped);
  out.Gauge("weir_otlp_spans_waiting", "Spans that wait to be sent to the collector.", gauges.spans_waiting);
  out.Counter("weir_otlp_spans_sent_total", "Spans that it took.", gauges.spans_sent);
  out.Counter("weir_otlp_spans_dropped_total", "Spans that did not fit, or that it refused.", gauges.spans_dropped);
  out.Counter("weir_otlp_failed_total", "Requests to it that were not answered with 2xx.", gauges.otlp_failed);
  out.Counter("weir_joint_forwards_total", "Forward passes that several answers shared.", gauges.joint_forwards);
  out.Counter("weir_joint_tokens_total", "Tokens of answers read in joint forward passes.", gauges.joint_tokens);

  const std::lock_guard<std::mutex> lock(mutex_);
  out.Counter("weir_tokens_read_total", "Tokens read from prompts and texts.", n_read_);
  out.Counter("weir_tokens_reused_total", "Prompt tokens reused from an answer pot.", n_reused_);
  out.Counter("weir_tokens_generated_total", "Tokens generated in answers.", n_generated_);
  out.Counter("weir_answers_total", "Answers, cancelled ones included.", n_answers_);
  out.Counter("weir_recall_questions_total", "Questions that recall searched archives for.", n_recalls_);
  out.Counter("weir_recall_passages_total", "Passages that it brought back.", n_passages_);
  out.Counter("weir_cancelled_total", "Jobs whose client disconnected.", n_cancelled_);
  out.Counter("weir_sessions_expired_total", "Sessions that expired because they were idle.", n_expired_);
  MetricFamily& requests = out.Add("weir_requests_total", Type::kCounter, "Requests by route and status.");
  for (const auto& [key, n] : requests_) {
    requests.samples.push_back({{{"route", key.first}, {"status", fmt::format("{}", key.second)}}, n, {}});
  }
  MetricFamily& selections = out.Add("weir_selections_total", Type::kCounter, "Times a pot had to shrink.");
  for (const auto& [policy, e] : evictions_) selections.samples.push_back({{{"policy", policy}}, e.selections, {}});
  MetricFamily& evicted = out.Add("weir_evicted_tokens_total", Type::kCounter, "Tokens that no layer holds any more.");
  for (const auto& [policy, e] : evictions_) evicted.samples.push_back({{{"policy", policy}}, e.tokens, {}});
  out.all.push_back(ttft_.Family("weir_ttft_seconds", "Time from a request to the first token of its answer."));
  out.all.push_back(wait_.Family("weir_wait_seconds", "Time that questions wait to start."));
  out.all.push_back(token_.Family("weir_token_seconds", "Mean time of an answer's tokens after the first."));
  return std::move(out.all);
}

}  // namespace weir
