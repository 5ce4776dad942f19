// Session: one endless stream inside one fixed pot.
//
// Append tokens at any moment, ask for the next token's logits at any moment. Before a chunk is read the session makes
// room for it: when the pot lacks slots, the policy chooses who stays and the pot is compacted. Everything the session
// will ever hold is planned first (PlanSession, what `weir plan` prints), reserved in its ledger when it is made, and
// never grows.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/bytes.h"
#include "base/ledger.h"
#include "engine/runner.h"
#include "kv/store.h"
#include "kv/trace.h"
#include "model/architecture.h"
#include "policy/policy.h"

namespace weir {

enum class OnOverflow { kEvict, kError };

// One line of the plan.
struct PlanItem {
  MemTag tag;
  std::string what;
  int64_t bytes;
};

struct SessionOptions {
  PolicySpec policy;
  int32_t pot_slots = 0;     // |M|; 0: as many as budget_bytes holds, at most the trained context; without a
                             // budget the trained context, at most 4096
  int64_t budget_bytes = 0;  // 0: no limit but the pot
  int32_t chunk_rows = 0;    // rows read at once; 0: 256, or a quarter of a pot that evicts. At most half of a pot that
                             // evicts: a chunk must not turn the whole pot over
  DType k_type = DType::kF16, v_type = DType::kF16;
  OnOverflow on_overflow = OnOverflow::kEvict;
  bool nll = false;  // Append() will be asked for likelihoods
  // Tokens of the policy's probe (chat/probe.h makes them); max_probe slots are kept free for it, 0: probe.size().
  std::vector<int32_t> probe;
  int32_t max_probe = 0;
  // A trace may ask where attention goes (TraceInfo::attention_rows). Costs a float for each slot and layer.
  bool watch_attention = false;
  // What the session's owner will reserve in its ledger beside it: part of the plan and of the budget.
  std::vector<PlanItem> beside;
};

// The whole ledger of a session, before a byte is allocated.
struct SessionPlan {
  PotShape pot;
  int32_t chunk_rows = 0;
  int32_t probe_slots = 0;  // of the pot, kept free for a probe
  RunnerShape runner;
  int64_t bookkeeping_bytes = 0;                         // of the session's own vectors, part of the items
  int64_t novelty_bytes = 0, novelty_scratch_bytes = 0;  // Evidence::recent_frames, part of the items
  int64_t visual_bytes = 0;                              // Evidence::visual_vector, part of the items
  int64_t watch_bytes = 0;                               // SessionOptions::watch_attention, an item
  std::vector<PlanItem> items;
  int64_t total_bytes = 0;
  int64_t minimum_bytes = 0;  // smallest budget this policy, model and KV type can work with
};

// kOverBudget when budget_bytes is too small: the message names the smallest budget that works, or, when the pot was
// asked for, the largest pot that fits. kInvalidArgument when the pot is smaller than the policy needs, or when
// attention is to be watched under a policy that decides for each head.
Result<SessionPlan> PlanSession(const Model& model, const Backend& backend, const SessionOptions& options);

struct TokenCounters {
  int64_t seen = 0;     // tokens read or generated so far
  int64_t kept = 0;     // of them, in the pot now (in at least one layer and head)
  int64_t dropped = 0;  // seen - kept
};
struct SessionCounters : TokenCounters {
  std::array<TokenCounters, kNumModalities> by{};  // by Modality
  int64_t selections = 0;                          // times the pot had to shrink
};

class Session {
 public:
  static Result<std::unique_ptr<Session>> Make(Model& model, Backend& backend, const SessionOptions& options);

