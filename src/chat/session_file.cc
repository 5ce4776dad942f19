// SPDX-License-Identifier: Apache-2.0
#include "chat/session_file.h"

#include <fmt/core.h>
#include <algorithm>

#include "engine/fingerprint.h"
#include "ops/kv_slots.h"

namespace weir {
namespace {

constexpr int64_t kMaxCount = int64_t{1} << 50;  // of tokens and bytes
constexpr size_t kMaxRecallText = 1 << 12;
constexpr int64_t kMaxHistory = 1'000'000;  // fits into JSON with room for the rest

const char* OverflowName(OnOverflow on_overflow) { return on_overflow == OnOverflow::kError ? "error" : "evict"; }

Json ToJson(const SessionNote::Recall& recall) {
  return {{"selector", recall.selector},     {"disk", recall.disk_bytes},       {"archive", recall.archive},
          {"seq_end", recall.point.seq_end}, {"segment", recall.point.segment}, {"offset", recall.point.offset},
          {"salt", recall.point.salt},       {"sum", recall.point.sum}};
}

Result<SessionNote::Recall> RecallFrom(const Json& json) {
  Fields fields(json, "recall.");
  SessionNote::Recall out;
  int64_t segment = 0, salt = 0, sum = 0;
  fields.Get("selector", &out.selector);
  fields.Get("disk", &out.disk_bytes, 1, kMaxCount);
  fields.Get("archive", &out.archive);
  fields.Get("seq_end", &out.point.seq_end, 0, kMaxCount);
  fields.Get("segment", &segment, 0, INT32_MAX);
  fields.Get("offset", &out.point.offset, 0, kMaxCount);
  fields.Get("salt", &salt, 0, UINT32_MAX);
  fields.Get("sum", &sum, 0, UINT32_MAX);
  WEIR_RETURN_IF_ERROR(fields.Done());
  out.point.segment = static_cast<int32_t>(segment);
  out.point.salt = static_cast<uint32_t>(salt);
  out.point.sum = static_cast<uint32_t>(sum);
  if (out.selector.empty() || out.disk_bytes == 0 ||
      std::max(out.selector.size(), out.archive.size()) > kMaxRecallText) {
    return InvalidArgument("the snapshot's recall lacks fields: it was not written by this program");
  }
  return out;
}

// One of the cache types by its name.
Result<DType> CacheType(const std::string& name) {
  for (const DType type : kSlotTypes) {
    if (name == InfoOf(type).name) return type;
  }
  return InvalidArgument("the snapshot has a cache of type '{}', which this build does not know", name);
}

const char* PicturesText(bool pictures) { return pictures ? "some" : "none"; }

std::string WindowText(int32_t n) { return n == 0 ? "what the policy keeps" : fmt::format("the newest {} tokens", n); }

}  // namespace

std::string ModelFingerprint(const GgufFile& file) { return fmt::format("{:016x}", ModelHash(file)); }

SessionNote SessionNote::Of(const Session& session, OnOverflow on_overflow, std::string model,
                            std::string fingerprint) {
  const SessionPlan& plan = session.plan();
  SessionNote out;
  out.model = std::move(model);
  out.fingerprint = std::move(fingerprint);
  out.policy = session.policy().text;
  out.pot_slots = plan.pot_slots;
  out.chunk_rows = plan.chunk_rows;
  out.window_rows = plan.pot.windows.n_rows;
  out.k_type = plan.pot.k_type;
  out.v_type = plan.pot.v_type;
  out.on_overflow = on_overflow;
  out.pictures = plan.pictures;
  out.excerpt_slots = plan.excerpt_slots;
  out.aside_slots = plan.aside_slots;
  return out;
}

void SessionNote::Describe(const FrameStore& store, const GgufFile& encoder) {
  frames.reset();
  if (store.state_bytes() == 0) return;
  const Result<std::string> name = encoder.StringOr("general.name", "");
  frames = {store.state_bytes(), name.ok() ? *name : "", ModelFingerprint(encoder)};
}

std::string SessionNote::ToText() const {
  Json text = {{"format", 1},
               {"model", model},
               {"fingerprint", fingerprint},
               {"policy", policy},
               {"pot", pot_slots},
               {"chunk", chunk_rows},
               {"k_type", InfoOf(k_type).name},
               {"v_type", InfoOf(v_type).name},
               {"on_overflow", OverflowName(on_overflow)},
               {"conversation", conversation},
               {"watched", watched},
               {"sampler", sampler}};
  if (frames) {
    text["frames"] = {{"encoder", frames->encoder}, {"fingerprint", frames->fingerprint}, {"bytes", frames->bytes}};
  }
  if (!pictures) text["pictures"] = false;
  if (window_rows > 0) text["window_rows"] = window_rows;
  if (excerpt_slots > 0) text["excerpt"] = excerpt_slots;
  if (aside_slots > 0) text["aside"] = aside_slots;
  if (!rules.is_null()) text["rules"] = rules;
  if (recall) text["recall"] = ToJson(*recall);
  return JsonText(text);
}

Result<SessionNote> SessionNote::Parse(const std::string& text) {
  WEIR_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text));
  Fields fields(json);
  SessionNote out;
  int64_t format = 0, pot = 0, chunk = 0, windows = 0, excerpt = 0, aside = 0;
  std::string k_type, v_type, on_overflow;
  fields.Get("format", &format, 1, 1);
  fields.Get("model", &out.model);
  fields.Get("fingerprint", &out.fingerprint);
  fields.Get("policy", &out.policy);
  fields.Get("pot", &pot, 1, 1 << 26);
  fields.Get("chunk", &chunk, 1, 1 << 26);
  fields.Get("k_type", &k_type);
  fields.Get("v_type", &v_type);
  fields.Get("on_overflow", &on_overflow);
  fields.Get("pictures", &out.pictures);
  if (const Json* conversation = fields.Get("conversation")) out.conversation = *conversation;
  if (const Json* watched = fields.Get("watched")) out.watched = *watched;
  if (const Json* sampler = fields.Get("sampler")) out.sampler = *sampler;
  const Json* const frames = fields.Get("frames");
  fields.Get("window_rows", &windows, 0, 1 << 26);
  fields.Get("excerpt", &excerpt, 0, 1 << 26);
  fields.Get("aside", &aside, 0, 1 << 26);
  if (const Json* rules = fields.Get("rules")) out.rules = *rules;
  const Json* const recall = fields.Get("recall");
  WEIR_RETURN_IF_ERROR(fields.Done());
  if (frames != nullptr && !frames->is_null()) {
    Fields of_frames(*frames, "frames.");
    out.frames.emplace(SessionNote::Frames());
    of_frames.Get("encoder", &out.frames->encoder);
    of_frames.Get("fingerprint", &out.frames->fingerprint);
    of_frames.Get("bytes", &out.frames->bytes, 1, INT64_MAX);
    WEIR_RETURN_IF_ERROR(of_frames.Done());
  }
  if (recall != nullptr && !recall->is_null()) {
    WEIR_ASSIGN_OR_RETURN(out.recall, RecallFrom(*recall));
  }
  if (format == 0 || out.policy.empty() || pot == 0 || chunk == 0) {
    return InvalidArgument("the snapshot lacks fields: it was not written by this program");
  }
  out.pot_slots = static_cast<int32_t>(pot);
  out.chunk_rows = static_cast<int32_t>(chunk);
  out.window_rows = static_cast<int32_t>(windows);
  out.excerpt_slots = static_cast<int32_t>(excerpt);
  out.aside_slots = static_cast<int32_t>(aside);
  WEIR_ASSIGN_OR_RETURN(out.k_type, CacheType(k_type));
  WEIR_ASSIGN_OR_RETURN(out.v_type, CacheType(v_type));
  out.on_overflow = on_overflow == "error" ? OnOverflow::kError : OnOverflow::kEvict;
  return out;
}

