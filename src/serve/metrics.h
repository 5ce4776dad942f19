// SPDX-License-Identifier: Apache-2.0
// The server's metrics, in Prometheus' text format.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "kv/types.h"

namespace weir {

// Sampled at each scrape.
struct Gauges {
  int64_t budget_bytes = 0, used_bytes = 0, peak_bytes = 0;  // of all sessions
  int64_t kv_bytes = 0;                                      // of these, keys and values
  int64_t sessions = 0, answer_pots = 0, answer_pots_busy = 0;
  std::array<int64_t, kNumModalities> tokens_resident{};  // held by sessions in at least one layer and head
  int64_t pictures_read = 0, frames_read = 0, frames_arrived = 0, frames_dropped = 0;  // so far
  int64_t rows_pruned = 0;                                                             // so far
  int64_t jobs_running = 0, jobs_waiting = 0;
  int64_t archive_bytes = 0, archive_reserved_bytes = 0, archive_total_bytes = 0;  // on disk, for recall
  int64_t webhooks_waiting = 0, webhooks_delivered = 0, webhooks_failed = 0, webhooks_dropped = 0;
  int64_t mqtt_connected = 0, mqtt_waiting = 0, mqtt_published = 0, mqtt_dropped = 0;
  int64_t joint_forwards = 0, joint_tokens = 0;  // so far: forward passes shared by several answers
};

// Thread-safe.
class Metrics {
 public:
  void CountRequest(std::string_view route, int status);
  void CountRead(int64_t n_tokens);
  void CountReused(int64_t n_tokens);
  void CountAnswer(int64_t n_tokens, double first_token_s);
  void CountEvictions(std::string_view policy, int64_t n_selections, int64_t n_tokens);
  // A question that recall searched for, and the passages that it brought back.
  void CountRecall(int64_t n_passages);
  void CountCancelled();
  void CountExpired();
  std::string Text(const Gauges& gauges) const;

 private:
  static constexpr std::array<double, 10> kTtftBounds = {0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300};
  struct Evictions {
    int64_t selections = 0, tokens = 0;
  };
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> requests_;
  std::map<std::string, Evictions, std::less<>> evictions_;
  std::array<int64_t, kTtftBounds.size() + 1> ttft_{};  // the last bucket: above all bounds
  double ttft_sum_s_ = 0;
  int64_t n_read_ = 0, n_reused_ = 0, n_generated_ = 0, n_answers_ = 0, n_cancelled_ = 0, n_expired_ = 0;
  int64_t n_recalls_ = 0, n_passages_ = 0;
};

}  // namespace weir
