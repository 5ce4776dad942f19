// SPDX-License-Identifier: Apache-2.0
#include "serve/session_snapshot.h"

#include <optional>
#include <utility>
#include <vector>

#include "chat/session_file.h"
#include "engine/session/aside_room.h"
#include "io/json.h"
#include "serve/session_json.h"
#include "serve/visual_input.h"

namespace weir {
namespace {

constexpr int64_t kMaxCount = int64_t{1} << 50;  // largest count accepted from a snapshot: counting continues from it

// The video clock and counters of a session; a file without them is of a session without pictures.
struct Watched {
  int64_t t_ms = 0;
  std::optional<int64_t> rows_pruned;
  FrameCounters frames;
};

Json ToJson(const StreamSession& stream) {
  Json out = {{"t_ms", stream.t_ms}};
  if (stream.rows_pruned) out["rows_pruned"] = *stream.rows_pruned;
  if (stream.frames == nullptr) return out;
  const FrameCounters frames = stream.frames->counters();
  out["last_ms"] = frames.t_ms;
  out["frames"] = FramesJson(frames);
  return out;
}

Result<Watched> FromJson(const Json& saved) {
  Watched out;
  if (saved.is_null()) return out;
  Fields fields(saved, "watched.");
  fields.Get("t_ms", &out.t_ms, 0, kMaxMoment);
  fields.Get("last_ms", &out.frames.t_ms, -1, kMaxMoment);
  if (fields.Has("rows_pruned")) fields.Get("rows_pruned", &out.rows_pruned.emplace(), 0, kMaxCount);
  const Json* counters = fields.Get("frames");
  WEIR_RETURN_IF_ERROR(fields.Done());
  if (counters == nullptr) return out;
  Fields of_frames(*counters, "watched.frames.");
  of_frames.Get("arrived", &out.frames.arrived, 0, kMaxCount);
  of_frames.Get("read", &out.frames.read, 0, kMaxCount);
  of_frames.Get("dropped", &out.frames.dropped, 0, kMaxCount);
  of_frames.Get("waiting", &out.frames.waiting, 0, kMaxCount);
  WEIR_RETURN_IF_ERROR(of_frames.Done());
  return out;
}

}  // namespace

Result<std::unique_ptr<SnapshotWriter>> WriteSnapshot(const Host& host, const StreamSession& stream,
                                                      const std::optional<SessionNote::Recall>& recall,
                                                      const std::vector<WebhookQueue::Event>& leaving,
                                                      const std::string& path) {
  SessionNote note =
      SessionNote::Of(*stream.session, stream.options.on_overflow, host.options().model_name, host.fingerprint());
  note.conversation = stream.conversation.Save();
  note.watched = ToJson(stream);
  note.recall = recall;
  if (stream.rules != nullptr) note.rules = stream.rules->Save(leaving);
  const FrameStore* const frames = stream.kept_frames.get();
  if (frames != nullptr) note.Describe(*frames, host.options().encoder->file());
  WEIR_ASSIGN_OR_RETURN(auto file, SnapshotWriter::Begin(path, note.ToText(), StateBytes(*stream.session, frames)));
  WEIR_RETURN_IF_ERROR(SaveState(*stream.session, frames, *file));
  return file;
}

Result<StreamSession*> ReadSnapshot(Host& host, SnapshotReader& snapshot, const std::string& id) {
  WEIR_ASSIGN_OR_RETURN(const SessionNote note, SessionNote::Parse(snapshot.text()));
  if (note.fingerprint != host.fingerprint()) {
    return InvalidArgument("the snapshot is for the model '{}', not for the one running here", note.model);
  }
  if (note.conversation.is_null()) return InvalidArgument("the snapshot is of plain text, not of a conversation");
  std::optional<std::string> selector = note.recall ? note.recall->selector : "off";
  const auto recall = host.recall().OptionsFor(selector, note.recall ? note.recall->disk_bytes : 0, note.excerpt_slots);
  if (!recall.ok()) return InvalidArgument("the snapshot is not usable: {}", recall.status().message());
  auto usable = host.admission().OptionsFor(note.policy, note.pot_slots, *recall);
  // An unknown policy is not a missing file.
  if (!usable.ok()) return InvalidArgument("the snapshot is not usable: {}", usable.status().message());
  SessionOptions& options = *usable;
  options.chunk_rows = note.chunk_rows;
  options.windows_in_pot = note.window_rows == 0;
  options.on_overflow = note.on_overflow;
  options.pictures = note.pictures;
  options.aside_slots = note.aside_slots;
  WEIR_ASSIGN_OR_RETURN(Conversation talk, Conversation::Restore(host.tokenizer(), host.chat(), note.conversation));
  WEIR_ASSIGN_OR_RETURN(const Watched watched, FromJson(note.watched));
  WEIR_ASSIGN_OR_RETURN(StreamSession* const stream, host.Create(options, -1, id));
  stream->t_ms = watched.t_ms;
  if (watched.rows_pruned) stream->rows_pruned = watched.rows_pruned;
  if (stream->frames != nullptr) stream->frames->GoOnFrom(watched.frames);
  Status status = host.recall().Reserve(*recall, stream);
  if (status.ok()) status = note.CheckFits(*stream->session, host.fingerprint());
  const GgufFile* const encoder = host.options().encoder == nullptr ? nullptr : &host.options().encoder->file();
  if (status.ok()) {
    status = RestoreState(note, snapshot, encoder, stream->session.get(), stream->kept_frames.get());
  }
  std::vector<WebhookQueue::Event> came;
  if (status.ok() && stream->rules != nullptr && !note.rules.is_null()) {
    status = stream->rules->Restore(note.rules, talk, AsideRoom(stream->session->plan()), &came);
  }
  if (!status.ok()) {
    host.sessions().Erase(stream->id);
    return status;
  }
  if (host.webhooks() != nullptr && !came.empty()) {
    if (const Status taken = host.webhooks()->Resume(came); !taken.ok()) stream->rules->trouble = taken.message();
  }
  if (stream->rules != nullptr) {
    for (const RuleSet::Watched& watched : stream->rules->set.rules()) stream->rules->Tell(stream->id, watched);
  }
  stream->conversation = std::move(talk);
  if (note.recall) host.recall().GoOn(*note.recall, !id.empty(), stream);
  return stream;
}

}  // namespace weir
