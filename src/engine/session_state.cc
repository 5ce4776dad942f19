// SPDX-License-Identifier: Apache-2.0
// Saves and restores a session: all state that affects its later output.
#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>

#include "engine/reads_pictures.h"
#include "engine/session.h"

namespace weir {

struct Session::StateHeader {
  char magic[8];
  SeqRange gaps[16];
  int64_t n_seen, n_selections, pos_shift, t_newest_ms;
  int64_t n_seen_by[kNumModalities];
  int32_t n_pinned, n_score_rows, n_unscored;
  int32_t n_embd, has_last;
  int32_t n_probe, n_question;
  int32_t n_since_full, n_answer;  // no padding
  int32_t
      has_logits;  // the next token's likelihood comes from them, with different bits than from the fused projection
};

namespace {

constexpr char kMagic[8] = {'w', 'e', 'i', 'r', 's', 't', '0', '6'};

// A stream that continues from here can add and subtract counts without overflowing 64 bits.
constexpr int64_t kMaxCount = int64_t{1} << 60;

// Checks slot by slot that every group, and the windows after them, holds tokens of a stream of n_seen, in order, and
// that every group has all pinned ones, as policies, positions and maps assume.
class HoldsStream {
 public:
  HoldsStream(int64_t n_seen, int32_t n_pinned, int32_t n_groups, int32_t n_vocab)
      : n_seen_(n_seen), n_pinned_(n_pinned), n_vocab_(n_vocab), groups_(static_cast<size_t>(n_groups) + 1) {}
  bool operator()(int32_t group, const SlotMeta& slot) {
    Group& g = groups_[static_cast<size_t>(group)];
    if (slot.seq <= g.last || slot.seq >= n_seen_ || slot.token_id >= n_vocab_) return false;
    if (slot.t_src_ms < -kMaxCount || slot.t_src_ms > kMaxCount) return false;
    g.last = slot.seq;
    g.n_pinned += slot.pinned;
    return true;
  }
  bool all_pinned() const {
    return std::all_of(groups_.begin(), groups_.end() - 1, [&](const Group& g) { return g.n_pinned == n_pinned_; });
  }

