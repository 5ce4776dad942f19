// SPDX-License-Identifier: Apache-2.0
#include "serve/metrics.h"

#include <fmt/core.h>

#include "base/status.h"

namespace weir {
namespace {

void Line(const char* name, const char* type, const char* help, int64_t value, std::string* out) {
  *out += fmt::format("# HELP {} {}\n# TYPE {} {}\n{} {}\n", name, help, name, type, name, value);
}

}  // namespace

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

void Metrics::CountAnswer(int64_t n_tokens, double first_token_s) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++n_answers_;
  n_generated_ += n_tokens;
  if (n_tokens == 0) return;
  size_t bucket = 0;
  while (bucket < kTtftBounds.size() && first_token_s > kTtftBounds[bucket]) ++bucket;
  ++ttft_[bucket];
  ttft_sum_s_ += first_token_s;
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

std::string Metrics::Text(const Gauges& gauges) const {
  std::string out;
  Line("weir_budget_bytes", "gauge", "Bytes that all sessions together may use.", gauges.budget_bytes, &out);
  Line("weir_used_bytes", "gauge", "Bytes reserved by sessions.", gauges.used_bytes, &out);
  Line("weir_peak_bytes", "gauge", "Highest weir_used_bytes so far.", gauges.peak_bytes, &out);
  Line("weir_kv_bytes", "gauge", "Bytes of keys and values in sessions.", gauges.kv_bytes, &out);
  Line("weir_sessions", "gauge", "Stream sessions.", gauges.sessions, &out);
  Line("weir_answer_pots", "gauge", "Pots for requests without a session.", gauges.answer_pots, &out);
  Line("weir_answer_pots_busy", "gauge", "Of them, in use.", gauges.answer_pots_busy, &out);
  out += "# HELP weir_tokens_resident Tokens held by stream sessions.\n# TYPE weir_tokens_resident gauge\n";
  for (size_t m = 0; m < gauges.tokens_resident.size(); ++m) {
    out += fmt::format("weir_tokens_resident{{modality=\"{}\"}} {}\n", ModalityName(static_cast<Modality>(m)),
                       gauges.tokens_resident[m]);
  }
  Line("weir_pictures_read_total", "counter", "Pictures read.", gauges.pictures_read, &out);
  Line("weir_frames_read_total", "counter", "Frames of videos read.", gauges.frames_read, &out);
  Line("weir_frames_arrived_total", "counter", "Frames of live videos that arrived.", gauges.frames_arrived, &out);
  Line("weir_frames_dropped_total", "counter", "Frames of live videos dropped because newer ones arrived.",
       gauges.frames_dropped, &out);
  Line("weir_rows_pruned_total", "counter", "Rows of pictures that --prune removed.", gauges.rows_pruned, &out);
  Line("weir_jobs_running", "gauge", "Jobs that share the engine now.", gauges.jobs_running, &out);
  Line("weir_jobs_waiting", "gauge", "Jobs that wait to start.", gauges.jobs_waiting, &out);
  Line("weir_recall_archive_bytes", "gauge", "Bytes on disk of the sessions' archives.", gauges.archive_bytes, &out);
  Line("weir_recall_reserved_bytes", "gauge", "Bytes on disk that these archives may have.",
       gauges.archive_reserved_bytes, &out);
  Line("weir_recall_disk_bytes", "gauge", "Bytes on disk that all archives together may have.",
       gauges.archive_total_bytes, &out);
  Line("weir_webhooks_waiting", "gauge", "Events that wait to be delivered.", gauges.webhooks_waiting, &out);
  Line("weir_webhooks_delivered_total", "counter", "Events delivered.", gauges.webhooks_delivered, &out);
  Line("weir_webhooks_failed_total", "counter", "Requests with events that were not answered with 2xx.",
       gauges.webhooks_failed, &out);
  Line("weir_webhooks_dropped_total", "counter", "Events that were refused, became too old, or did not fit.",
       gauges.webhooks_dropped, &out);
  Line("weir_mqtt_connected", "gauge", "1 with a connection to the MQTT broker.", gauges.mqtt_connected, &out);
  Line("weir_mqtt_waiting", "gauge", "Messages that the broker has not confirmed.", gauges.mqtt_waiting, &out);
  Line("weir_mqtt_published_total", "counter", "Messages that it has.", gauges.mqtt_published, &out);
  Line("weir_mqtt_dropped_total", "counter", "Events that did not fit.", gauges.mqtt_dropped, &out);
  Line("weir_joint_forwards_total", "counter", "Forward passes that several answers shared.", gauges.joint_forwards,
       &out);
  Line("weir_joint_tokens_total", "counter", "Tokens of answers read in joint forward passes.", gauges.joint_tokens,
       &out);

  const std::lock_guard<std::mutex> lock(mutex_);
  Line("weir_tokens_read_total", "counter", "Tokens read from prompts and texts.", n_read_, &out);
  Line("weir_tokens_reused_total", "counter", "Prompt tokens reused from an answer pot.", n_reused_, &out);
  Line("weir_tokens_generated_total", "counter", "Tokens generated in answers.", n_generated_, &out);
  Line("weir_answers_total", "counter", "Answers, cancelled ones included.", n_answers_, &out);
  Line("weir_recall_questions_total", "counter", "Questions that recall searched archives for.", n_recalls_, &out);
  Line("weir_recall_passages_total", "counter", "Passages that it brought back.", n_passages_, &out);
  Line("weir_cancelled_total", "counter", "Jobs whose client disconnected.", n_cancelled_, &out);
  Line("weir_sessions_expired_total", "counter", "Sessions that expired because they were idle.", n_expired_, &out);
  out += "# HELP weir_requests_total Requests by route and status.\n# TYPE weir_requests_total counter\n";
  for (const auto& [key, n] : requests_) {
    out += fmt::format("weir_requests_total{{route=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, n);
  }
  out += "# HELP weir_selections_total Times a pot had to shrink.\n# TYPE weir_selections_total counter\n";
  for (const auto& [policy, e] : evictions_) {
    out += fmt::format("weir_selections_total{{policy=\"{}\"}} {}\n", policy, e.selections);
  }
  out +=
      "# HELP weir_evicted_tokens_total Tokens that no layer holds any more.\n# TYPE weir_evicted_tokens_total "
      "counter\n";
  for (const auto& [policy, e] : evictions_) {
    out += fmt::format("weir_evicted_tokens_total{{policy=\"{}\"}} {}\n", policy, e.tokens);
  }
  out +=
      "# HELP weir_ttft_seconds Time from a request to the first token of its answer.\n# TYPE weir_ttft_seconds "
      "histogram\n";
  int64_t n = 0;
  for (size_t i = 0; i < kTtftBounds.size(); ++i) {
    n += ttft_[i];
    out += fmt::format("weir_ttft_seconds_bucket{{le=\"{:g}\"}} {}\n", kTtftBounds[i], n);
  }
  n += ttft_.back();
  out += fmt::format(
      "weir_ttft_seconds_bucket{{le=\"+Inf\"}} {}\nweir_ttft_seconds_sum {:.6f}\nweir_ttft_seconds_count {}\n", n,
      ttft_sum_s_, n);
  return out;
}

}  // namespace weir