Status SessionNote::CheckFits(const Session& session, const std::string& fingerprint_here) const {
  const SessionPlan& plan = session.plan();
  if (fingerprint != fingerprint_here) {
    return InvalidArgument("the snapshot is for the model '{}', not for the one running here", model);
  }
  if (policy != session.policy().text) {
    return InvalidArgument("the snapshot's policy is {}, this session's {}", policy, session.policy().text);
  }
  if (pot_slots != plan.pot_slots || chunk_rows != plan.chunk_rows) {
    return InvalidArgument(
        "the snapshot's pot holds {} tokens and reads {} at once, this session's holds {} and reads {}", pot_slots,
        chunk_rows, plan.pot_slots, plan.chunk_rows);
  }
  if (window_rows != plan.pot.windows.n_rows) {
    return InvalidArgument("the snapshot's layers with a window hold {}, this session's {}; use --window-layers {}",
                           WindowText(window_rows), WindowText(plan.pot.windows.n_rows),
                           window_rows > 0 ? "newest" : "pot");
  }
  if (pictures != plan.pictures) {
    return InvalidArgument(
        "of pictures the snapshot's session expects {}, this one {}; --session takes over what it expects",
        PicturesText(pictures), PicturesText(plan.pictures));
  }
  if (excerpt_slots != plan.excerpt_slots) {
    return InvalidArgument("the snapshot has {} slots for what recall brings back, this session {}: --recall-tokens {}",
                           excerpt_slots, plan.excerpt_slots, excerpt_slots);
  }
  if (aside_slots != plan.aside_slots) {
    return InvalidArgument("the snapshot has {} slots for rules, this session {}", aside_slots, plan.aside_slots);
  }
  if (k_type != plan.pot.k_type || v_type != plan.pot.v_type) {
    return InvalidArgument("the snapshot holds keys as {} and values as {}, this session as {} and {}",
                           InfoOf(k_type).name, InfoOf(v_type).name, InfoOf(plan.pot.k_type).name,
                           InfoOf(plan.pot.v_type).name);
  }
  return Status();
}