  struct AppendOptions {
    bool pinned = false;         // these tokens survive every selection
    bool generated = false;      // tokens the model chose: part of an answer, not of a prompt
    bool end_of_prompt = false;  // the last of these tokens ends a prompt: policies that compress there do; without
                                 // tokens, the last one that was read does
    int64_t t_src_ms = 0;        // a stream's clock never runs back: t_newest_ms() at least
    int32_t columns = 1;         // of a picture: its rows stand line by line, so many a line
    float* nll = nullptr;        // [tokens.size()] or nullptr: -log P of each token when it was read;
                                 // 0 for the first token of the stream
    const std::atomic<bool>* stop = nullptr;       // checked between chunks: kCancelled, all read chunks stay read
    std::function<void(int64_t n_done)> progress;  // after each chunk, tokens of this call read so far
    const TensorObserver* observer = nullptr;
  };
  // Reads tokens. kOverBudget when the pot is full and may not shrink (policy `full`, OnOverflow::kError, everything
  // pinned); tokens before the offending chunk stay read.
  Status Append(std::span<const int32_t> tokens, const AppendOptions& options);
  Status Append(std::span<const int32_t> tokens) { return Append(tokens, AppendOptions()); }

  // Reads rows that stand in place of token embeddings: an encoder's rows of a picture or frame, [n, n_embd]. They take
  // slots, are forgotten and pinned like any token; their token_id is -options.columns. Nothing predicts them: as the
  // statistic of a policy their -log P is 0 (+inf for the first of a stream). Errors as Append(); kInvalidArgument when
  // the size is not a multiple of n_embd, when a value is not finite, or when options.nll is asked for. One call is one
  // picture or frame: SlotMeta::row counts from 0; at most 65,536 rows.
  Status AppendEmbeddings(std::span<const float> rows, Modality modality, const AppendOptions& options);

  // A round begins: `question` is about to be appended (by the caller, in any number of calls) and up to n_answer
  // tokens will follow. Room is made for all of it at once where the pot allows; a policy may rank by the question's
  // attention (PolicyNeeds::question_rows); stored likelihoods age (nll_decay). Optional: without it, room is made when
  // it is needed. n_read: so many of the question's tokens are the session's newest already (Rewind() kept them).
  Status BeginRound(std::span<const int32_t> question, int64_t n_answer, int64_t n_read = 0);

  // Replaces the probe from now on. kInvalidArgument when it is longer than SessionOptions::max_probe.
  Status SetProbe(std::span<const int32_t> tokens);

  // Everything that decides what comes next: pot, statistics, positions, counters, last hidden state, probe; as bytes,
  // state_bytes() of them, and back. A session of the same model, backend and options that restores them continues with
  // the same bytes. Neither way takes memory of the pot's size: bytes pass through, or lie where the caller has them.
  // Save() into a vector replaces *out. Errors of the sink, or the device's.
  // Restore() reads its source twice, from its first byte; kInvalidArgument when the bytes are not from such a session,
  // which then is as it was. A source that fails the second time leaves the session as new.
  int64_t state_bytes() const;
  Status Save(ByteSink& sink) const;
  Status Save(std::vector<uint8_t>* out) const;
  Status Restore(ByteSource& source);
  Status Restore(std::span<const uint8_t> bytes);
  // The same at once, from a session that is there. kInvalidArgument when it is of another model, backend, pot or
  // policy; nothing changes then. The device's error leaves the session as new.
  Status CopyFrom(const Session& other);

  // Logits for the token after the last one read, [n_vocab]. kInvalidArgument before the first token.
  Result<std::span<float>> Logits();
  // Of these, the largest: all that comes to the host, where they are a device's. As many as `ids` and `values` have
  // room for, in the order of ops/top_logits.h. Errors as Logits(); kInvalidArgument when the two have not the same
  // size, none, more than kMaxTopLogits or more than the vocabulary.
  Status MostLikely(std::span<int32_t> ids, std::span<float> values);

  // Forgets everything, counters included: the session is as new. The memory stays.
  void Reset();

