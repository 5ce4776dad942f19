// SPDX-License-Identifier: Apache-2.0
// The server's metrics.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kv/types.h"
#include "serve/latency_histogram.h"
#include "serve/metric_family.h"

namespace weir {

// Sampled at each scrape.
struct Gauges {
  int64_t budget_bytes = 0, used_bytes = 0, peak_bytes = 0;  // of all sessions
  int64_t kv_bytes = 0;                                      // of these, keys and values
  int64_t sessions = 0, answer_pots = 0, answer_pots_busy = 0;
  std::array<int64_t, kNumModalities> tokens_resident{};  // held by sessions in at least one layer and head
  int64_t pictures_read = 0, frames_read = 0, frames_arrived = 0, frames_dropped = 0;  // so far
  int64_t rows_pruned = 0;                                                             // so far
  int64_t room_bytes = 0, room_used_bytes = 0;  // of the budget: for sessions and answer pots; of these, in use
  int64_t answer_pot_tokens = 0;                // of each
  int64_t jobs_running = 0, jobs_waiting = 0, jobs_limit = 0;
  int64_t draining = 0;
  int64_t archive_bytes = 0, archive_reserved_bytes = 0, archive_total_bytes = 0;  // on disk, for recall
  int64_t webhooks_waiting = 0, webhooks_delivered = 0, webhooks_failed = 0, webhooks_dropped = 0;
  int64_t mqtt_connected = 0, mqtt_waiting = 0, mqtt_published = 0, mqtt_dropped = 0;
  int64_t spans_waiting = 0, spans_sent = 0, spans_dropped = 0, otlp_failed = 0;
  int64_t joint_forwards = 0, joint_tokens = 0;  // so far: forward passes shared by several answers
};

// The share of the room for sessions and answers that is in use, from 0 to 1.
double RoomShare(const Gauges& gauges);

struct AnswerTimes {
  int64_t n_tokens = 0;
  double wait_s = 0;         // until its job started
  double first_token_s = 0;  // from the request to the first token
  double rest_s = 0;         // from there to the last
};

// Thread-safe.
class Metrics {
 public:
  void CountRequest(std::string_view route, int status);
  void CountRead(int64_t n_tokens);
  void CountReused(int64_t n_tokens);
  // `traced`: the request, if it is traced.
  void CountAnswer(const AnswerTimes& times, const std::optional<Exemplar>& traced);
  void CountEvictions(std::string_view policy, int64_t n_selections, int64_t n_tokens);
  // A question that recall searched for, and the passages that it brought back.
  void CountRecall(int64_t n_passages);
  void CountCancelled();
  void CountExpired();
  std::vector<MetricFamily> Collect(const Gauges& gauges) const;

 private:
  static constexpr std::array<double, 10> kTtftBounds = {0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300};
  static constexpr std::array<double, 10> kTokenBounds = {0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5};
  struct Evictions {
    int64_t selections = 0, tokens = 0;
  };
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> requests_;
  std::map<std::string, Evictions, std::less<>> evictions_;
  LatencyHistogram ttft_{kTtftBounds}, wait_{kTtftBounds}, token_{kTokenBounds};
  int64_t n_read_ = 0, n_reused_ = 0, n_generated_ = 0, n_answers_ = 0, n_cancelled_ = 0, n_expired_ = 0;
  int64_t n_recalls_ = 0, n_passages_ = 0;
};

}  // namespace weir