int64_t StateBytes(const Session& session, const FrameStore* frames) {
  return session.state_bytes() + (frames == nullptr ? 0 : frames->state_bytes());
}

Status SaveState(Session& session, const FrameStore* frames, ByteSink& sink) {
  WEIR_RETURN_IF_ERROR(session.Save(sink));
  return frames == nullptr ? Status() : frames->Save(sink);
}

Status RestoreState(const SessionNote& note, ByteSource& source, const GgufFile* encoder, Session* session,
                    FrameStore* frames) {
  source.Rewind();
  int64_t n_session = source.n_left(), n_frames = 0;
  if (note.frames) {
    const char* const name = note.frames->encoder.c_str();
    if (encoder == nullptr || frames == nullptr) {
      return InvalidArgument("the snapshot keeps frames of the vision encoder '{}', which is missing: --mmproj", name);
    }
    if (note.frames->fingerprint != ModelFingerprint(*encoder)) {
      return InvalidArgument("the snapshot keeps frames of the vision encoder '{}', not of the one that runs here",
                             name);
    }
    n_frames = note.frames->bytes;
    if (n_frames > n_session) return EndsEarly();
    n_session -= n_frames;
  }
  SectionSource of_session(source, 0, n_session), of_frames(source, n_session, n_frames);
  if (frames == nullptr) return session->Restore(of_session);
  WEIR_RETURN_IF_ERROR(frames->Check(of_frames));
  of_frames.Rewind();
  WEIR_RETURN_IF_ERROR(session->Restore(of_session));
  const Status status = frames->Restore(of_frames);
  if (!status.ok()) session->Reset();
  return status;
}

Result<Json> SaveSampler(const Sampler& sampler) {
  const Sampler::State state = sampler.Save();
  if (std::ssize(state.recent) > kMaxHistory) {
    return InvalidArgument("a history of {} tokens for the repeat penalty cannot be saved; at most {} can",
                           state.recent.size(), kMaxHistory);
  }
  return Json{{"draws", state.draws}, {"recent", state.recent}};
}

Status RestoreSampler(const Json& saved, Sampler* sampler) {
  Fields fields(saved, "sampler.");
  Sampler::State state;
  const Json* draws = fields.Get("draws");
  const Json* recent = fields.Get("recent");
  WEIR_RETURN_IF_ERROR(fields.Done());
  if (draws == nullptr || recent == nullptr || !draws->is_number_unsigned()) {
    return InvalidArgument("the snapshot's sampler lacks fields");
  }
  state.draws = draws->get<uint64_t>();
  WEIR_ASSIGN_OR_RETURN(state.recent, TokenIds(*recent, "sampler.recent", INT32_MAX));
  sampler->Restore(state);
  return Status();
}

}  // namespace weir
