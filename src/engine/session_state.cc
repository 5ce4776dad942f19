// A session as bytes: what decides everything that comes next.
#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>

#include "engine/session.h"

namespace weir {

struct Session::StateHeader {
  char magic[8];
  int64_t n_seen, n_selections, pos_shift, t_newest_ms;
  int64_t n_seen_by[kNumModalities];
  int32_t n_pinned, n_score_rows, n_unscored;
  int32_t n_embd, has_last;
  int32_t n_probe, n_question;
  int32_t n_since_full, reserved;  // no hole in the bytes
  int32_t has_logits;  // they give the next token's likelihood, in other bits than the fused projection would
};

namespace {

constexpr char kMagic[8] = {'w', 'e', 'i', 'r', 's', 't', '0', '5'};

// A stream that goes on from here counts and subtracts without leaving 64 bits.
constexpr int64_t kMaxCount = int64_t{1} << 60;

// Whether every group holds tokens of a stream of n_seen, in their order and with all that are pinned: what policies,
// positions and maps take for granted. Asked slot by slot.
class HoldsStream {
 public:
  HoldsStream(int64_t n_seen, int32_t n_pinned, int32_t n_groups, int32_t n_vocab)
      : n_seen_(n_seen), n_pinned_(n_pinned), n_vocab_(n_vocab), groups_(static_cast<size_t>(n_groups)) {}
  bool operator()(int32_t group, const SlotMeta& slot) {
    Group& g = groups_[static_cast<size_t>(group)];
    if (slot.seq <= g.last || slot.seq >= n_seen_ || slot.token_id >= n_vocab_) return false;
    if (slot.t_src_ms < -kMaxCount || slot.t_src_ms > kMaxCount) return false;
    g.last = slot.seq;
    g.n_pinned += slot.pinned;
    return true;
  }
  bool all_pinned() const {
    return std::all_of(groups_.begin(), groups_.end(), [&](const Group& g) { return g.n_pinned == n_pinned_; });
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
  return static_cast<int64_t>(sizeof(StateHeader)) + (std::ssize(probe_) + std::ssize(question_)) * 4 +
         int64_t{model_->config().n_embd} * 4 + pot_->state_bytes();
}

Status Session::Save(std::vector<uint8_t>* out) const {
  out->clear();
  out->reserve(static_cast<size_t>(state_bytes()));
  VectorSink sink(out);
  return Save(sink);
}

Session::StateHeader Session::HeaderNow() const {
  StateHeader h = {};
  std::memcpy(h.magic, kMagic, sizeof(kMagic));
  h.n_seen = n_seen_;
  std::copy(n_seen_by_.begin(), n_seen_by_.end(), h.n_seen_by);
  h.n_selections = n_selections_;
  h.pos_shift = pos_shift_;
  h.t_newest_ms = t_newest_ms_;
  h.n_since_full = n_since_full_;
  h.n_pinned = n_pinned_;
  h.n_score_rows = n_score_rows_;
  h.n_unscored = n_unscored_;
  h.n_embd = model_->config().n_embd;
  h.has_last = has_last_;
  h.has_logits = logits_fresh_;
  h.n_probe = static_cast<int32_t>(probe_.size());
  h.n_question = static_cast<int32_t>(question_.size());
  return h;
}

Status Session::Save(ByteSink& sink) const {
  backend_->Synchronise();
  const StateHeader h = HeaderNow();
  WEIR_RETURN_IF_ERROR(sink.Write(BytesOf(std::span(&h, 1))));
  WEIR_RETURN_IF_ERROR(sink.Write(BytesOf(std::span(probe_))));
  WEIR_RETURN_IF_ERROR(sink.Write(BytesOf(std::span(question_))));
  WEIR_RETURN_IF_ERROR(sink.Write({last_hidden_.data(), static_cast<size_t>(h.n_embd) * 4}));
  WEIR_RETURN_IF_ERROR(pot_->Save(sink));
  return backend_->status();  // what a failed device did not give is zero
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
  const int32_t n_slots = plan_.pot.n_slots;
  if (std::memcmp(h.magic, kMagic, sizeof(kMagic)) != 0 || h.n_embd != model_->config().n_embd || h.n_seen < 0 ||
      h.n_seen > kMaxCount || h.n_selections < 0 || h.n_selections > kMaxCount || h.pos_shift > 0 ||
      h.pos_shift < -h.n_seen || h.t_newest_ms > kMaxCount || h.n_since_full < 0 || h.n_since_full > INT32_MAX / 2 ||
      h.n_pinned < 0 || h.n_pinned > n_slots || h.n_score_rows < 0 || h.n_unscored < 0 ||
      h.n_unscored > INT32_MAX / 2 || h.n_probe < 0 || h.n_probe > plan_.probe_slots || h.n_question < 0 ||
      h.n_question > plan_.probe_slots) {
    return bad;
  }
  int64_t n_left = h.n_seen;
  for (const int64_t n : h.n_seen_by) {
    if (n < 0 || n > n_left) return bad;
    n_left -= n;
  }
  if (n_left != 0) return bad;
  std::vector<int32_t> ids(static_cast<size_t>(h.n_probe + h.n_question));
  WEIR_RETURN_IF_ERROR(source.Read(BytesOf(std::span(ids))));
  for (int32_t id : ids) {
    if (id < 0 || id >= model_->config().n_vocab) return bad;
  }
  const int64_t hidden_bytes = int64_t{h.n_embd} * 4;
  WEIR_RETURN_IF_ERROR(source.Skip(hidden_bytes));
  const HoldsStream unseen(h.n_seen, h.n_pinned, pot_->shape().n_groups(), model_->config().n_vocab);
  HoldsStream first = unseen;
  WEIR_RETURN_IF_ERROR(pot_->CheckState(source, std::ref(first)));
  if (source.n_left() != 0 || !first.all_pinned()) return bad;

  // All of it may stand. From here on only the source itself can fail; a file that says other things by now is looked
  // through again.
  backend_->Synchronise();
  source.Rewind();
  Status status = source.Skip(static_cast<int64_t>(sizeof(h)) + std::ssize(ids) * 4);
  if (status.ok()) status = source.Read({last_hidden_.data(), static_cast<size_t>(hidden_bytes)});
  HoldsStream second = unseen;
  if (status.ok()) status = pot_->Restore(source, std::ref(second));
  if (status.ok() && !second.all_pinned()) status = bad;
  backend_->Synchronise();
  if (status.ok()) status = backend_->status();
  if (!status.ok()) {
    Reset();
    return status;
  }
  return Become(h, ids);
}

Status Session::CopyFrom(const Session& other) {
  if (model_ != other.model_ || backend_ != other.backend_ || plan_.probe_slots != other.plan_.probe_slots ||
      options_.policy.text != other.options_.policy.text) {
    return InvalidArgument("the sessions differ in model, backend, probe or policy");
  }
  if (this == &other) return Status();
  WEIR_RETURN_IF_ERROR(pot_->CopyFrom(*other.pot_));
  backend_->Synchronise();
  if (Status failed = backend_->status(); !failed.ok()) {
    Reset();
    return failed;
  }
  std::memcpy(last_hidden_.data(), other.last_hidden_.data(), static_cast<size_t>(model_->config().n_embd) * 4);
  std::vector<int32_t> ids = other.probe_;
  ids.insert(ids.end(), other.question_.begin(), other.question_.end());
  return Become(other.HeaderNow(), ids);
}

Status Session::Become(const StateHeader& h, std::span<const int32_t> ids) {
  probe_.assign(ids.begin(), ids.begin() + h.n_probe);
  question_.assign(ids.begin() + h.n_probe, ids.end());
  has_last_ = h.has_last != 0;
  logits_fresh_ = false;
  n_seen_ = h.n_seen;
  std::copy(std::begin(h.n_seen_by), std::end(h.n_seen_by), n_seen_by_.begin());
  n_selections_ = h.n_selections;
  pos_shift_ = h.pos_shift;
  t_newest_ms_ = h.t_newest_ms;
  n_since_full_ = h.n_since_full;
  reads_fresh_ = false;
  n_pinned_ = h.n_pinned;
  n_score_rows_ = h.n_score_rows;
  n_unscored_ = h.n_unscored;
  ForbidRewind();
  // Part of what was saved, made again. Should a device fail at that, it has failed for good, and says so again.
  return has_last_ && h.has_logits != 0 ? Logits().status() : Status();
}

}  // namespace weir
