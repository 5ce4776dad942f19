// A session as a snapshot file (io/snapshot.h): the bytes of Session::Save(), and a text that says what they need.
//
// The text is JSON: format, model, fingerprint, policy, pot, chunk, k_type, v_type, on_overflow; `conversation` (null
// for a session without rounds), `watched` (the stream's clock and the frames of its live video; null: neither) and
// `sampler` (null where every answer brings its own). `weir serve`, `weir chat` and `weir run` write the same files and
// read each other's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chat/conversation.h"
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

  // Of a session that is there; `conversation`, `watched` and `sampler` are left null.
  static SessionNote Of(const Session& session, OnOverflow on_overflow, std::string model, std::string fingerprint);
  // kInvalidArgument for a text that ToText() did not write.
  static Result<SessionNote> Parse(const std::string& text);
  std::string ToText() const;

  // kInvalidArgument says in what `session` differs from the one that was saved.
  Status CheckFits(const Session& session, const std::string& fingerprint) const;
};

// kInvalidArgument for a history too long to be written.
Result<Json> SaveSampler(const Sampler& sampler);
// kInvalidArgument when it cannot be that.
Status RestoreSampler(const Json& saved, Sampler* sampler);

}  // namespace weir
