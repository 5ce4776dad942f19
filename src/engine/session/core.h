// SPDX-License-Identifier: Apache-2.0
// State shared by the parts of a session: the objects it runs on, its place in the stream, and the current rows.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "base/ledger.h"
#include "engine/runner.h"
#include "engine/session/stream_listener.h"
#include "engine/session_plan.h"
#include "kv/store.h"
#include "model/architecture.h"
#include "policy/policy.h"

namespace weir {

// StreamPlace::t_newest_ms of a stream without tokens.
inline constexpr int64_t kNoTime = std::numeric_limits<int64_t>::min();

// The current place in a stream. Saved and cleared with the session.
struct StreamPlace {
  int64_t n_seen = 0;  // tokens read or generated
  std::array<int64_t, kNumModalities> n_seen_by{};
  int64_t n_selections = 0;
  int64_t t_newest_ms = kNoTime;
  int64_t pos_shift = 0;     // BatchSegment::pos_shift of the next row
  int64_t n_slots_read = 0;  // by the last row, over all groups; not saved
  int32_t n_pinned = 0;      // slots that every group must keep; an excerpt's are among them
  // Excerpts that were taken back most recently, oldest first; unused entries come first and are empty. Their seqs are
  // gaps that hold nothing of the stream.
  std::array<SeqRange, 16> gaps{};

  int64_t n_seen_visual() const { return n_seen - n_seen_by[static_cast<size_t>(Modality::kText)]; }
};

// State of the kinds of evidence between calls, except the floats in the pot. Saved and cleared with the session.
struct EvidenceMemo {
  int32_t n_score_rows = 0, n_unscored = 0;  // SlotView::n_rows, n_unscored
  int32_t n_answer = 0;                      // tokens of the answer under way; 0 while a prompt is read
  std::vector<int32_t> probe;                // tokens that vote before a selection
  std::vector<int32_t> question;             // last rows of the round's question; used as the probe unless empty
};

// The place of a frame in its video, where frames of a video have the same lines and columns (kv/axes.h).
struct VideoPlace {
  int32_t steps = -1;  // on the time axis, from the frame read just before it; -1: it does not continue a video
  int64_t time = 0;    // the same, from the video's first frame
  int64_t back = 0;    // positions that the video takes so far
};

// Rows that are read together: tokens, or embeddings in their place.
struct Chunk {
  int64_t n = 0;
  const int32_t* tokens = nullptr;    // [n], or nullptr: embeddings
  const float* embeddings = nullptr;  // [n, row_width]
  Modality modality = Modality::kText;
  int64_t first = 0;  // index of the first row in its picture or frame
  int64_t n_all = 0;  // rows of the whole picture or frame
  int32_t columns = 1;
  VideoPlace video;
  int64_t n_after = 0;  // rows of the same call that come after this chunk
  int64_t t_src_ms = 0;
  bool pinned = false, generated = false;
  bool excerpt = false;     // read before: it takes slots kept free for excerpts
  bool of_picture = false;  // words around a picture's rows
  bool observed = false;    // a TensorObserver sees every tensor
};

struct SessionCore {
  explicit SessionCore(int64_t budget_bytes) : ledger(budget_bytes) {}

  Ledger ledger;  // first: outlives every reservation
  Model* model = nullptr;
  Backend* backend = nullptr;
  SessionOptions options;
  SessionPlan plan;
  std::unique_ptr<Policy> policy;
  PolicyNeeds needs;
  std::unique_ptr<Pot> pot;
  std::unique_ptr<Runner> runner;
  std::vector<SlotMeta> rows;  // metadata of the current forward pass; at most RunnerShape::max_rows
  StreamPlace stream;
  EvidenceMemo memo;
  SeqRange excerpt;                    // that the pot holds now
  StreamListener* listener = nullptr;  // may be nullptr
  int64_t n_question_left = 0;         // tokens of the round's question that are still to come

  // Slots kept free at present: for a probe, for questions aside, and for an excerpt that is not there.
  int32_t n_reserved() const {
    return plan.probe_slots + plan.pot.n_slots - plan.pot_slots - static_cast<int32_t>(excerpt.end - excerpt.begin);
  }
  // The pot's slots without those.
  int32_t n_slots() const { return plan.pot.n_slots - n_reserved(); }
  int32_t n_free() const { return pot->n_free() - n_reserved(); }
};

}  // namespace weir
