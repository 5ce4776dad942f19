// SPDX-License-Identifier: Apache-2.0
#include "rules/rule_room.h"

#include "base/heap_bytes.h"
#include "rules/evidence.h"
#include "rules/rule_set.h"

namespace weir {
namespace {

constexpr int64_t kMaxIdBytes = 64;
// A vector that grows by one has up to twice its elements, and while it moves them half of that once more.
constexpr int64_t kGrown = 3;

// One rule as it is watched.
int64_t WatchedBytes(int32_t room, bool webhooks) {
  constexpr int64_t kAnswerTokens = 64;     // of each list of answers
  constexpr int64_t kUsualBytes = 6 * 512;  // the blocks and the map of a deque of RuleTracker::kUsual numbers
  const int64_t words = HeapBytes(2 * kMaxIdBytes) + 2 * HeapBytes(kMaxRuleBytes) +
                        (webhooks ? HeapBytes(static_cast<int64_t>(kMaxWebhookBytes)) : 0);
  // Its question, and once more while the questions of a new place are made.
  const int64_t tokens = 2 * kGrown * HeapBytes(int64_t{room} * static_cast<int64_t>(sizeof(int32_t)));
  const int64_t lists = kGrown * static_cast<int64_t>(sizeof(RuleSet::Watched) + 2 * sizeof(std::vector<int32_t>) +
                                                      sizeof(size_t) + sizeof(double));
  return words + 3 * HeapBytes(kAnswerTokens * static_cast<int64_t>(sizeof(int32_t))) + kUsualBytes + tokens + lists;
}

// One event, before it is told.
int64_t EventBytes() {
  return kGrown * static_cast<int64_t>(sizeof(RuleEvent)) + HeapBytes(2 * kMaxIdBytes) + HeapBytes(kMaxRuleBytes) +
         HeapBytes(kMostEvidenceBytes) + HeapBytes(2 * kMostEvidenceFrames * static_cast<int64_t>(sizeof(int64_t)));
}

}  // namespace

PlanItem RuleRoom(int64_t n_rules, int32_t room, bool webhooks) {
  constexpr int64_t kTold = 4 * kMaxEventBytes;  // one event as JSON, and as its text
  constexpr int64_t kSearch = 64 << 10;          // the words of one evidence before they are cut
  constexpr int64_t kPlace = 8 << 10;            // the place in the conversation that the questions are of
  const int64_t bytes = n_rules * (WatchedBytes(room, webhooks) + EventBytes()) + kTold + kSearch + kPlace;
  return {MemTag::kOther, "rules: their words and questions, what they learned, the events of a check", bytes};
}

}  // namespace weir