  // For a prompt that begins like what was read: how many tokens Rewind() may keep so that reading on gives the bytes
  // of reading it all. n_same: tokens that both begin with, pinned alike. n_call: tokens of the prompt up to the end of
  // the Append() that reads on. What it says is less than n_same, and the end of a chunk that the prompt would come in
  // too; 0 when anything was forgotten, restored or copied, where the policy sums what all rows attended to, and for
  // sessions with SessionOptions::nll. REQUIRES: of the prompt, pinned tokens come first, in the calls that read them
  // here, and one call reads all that follows them up to n_call.
  int64_t RewindPoint(int64_t n_same, int64_t n_call) const;
  // Keeps the first n tokens, as if no other had been read. 0: as Reset(). REQUIRES: n is 0 or what RewindPoint() says,
  // and the token that came next is the next one that is read, before logits are asked for or anything is saved.
  void Rewind(int64_t n);
  // No RewindPoint() is beyond it.
  int64_t n_rewindable() const { return n_rewindable_; }

  // Lines of everything forgotten from now on go to `trace`, which must outlive the session or the next call.
  void SetTrace(TraceWriter* trace) { trace_ = trace; }

  const SessionPlan& plan() const { return plan_; }
  const PolicySpec& policy() const { return options_.policy; }
  SessionCounters counters() const;
  // Tokens of the stream so far, without the walk through the pot that counters() takes.
  int64_t n_seen() const { return n_seen_; }
  // The time of the newest token; kNoTime before the first.
  static constexpr int64_t kNoTime = std::numeric_limits<int64_t>::min();
  int64_t t_newest_ms() const { return t_newest_ms_; }
  // Slots that the last row attended to, its own included, summed over the pot's groups: all of them, or those that the
  // policy chose for it (PolicyNeeds::read_every). A window that the model itself has is not counted.
  int64_t n_slots_read() const { return n_slots_read_; }
  const Pot& pot() const { return *pot_; }
  // Its limit is the plan: only what SessionOptions::beside announced fits in beside the session.
  const Ledger& ledger() const { return ledger_; }
  Ledger& ledger() { return ledger_; }
  const Model& model() const { return *model_; }

 private:
  struct StateHeader;  // of the bytes: all that is no list
  StateHeader HeaderNow() const;
  // Takes over what a header says; `ids` are the probe's and the question's. What the two do not tell is there already.
  Status Become(const StateHeader& header, std::span<const int32_t> ids);
  // Reset() of all but the pot.
  void StartAnew();
  // What was read is no longer what another reader of the same prompt would hold.
  void ForbidRewind();
  friend class StepBatch;  // reads a token of several sessions in one forward pass
  explicit Session(int64_t budget_bytes) : ledger_(budget_bytes) {}
  // The pot's slots without those kept free for a probe.
  int32_t n_slots() const { return plan_.pot.n_slots - plan_.probe_slots; }
  int32_t n_free() const { return pot_->n_free() - plan_.probe_slots; }
  Status MakeRoom(int32_t n_coming);
  // One selection: the probe votes where the policy wants it to, n_keep slots stay (on average over the groups).
  Status Shrink(int32_t n_keep, const char* reason);
  // One selection at the end of a prompt, by the policy's own measure of how much stays.
  Status TrimPrompt();
  // What the policy sees of every group, in views_.
  void FillViews();
  // Keeps keeps_ of every group: trace, storage, counters. At most `most` slots of a group have no score then.
  Status KeepOnly(int32_t most, const char* reason);
  // Lines of where the newest row attended, if the trace wants them.
  Status TraceAttention();
  // Whether the next row, a token of an answer, reads all slots; if not, reads_ holds what it reads.
  bool ReadsAll();
  Status ReadProbe(std::span<const int32_t> probe);
  VectorScoresArgs VectorScoresOf(VectorScore what, int32_t layer, int32_t head, float* out);
  void TakeVectorScores();
  void TakeVisualScores();
  void TakeNovelty();
  // What is read: tokens, or embeddings in their place.
  struct Rows {
    int64_t n = 0;
    const int32_t* tokens = nullptr;    // [n]
    const float* embeddings = nullptr;  // [n, n_embd]
    Modality modality = Modality::kText;
    int64_t first = 0;  // place of the first row in its picture or frame
    int64_t n_all = 0;  // rows of the whole picture or frame
  };
  Status AppendRows(const Rows& rows, const AppendOptions& options);
  Status CheckTokens(std::span<const int32_t> tokens) const;
  // How many of the n_left rows that come are read next, at least one; room is made for them.
  Result<int32_t> MakeRoomForChunk(int64_t n_left);
  // Reads one chunk that fits: what goes into a forward pass, and what is learnt from it. n_after: rows of this call
  // that come after it. What BeginChunk() gives refers to the session and is good until the next call.
  BatchItem BeginChunk(const Rows& rows, const AppendOptions& options, int64_t n_after);
  void EndChunk(const Rows& rows, const AppendOptions& options, const BatchItem& item, const float* hidden, float* nll);
  // Of a chunk that was read and is not counted yet: what RewindPoint() relies on.
  void NoteChunk(const Rows& rows, const AppendOptions& options, const BatchItem& item);
  void Likelihoods(std::span<const int32_t> tokens, const float* hidden, float* nll);
  // Computes the logits, unless they are there.
  Status MakeLogits();
  // The logits of a batch's row in the place of those that MakeLogits() would compute.
  void TakeLogits(const float* logits);
  // Where the host reads logits_, once it is the newest.
  float* HostLogits();
  int64_t n_seen_visual() const { return n_seen_ - n_seen_by_[static_cast<size_t>(Modality::kText)]; }
  // Rows of the next chunk: pinned tokens leave less room for it. 0 when they leave none.
  int32_t NextChunkRows(int64_t n_left) const;