 private:
  struct Group {
    int64_t last = -1;
    int32_t n_pinned = 0;
  };
  int64_t n_seen_;
  int32_t n_pinned_, n_vocab_;
  std::vector<Group> groups_;
};

}  // namespace

int64_t Session::state_bytes() const {
  return static_cast<int64_t>(sizeof(StateHeader)) +
         (std::ssize(core_.memo.probe) + std::ssize(core_.memo.question)) * 4 +
         int64_t{core_.model->config().n_embd} * 4 + core_.pot->state_bytes();
}

Status Session::Save(std::vector<uint8_t>* out) {
  out->clear();
  out->reserve(static_cast<size_t>(state_bytes()));
  VectorSink sink(out);
  return Save(sink);
}

Session::StateHeader Session::HeaderNow() const {
  const StreamPlace& stream = core_.stream;
  const EvidenceMemo& memo = core_.memo;
  StateHeader h = {};
  h.n_seen = stream.n_seen;
  h.n_selections = stream.n_selections;
  h.pos_shift = stream.pos_shift;
  h.t_newest_ms = stream.t_newest_ms;
  h.n_pinned = stream.n_pinned;
  h.n_score_rows = memo.n_score_rows;
  h.n_unscored = memo.n_unscored;
  h.n_answer = memo.n_answer;
  h.n_embd = core_.model->config().n_embd;
  h.has_last = parts_.prediction.has_row();
  h.n_probe = static_cast<int32_t>(memo.probe.size());
  h.n_question = static_cast<int32_t>(memo.question.size());
  h.n_since_full = reads_.n_since_full();
  h.has_logits = parts_.prediction.has_logits();
  std::memcpy(h.magic, kMagic, sizeof(kMagic));
  std::ranges::copy(stream.n_seen_by, h.n_seen_by);
  std::ranges::copy(stream.gaps, h.gaps);
  return h;
}

Status Session::Save(ByteSink& sink) {
  if (n_excerpt() > 0) return InvalidArgument("an excerpt is in use: take it back before the session is saved");
  WEIR_RETURN_IF_ERROR(Settle());
  core_.backend->Synchronise();
  const StateHeader h = HeaderNow();
  WEIR_RETURN_IF_ERROR(sink.Write(BytesOf(std::span(&h, 1))));
  WEIR_RETURN_IF_ERROR(sink.Write(BytesOf(std::span(core_.memo.probe))));
  WEIR_RETURN_IF_ERROR(sink.Write(BytesOf(std::span(core_.memo.question))));
  WEIR_RETURN_IF_ERROR(sink.Write(BytesOf(parts_.prediction.hidden())));
  WEIR_RETURN_IF_ERROR(core_.pot->Save(sink));
  return core_.backend->status();  // a failed device leaves zeros
}

Status Session::Restore(std::span<const uint8_t> bytes) {
  SpanSource source(bytes);
  return Restore(source);
}

Status Session::Restore(ByteSource& source) {
  const Status bad = InvalidArgument("these bytes are not a saved session of this model, policy and pot");
  StateHeader h;
  source.Rewind();
  WEIR_RETURN_IF_ERROR(source.Read(BytesOf(std::span(&h, 1))));
  const int32_t n_slots = core_.plan.pot.n_slots;
  if (std::memcmp(h.magic, kMagic, sizeof(kMagic)) != 0 || h.n_embd != core_.model->config().n_embd || h.n_seen < 0 ||
      h.n_seen > kMaxCount || h.n_selections < 0 || h.n_selections > kMaxCount || h.pos_shift > 0 ||
      h.pos_shift < -h.n_seen || h.t_newest_ms > kMaxCount || h.n_since_full < 0 || h.n_since_full > INT32_MAX / 2 ||
      h.n_pinned < 0 || h.n_pinned > n_slots || h.n_score_rows < 0 || h.n_unscored < 0 ||
      h.n_unscored > INT32_MAX / 2 || h.n_probe < 0 || h.n_probe > core_.plan.probe_slots || h.n_question < 0 ||
      h.n_question > core_.plan.probe_slots || h.n_answer < 0) {
    return bad;
  }
  int64_t newest_gap = 0;
  for (const SeqRange gap : h.gaps) {
    if (gap.begin < newest_gap || gap.end < gap.begin || gap.end > h.n_seen) return bad;
    newest_gap = gap.end;
  }
  int64_t n_left = h.n_seen;
  for (const int64_t n : h.n_seen_by) {
    if (n < 0 || n > n_left) return bad;
    n_left -= n;
  }
  if (n_left != 0) return bad;
  if (const std::string why = WhyNoPictures(core_.model->config(), *core_.backend);
      !why.empty() && h.n_seen_by[static_cast<size_t>(Modality::kText)] != h.n_seen) {
    return Unsupported("the saved session holds pictures, and {}", why);
  }
  std::vector<int32_t> ids(static_cast<size_t>(h.n_probe + h.n_question));
  WEIR_RETURN_IF_ERROR(source.Read(BytesOf(std::span(ids))));
  for (int32_t id : ids) {
    if (id < 0 || id >= core_.model->config().n_vocab) return bad;
  }
  const int64_t hidden_bytes = int64_t{h.n_embd} * 4;
  WEIR_RETURN_IF_ERROR(source.Skip(hidden_bytes));
  const HoldsStream unseen(h.n_seen, h.n_pinned, core_.pot->shape().n_groups(), core_.model->config().n_vocab);
  HoldsStream first = unseen;
  WEIR_RETURN_IF_ERROR(core_.pot->CheckState(source, std::ref(first)));
  if (source.n_left() != 0 || !first.all_pinned()) return bad;

  // Everything is valid. From here on only the source can fail; the contents are checked again in case the file has
  // changed.
  core_.backend->Synchronise();
  source.Rewind();
  Status status = source.Skip(static_cast<int64_t>(sizeof(h)) + std::ssize(ids) * 4);
  if (status.ok()) status = source.Read(BytesOf(parts_.prediction.hidden()));
  HoldsStream second = unseen;
  if (status.ok()) status = core_.pot->Restore(source, std::ref(second));
  if (status.ok() && !second.all_pinned()) status = bad;
  core_.backend->Synchronise();
  if (status.ok()) status = core_.backend->status();
  if (!status.ok()) {
    Reset();
    return status;
  }
  return Become(h, ids);
}

Status Session::CopyFrom(Session& other) {
  const SessionCore& its = other.core_;
  if (core_.model != its.model || core_.backend != its.backend || core_.plan.probe_slots != its.plan.probe_slots ||
      core_.options.policy.text != its.options.policy.text) {
    return InvalidArgument("the sessions differ in model, backend, probe or policy");
  }
  if (this == &other) return Status();
  if (other.n_excerpt() > 0) return InvalidArgument("an excerpt is in use: take it back before the session is copied");
  WEIR_RETURN_IF_ERROR(other.Settle());
  WEIR_RETURN_IF_ERROR(core_.pot->CopyFrom(*its.pot));
  core_.backend->Synchronise();
  if (Status failed = core_.backend->status(); !failed.ok()) {
    Reset();
    return failed;
  }
  std::ranges::copy(other.parts_.prediction.hidden(), parts_.prediction.hidden().begin());
  std::vector<int32_t> ids = its.memo.probe;
  ids.insert(ids.end(), its.memo.question.begin(), its.memo.question.end());
  return Become(other.HeaderNow(), ids);
}

Status Session::Become(const StateHeader& h, std::span<const int32_t> ids) {
  StreamPlace& stream = core_.stream;
  stream.n_seen = h.n_seen;
  std::ranges::copy(h.n_seen_by, stream.n_seen_by.begin());
  stream.n_selections = h.n_selections;
  stream.pos_shift = h.pos_shift;
  stream.t_newest_ms = h.t_newest_ms;
  stream.n_pinned = h.n_pinned;
  std::ranges::copy(h.gaps, stream.gaps.begin());
  core_.excerpt = {};
  core_.n_question_left = 0;
  parts_.late.Drop();
  EvidenceMemo& memo = core_.memo;
  memo.n_score_rows = h.n_score_rows;
  memo.n_unscored = h.n_unscored;
  memo.n_answer = h.n_answer;
  memo.probe.assign(ids.begin(), ids.begin() + h.n_probe);
  memo.question.assign(ids.begin() + h.n_probe, ids.end());
  parts_.prediction.Restored(h.has_last != 0);
  parts_.ahead.Restart();
  reads_.Start(h.n_since_full);
  rewind_.Forbid();
  // Recompute the logits, which were part of the saved state. If the device fails here, it has failed permanently and
  // later calls report it again.
  return h.has_last != 0 && h.has_logits != 0 ? Logits().status() : Status();
}

}  // namespace weir
