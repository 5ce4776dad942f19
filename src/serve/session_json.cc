// SPDX-License-Identifier: Apache-2.0
#include "serve/session_json.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kv/held.h"
#include "serve/held_map.h"

namespace weir {

Json FramesJson(const FrameCounters& frames) {
  return {{"arrived", frames.arrived}, {"read", frames.read}, {"dropped", frames.dropped}, {"waiting", frames.waiting}};
}

namespace {

Json RecallJson(const StreamSession& stream) {
  const SessionRecall& recall = *stream.recall;
  Json out = {{"selector", recall.options.spec.text},
              {"tokens", stream.session->plan().excerpt_slots},
              {"disk", recall.options.disk_bytes}};
  if (recall.stream != nullptr) {
    const Archive& archive = recall.stream->archive();
    out["bytes"] = archive.disk_bytes();
    out["from"] = archive.seq_begin();
    out["to"] = archive.seq_end();
  }
  if (std::string notes = recall.Notes(); !notes.empty()) out["note"] = std::move(notes);
  return out;
}

}  // namespace

Json SessionJson(const StreamSession& stream) {
  const Session& session = *stream.session;
  const SessionCounters counters = session.counters();
  const Held held = session.held();
  const int64_t queue_bytes = stream.frames == nullptr ? 0 : stream.frames->bytes();
  const int64_t event_bytes = stream.rules == nullptr ? 0 : stream.rules->bytes_beside();
  Json out = {{"id", stream.id},
              {"object", "session"},
              {"created", stream.created_s},
              {"idle_s", stream.idle().count()},
              {"policy", stream.options.policy.text},
              {"pot", session.plan().pot_slots},
              {"bytes", session.plan().total_bytes + queue_bytes + event_bytes},
              {"unbounded_bytes", UnboundedBytes(session)},
              {"seen", counters.seen},
              {"kept", counters.kept},
              {"dropped", counters.dropped},
              {"pinned", held.n_pinned},
              {"oldest_unpinned", held.oldest_unpinned},
              {"unbroken_from", held.unbroken_from},
              {"selections", counters.selections},
              {"modalities", ModalitiesJson(counters, HeldSpans(session.pot()))},
              {"t_ms", stream.t_ms}};
  const StreamStates states = StatesOf(stream, {0, counters.seen}, std::max<int64_t>(1, counters.seen));
  const auto only = [](const std::vector<int64_t>& counts) { return counts.empty() ? 0 : counts[0]; };
  out["states"] = {{"held", only(states.held)}, {"on_disk", only(states.on_disk)}, {"gone", only(states.gone)}};
  if (stream.recall != nullptr) out["recall"] = RecallJson(stream);
  if (stream.rules != nullptr) {
    out["rules"] = {{"count", stream.rules->set.rules().size()},
                    {"tokens", session.plan().aside_slots},
                    {"last_event_id", stream.rules->events->newest()}};
  }
  if (stream.rows_pruned) out["rows_pruned"] = *stream.rows_pruned;
  if (stream.frames != nullptr) out["frames"] = FramesJson(stream.frames->counters());
  return out;
}

}  // namespace weir
