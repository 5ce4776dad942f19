// A session as bytes: what decides everything that comes next.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "engine/session.h"

namespace weir {
namespace {

struct StateHeader {
  char magic[8];
  int64_t n_seen, n_selections, pos_shift, t_newest_ms;
  int64_t n_seen_by[kNumModalities];
  int32_t n_pinned, n_score_rows, n_unscored;
  int32_t n_embd, has_last;
  int32_t n_probe, n_question;
  int32_t n_since_full, reserved;  // no hole in the bytes
  int32_t has_logits;  // they give the next token's likelihood, in other bits than the fused projection would
};
constexpr char kMagic[8] = {'w', 'e', 'i', 'r', 's', 't', '0', '5'};

// A stream that goes on from here counts and subtracts without leaving 64 bits.
constexpr int64_t kMaxCount = int64_t{1} << 60;

// Whether every group holds tokens of a stream of n_seen, in their order and with all that are pinned: what policies,
// positions and maps take for granted.
bool HoldsStream(const Pot& pot, int64_t n_seen, int32_t n_pinned, int32_t n_vocab) {
  for (int32_t group = 0; group < pot.shape().n_groups(); ++group) {
    int64_t last = -1;
    int32_t pinned = 0;
    for (const SlotMeta& slot : pot.meta(group)) {
      if (slot.seq <= last || slot.seq >= n_seen || slot.token_id >= n_vocab) return false;
      if (slot.t_src_ms < -kMaxCount || slot.t_src_ms > kMaxCount) return false;
      last = slot.seq;
      pinned += slot.pinned;
    }
    if (pinned != n_pinned) return false;
  }
  return true;
}

void AppendBytes(const void* data, int64_t n, std::vector<uint8_t>* out) {
  const uint8_t* bytes = static_cast<const uint8_t*>(data);
  out->insert(out->end(), bytes, bytes + n);
}

}  // namespace

Status Session::Save(std::vector<uint8_t>* out) const {
  out->clear();
  backend_->Synchronise();
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
  AppendBytes(&h, sizeof(h), out);
  AppendBytes(probe_.data(), std::ssize(probe_) * 4, out);
  AppendBytes(question_.data(), std::ssize(question_) * 4, out);
  AppendBytes(last_hidden_.data(), static_cast<int64_t>(h.n_embd) * 4, out);
  pot_->Save(out);
  return backend_->status();  // what a failed device did not give is zero
}

Status Session::Restore(std::span<const uint8_t> bytes) {
  const Status bad = InvalidArgument("these bytes are not a saved session of this model, policy and pot");
  StateHeader h;
  if (bytes.size() < sizeof(h)) return bad;
  std::memcpy(&h, bytes.data(), sizeof(h));
  bytes = bytes.subspan(sizeof(h));
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
  const int64_t ids_bytes = (static_cast<int64_t>(h.n_probe) + h.n_question) * 4, hidden_bytes = int64_t{h.n_embd} * 4;
  if (std::ssize(bytes) < ids_bytes + hidden_bytes) return bad;
  std::vector<int32_t> ids(static_cast<size_t>(h.n_probe + h.n_question));
  std::memcpy(ids.data(), bytes.data(), static_cast<size_t>(ids_bytes));
  for (int32_t id : ids) {
    if (id < 0 || id >= model_->config().n_vocab) return bad;
  }
  const uint8_t* hidden = bytes.data() + ids_bytes;
  bytes = bytes.subspan(static_cast<size_t>(ids_bytes + hidden_bytes));
  backend_->Synchronise();
  // The pot's bytes are checked while they are read; what was in it is kept to return to.
  std::vector<uint8_t> before;
  pot_->Save(&before);
  Status restored = pot_->Restore(&bytes);
  if (restored.ok() && (!bytes.empty() || !HoldsStream(*pot_, h.n_seen, h.n_pinned, model_->config().n_vocab))) {
    restored = bad;
  }
  if (!restored.ok()) {
    std::span<const uint8_t> old = before;
    WEIR_RETURN_IF_ERROR(pot_->Restore(&old));
    return restored;
  }
  std::memcpy(last_hidden_.data(), hidden, static_cast<size_t>(hidden_bytes));
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
  // Part of what was saved, made again. Should a device fail at that, it has failed for good, and says so again.
  return has_last_ && h.has_logits != 0 ? Logits().status() : Status();
}

}  // namespace weir