  Ledger ledger_;  // first: outlives every reservation below
  Model* model_ = nullptr;
  Backend* backend_ = nullptr;
  SessionOptions options_;
  SessionPlan plan_;
  std::unique_ptr<Policy> policy_;
  PolicyNeeds needs_;
  std::unique_ptr<Pot> pot_;
  std::unique_ptr<Runner> runner_;
  Buffer logits_;       // [n_vocab]
  Buffer host_logits_;  // a copy for who wants all of them, where they are a device's
  Buffer last_hidden_;  // [n_embd] of the last token read
  Buffer watched_;      // SessionOptions::watch_attention: floats of all slots, layer after layer
  AttentionWatch watch_;
  // Where the policy asked for them: floats of all slots, group after group.
  Buffer novelty_, novelty_scratch_, visual_;
  bool has_last_ = false, logits_fresh_ = false, host_logits_fresh_ = false;
  int64_t n_seen_ = 0, n_selections_ = 0, n_slots_read_ = 0;
  int64_t t_newest_ms_ = kNoTime;
  std::array<int64_t, kNumModalities> n_seen_by_{};
  int32_t n_pinned_ = 0;                       // slots that every group must keep
  int32_t n_score_rows_ = 0, n_unscored_ = 0;  // SlotView
  int64_t pos_shift_ = 0;                      // BatchSegment::pos_shift of the next row
  bool plain_ = true;         // all chunks so far are those that any prompt of the same tokens is read in
  int64_t n_rewindable_ = 0;  // where the last chunk began that has only such chunks before it
  // Of the next token, where the row that predicts it is not there: nothing was read yet, or it was taken back.
  float next_nll_ = std::numeric_limits<float>::infinity();
  int32_t n_since_full_ = 0;       // tokens of the answer since one read all slots (PolicyNeeds::read_every)
  std::vector<int32_t> probe_;     // the policy's
  std::vector<int32_t> question_;  // last rows of the round's question: the probe while they are not empty
  TraceWriter* trace_ = nullptr;
  Reservation bookkeeping_;  // of the vectors below, which never grow beyond it
  std::vector<SlotMeta> chunk_;
  EvidenceCall evidence_;  // of the chunk
  std::vector<int32_t> targets_;
  std::vector<float> nll_;
  std::vector<SlotView> views_;  // [n_groups]
  std::vector<KeepSet> keeps_;   // [n_groups]
  std::vector<KeepSet> reads_;   // [n_groups] where steps read a part of the slots
  bool reads_fresh_ = false;     // reads_ is what the last such step read
  Buffer latest_;                // Evidence::visual_latest: a float for each slot of the largest head
};

}  // namespace weir
