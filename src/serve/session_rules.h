// SPDX-License-Identifier: Apache-2.0
// The rules of a stream session, and the events that they brought.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/ledger.h"
#include "rules/rule_room.h"
#include "rules/rule_set.h"
#include "serve/event_pictures.h"
#include "serve/event_ring.h"
#include "serve/mqtt_publisher.h"
#include "serve/webhook_sender.h"

namespace weir {

// [engine], but for the ring.
struct SessionRules {
  SessionRules(const Tokenizer& tokenizer, Reservation of_rules, std::shared_ptr<EventRing> ring,
               std::shared_ptr<EventPictures> of_events)
      : room(std::move(of_rules)), set(tokenizer), events(std::move(ring)), pictures(std::move(of_events)) {}
  ~SessionRules() { events->Close(); }
  SessionRules(const SessionRules&) = delete;
  SessionRules& operator=(const SessionRules&) = delete;

  // Asks rules about the session's present moment, as many as one step of the engine may take (RuleSet::CheckPart()).
  // True when the check is over. What went wrong is kept in `trouble`: whoever sent the frame or the text has nothing
  // to do with it. `trace`: the traceparent of what the session read; may be empty.
  bool Check(const std::string& id, Session& session, const Conversation& conversation, int64_t t_ms,
             const std::string& trace, RuleSet::Part* part);

  // A rule of session `id` came: those who watch all rules (`mqtt`) learn of it.
  void Tell(const std::string& id, const RuleSet::Watched& watched) const;

  // For a snapshot. Restore() REQUIRES a session that was made with the snapshot's room; kInvalidArgument for anything
  // that Save() did not write. `leaving`: webhooks that wait and move with the session; Restore() appends them to
  // *came.
  Json Save(const std::vector<WebhookQueue::Event>& leaving) const;
  Status Restore(const Json& saved, const Conversation& conversation, int32_t room,
                 std::vector<WebhookQueue::Event>* came);

  // What the session's options need beside them for rules of so many tokens, and what it takes from the host's budget
  // beside the session; nullptr: its model sees no pictures.
  static PlanItem Room(int32_t tokens) { return RuleRoom(kMaxRules, tokens, /*webhooks=*/true); }
  static int64_t BytesBeside(const SessionOptions& options, const EncoderConfig* encoder);
  int64_t bytes_beside() const { return EventRing::Bytes() + (pictures == nullptr ? 0 : pictures->bytes()); }

  const Reservation room;  // in the session's ledger, for `set`
  RuleSet set;
  // Both in the host's ledger: readers may hold them for longer.
  const std::shared_ptr<EventRing> events;
  const std::shared_ptr<EventPictures> pictures;  // nullptr: the model sees none
  WebhookSender* webhooks = nullptr;              // of the server; nullptr: it sends none
  MqttPublisher* mqtt = nullptr;                  // of the server; nullptr: it has no broker
  std::string trouble;                            // of the last check; empty: none

 private:
  // To those who watch all rules: the event's picture, which is kept.
  void Show(const std::string& id, const RuleEvent& event);
};

// A rule with its score at the last check.
Json RuleJson(const RuleSet::Watched& watched);

}  // namespace weir
