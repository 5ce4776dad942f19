// SPDX-License-Identifier: Apache-2.0
// A session as a snapshot file (io/snapshot.h): the bytes of Session::Save(), then those of FrameStore::Save() if the
// stream keeps frames, and a text that describes them.
//
// The text is JSON: format, model, fingerprint, policy, pot, chunk, window_rows, k_type, v_type, on_overflow,
// pictures (false: none were expected; missing: some were);
// `conversation` (null for a session without rounds), `watched` (the stream's clock and the frames of its live video;
// null: neither), `sampler` (null where every answer brings its own), `frames` (the encoder, its fingerprint, and the
// bytes of the frames that are kept; missing where there are none), `excerpt` and `aside`
// (slots for excerpts and for questions aside; missing: none), `rules` (a server's, and their events; missing: none)
// and `recall` (the selector, the archive's folder and quota, and how far the archive went; missing without recall: the
// archive itself is not in the file). `weir serve`, `weir chat` and `weir run` write the same files and read each
// other's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chat/conversation.h"
#include "engine/frame_store.h"
#include "engine/session.h"
#include "io/gguf.h"
#include "io/json.h"
#include "io/snapshot.h"
#include "recall/archive.h"
#include "text/sampler.h"

namespace weir {

// Names the weights: names, shapes and the first bytes of every tensor.
std::string ModelFingerprint(const GgufFile& file);

// The content of the text.
struct SessionNote {
  std::string model, fingerprint;
  std::string policy;  // as PolicySpec::text
  int32_t pot_slots = 0, chunk_rows = 0;
  int32_t window_rows = 0;  // that layers with a window hold, the newest ones; 0: what the policy keeps
  DType k_type = DType::kF16, v_type = DType::kF16;
  OnOverflow on_overflow = OnOverflow::kEvict;
  bool pictures = true;  // SessionOptions::pictures
  Json conversation, watched, sampler;
  Json rules;  // of a server's session (serve/session_rules.h); null: none
  struct Frames {
    int64_t bytes = 0;  // after the session's
    std::string encoder, fingerprint;
  };
  std::optional<Frames> frames;
  int32_t excerpt_slots = 0, aside_slots = 0;
  struct Recall {
    std::string selector;  // as RecallSpec::text
    int64_t disk_bytes = 0;
    std::string archive;  // its folder: of a server, a name in --recall-dir; "": it had none, and is gone
    ArchivePoint point;
  };
  std::optional<Recall> recall;

  // Describes an existing session; `conversation`, `watched`, `sampler`, `rules`, `frames` and `recall` are left
  // null.
  static SessionNote Of(const Session& session, OnOverflow on_overflow, std::string model, std::string fingerprint);
  // Adds the frames that the stream keeps, and the encoder file that made them. Does nothing if there is nothing to
  // save.
  void Describe(const FrameStore& store, const GgufFile& encoder);
  // kInvalidArgument if the text was not written by ToText().
  static Result<SessionNote> Parse(const std::string& text);
  std::string ToText() const;

  // The message of kInvalidArgument says how `session` differs from the saved one.
  Status CheckFits(const Session& session, const std::string& fingerprint) const;
};

// What to say where a session comes back without its archive.
inline constexpr char kArchiveGone[] = "its archive is gone: what left the pot cannot be recalled";

// The state in a snapshot: a session and the frames that its stream keeps. `frames` may be nullptr.
int64_t StateBytes(const Session& session, const FrameStore* frames);
Status SaveState(Session& session, const FrameStore* frames, ByteSink& sink);
// Reads the output of SaveState(). `encoder`: the file of the encoder whose frames `frames` keeps; both nullptr without
// an encoder. kInvalidArgument if the note has frames of another encoder, or of an encoder that is not loaded; errors
// of Session::Restore() and FrameStore::Restore(). After an error the session and the frames are as they were, unless
// the source failed after its bytes had been checked: then the session is empty, and the frames may be.
Status RestoreState(const SessionNote& note, ByteSource& source, const GgufFile* encoder, Session* session,
                    FrameStore* frames);

// kInvalidArgument if the history is too long to be saved.
Result<Json> SaveSampler(const Sampler& sampler);
// kInvalidArgument if the JSON is not a saved sampler.
Status RestoreSampler(const Json& saved, Sampler* sampler);

}  // namespace weir
