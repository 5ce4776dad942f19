// SPDX-License-Identifier: Apache-2.0
// A session as a snapshot file (io/snapshot.h): the bytes of Session::Save(), behind them those of FrameStore::Save()
// where the stream keeps frames, and a text that says what they need.
//
// The text is JSON: format, model, fingerprint, policy, pot, chunk, k_type, v_type, on_overflow; `conversation` (null
// for a session without rounds), `watched` (the stream's clock and the frames of its live video; null: neither),
// `sampler` (null where every answer brings its own) and `frames` (the encoder, its fingerprint, and the bytes of the
// frames that are kept; missing where there are none). `weir serve`, `weir chat` and `weir run` write the same files
// and read each other's.
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
#include "text/sampler.h"

namespace weir {

// Names the weights: names, shapes and the first bytes of every tensor.
std::string ModelFingerprint(const GgufFile& file);

// What the text says.
struct SessionNote {
  std::string model, fingerprint;
  std::string policy;  // as PolicySpec::text
  int32_t pot_slots = 0, chunk_rows = 0;
  DType k_type = DType::kF16, v_type = DType::kF16;
  OnOverflow on_overflow = OnOverflow::kEvict;
  Json conversation, watched, sampler;
  struct Frames {
    int64_t bytes = 0;  // behind the session's
    std::string encoder, fingerprint;
  };
  std::optional<Frames> frames;

  // Of a session that is there; `conversation`, `watched`, `sampler` and `frames` are left null.
  static SessionNote Of(const Session& session, OnOverflow on_overflow, std::string model, std::string fingerprint);
  // What the session's stream keeps, of the encoder of that file. Nothing where there is nothing to save.
  void Describe(const FrameStore& store, const GgufFile& encoder);
  // kInvalidArgument for a text that ToText() did not write.
  static Result<SessionNote> Parse(const std::string& text);
  std::string ToText() const;

  // kInvalidArgument says in what `session` differs from the one that was saved.
  Status CheckFits(const Session& session, const std::string& fingerprint) const;
};

// A session with the frames that its stream keeps: the state of a snapshot. `frames` may be nullptr.
int64_t StateBytes(const Session& session, const FrameStore* frames);
Status SaveState(const Session& session, const FrameStore* frames, ByteSink& sink);
// Reads what SaveState() wrote. `encoder`: the file whose frames `frames` keeps; both nullptr without an encoder.
// kInvalidArgument when the note has frames of another encoder, or of one that is not there; errors of
// Session::Restore() and FrameStore::Restore(). After an error the session is as it was, or empty, and so are the
// frames.
Status RestoreState(const SessionNote& note, ByteSource& source, const GgufFile* encoder, Session* session,
                    FrameStore* frames);

// kInvalidArgument for a history too long to be written.
Result<Json> SaveSampler(const Sampler& sampler);
// kInvalidArgument when it cannot be that.
Status RestoreSampler(const Json& saved, Sampler* sampler);

}  // namespace weir
