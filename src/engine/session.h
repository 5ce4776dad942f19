// SPDX-License-Identifier: Apache-2.0
// Session: one endless stream inside one fixed pot.
//
// Tokens can be appended, and the next token's logits read, at any time. Before it reads a chunk, the session makes
// room for it: if the pot lacks free slots, the policy chooses which slots to keep and the pot is compacted. All memory
// the session will ever hold is planned first (engine/session_plan.h), reserved in its ledger at construction, and
// never grows.
//
// Its parts are in engine/session/; the kinds of evidence that a policy may request are in engine/evidence/.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/bytes.h"
#include "base/ledger.h"
#include "engine/buffer_space.h"
#include "engine/session/aside.h"
#include "engine/session/chunk_reader.h"
#include "engine/session/core.h"
#include "engine/session/partial_reads.h"
#include "engine/session/parts.h"
#include "engine/session/rewind_mark.h"
#include "engine/session/slot_selector.h"
#include "engine/session_plan.h"
#include "kv/held.h"
#include "kv/store.h"
#include "kv/trace.h"
#include "model/architecture.h"
#include "policy/policy.h"

namespace weir {

struct TokenCounters {
  int64_t seen = 0;     // tokens read or generated so far
  int64_t kept = 0;     // of these, in the pot now (in at least one layer and head)
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
    bool pinned = false;     // these tokens survive every selection
    bool generated = false;  // tokens the model generated: part of an answer, not of a prompt
    // Something of the stream that was forgotten, read again for one answer. It takes the slots that
    // SessionOptions::excerpt_slots keeps free, so nothing is forgotten for it, stays until TakeBackExcerpt(), and is
    // not announced to the listener. kOverBudget if it does not fit; nothing is read then.
    bool excerpt = false;
    bool end_of_prompt = false;  // the last of these tokens ends a prompt, where some policies compress; without
                                 // tokens, the last token read ends it
    int64_t t_src_ms = 0;        // stream time never runs backwards: at least t_newest_ms()
    int32_t columns = 1;         // of a picture: rows per line; its rows are in line order
    bool of_picture = false;     // tokens: words that a model's family puts around a picture's rows
    VideoPlace video;            // of a frame that continues a video
    float* nll = nullptr;        // [tokens.size()] or nullptr: receives -log P of each token when it was read;
                                 // 0 for the first token of the stream
    const std::atomic<bool>* stop = nullptr;       // checked between chunks: kCancelled, chunks already read stay read
    std::function<void(int64_t n_done)> progress;  // called after each chunk with the tokens of this call read so far
    const TensorObserver* observer = nullptr;
    // Called on this thread before each layer's attention while tokens are read, without an observer and on a backend
    // of the host: so that others need not wait for a long chunk. It may use other sessions of the model, not this one,
    // and not throw.
    const std::function<void()>* between = nullptr;
  };
  // Reads tokens. kOverBudget if the pot is full and may not shrink (policy `full`, OnOverflow::kError, everything
  // pinned); tokens before the offending chunk stay read.
  Status Append(std::span<const int32_t> tokens, const AppendOptions& options);
  Status Append(std::span<const int32_t> tokens) { return Append(tokens, AppendOptions()); }

  // Reads rows in place of token embeddings: an encoder's rows of a picture or frame, [n, n_embd]. They take slots and
  // are forgotten and pinned like tokens; their token_id is VisualId() of options.columns and the steps of
  // options.video. Nothing predicts them: policies see 0 as
  // their -log P (+inf for the first of a stream). Returns the errors of Append(), and kInvalidArgument if the size is
  // not a multiple of n_embd, a value is not finite, or options.nll is set. One call is one picture or frame:
  // SlotMeta::row counts from 0; at most 65,536 rows.
  Status AppendEmbeddings(std::span<const float> rows, Modality modality, const AppendOptions& options);

  // Begins a round: the caller is about to append `question` (in any number of calls), and up to n_answer tokens will
  // follow. If the pot allows, room is made for all of it at once; a policy may rank by the question's attention
  // (PolicyNeeds::question_rows); stored likelihoods age (nll_decay). Optional: without it, room is made when needed.
  // n_read: number of question tokens that the session has already read as its newest (Rewind() kept them); negative:
  // so many tokens of the turn come before the question, which count as its own.
  Status BeginRound(std::span<const int32_t> question, int64_t n_answer, int64_t n_read = 0);
  // The rest of the question will not come: what is appended next is not part of it. The answer's first token and an
  // Append() that fails while it reads say the same; one that was stopped does not, for it may be gone on with.
  void CancelQuestion() { core_.n_question_left = 0; }
  // Excerpts that were taken back most recently, oldest first; unused ones come first and are empty.
  std::span<const SeqRange> gaps() const { return core_.stream.gaps; }

  // Puts rows that were read before back as an excerpt, with the keys and values they had then, un-rotated. They take
  // the next slots of every group, so their positions are new. `write` fills the slots of one layer and KV head,
  // rows.size() slots of keys and of values in the pot's types. Logits remain those of the last row that was read. Of a
  // row, only token_id, modality and `row` are used. kUnsupported where the pot keeps rotated keys, is not in the
  // host's memory, positions have three axes, or layers keep a state or the newest rows alone; otherwise the errors of
  // AppendOptions::excerpt.
  using WriteSlots = std::function<void(int32_t layer, int32_t head, uint8_t* keys, uint8_t* values)>;
  Status PutExcerpt(std::span<const SlotMeta> rows, const WriteSlots& write);
  // Removes the excerpts that the pot holds, and only those: what was read after them stays and takes their slots.
  // Their seqs remain gaps in the stream. A recurrent state that has read them keeps what it
  // has read, unless nothing was read after them.
  Status TakeBackExcerpt();
  int32_t n_excerpt() const { return static_cast<int32_t>(core_.excerpt.end - core_.excerpt.begin); }
  // Learns of everything read from now on; must outlive the session or the next call. nullptr: nothing does.
  void SetListener(StreamListener* listener) { core_.listener = listener; }

  // Replaces the probe from now on. kInvalidArgument if it is longer than SessionOptions::max_probe.
  Status SetProbe(std::span<const int32_t> tokens);

  // Saves and restores all state that affects later output: pot, statistics, positions, counters, last hidden state and
  // probe, state_bytes() bytes in all. A session of the same model, backend and options that restores them continues
  // with identical output. Neither function allocates memory of the pot's size: the bytes are streamed, or stay in the
  // caller's memory. Save() into a vector replaces *out. Errors come from the sink or the device. Restore() reads its
  // source twice from the first byte. kInvalidArgument if the bytes do not come from such a session, which is then
  // unchanged. If the source fails during the second pass, the session is as new.
  // An excerpt cannot be saved: kInvalidArgument until it was taken back. If a prompt has not ended, none of its rows
  // is left behind by FastV and similar policies: neither here nor in the session that continues.
  int64_t state_bytes() const;
  Status Save(ByteSink& sink);
  Status Save(std::vector<uint8_t>* out);
  Status Restore(ByteSource& source);
  Status Restore(std::span<const uint8_t> bytes);
  // Copies the state of another session directly. kInvalidArgument if it has another model, backend, pot or policy;
  // this session is then unchanged. After a device error the session is as new.
  Status CopyFrom(Session& other);

  // Asks aside: for every tail in turn, reads `head` and the tail on top of what the session holds, calls each(index of
  // the tail, logits of the token after it, [n_vocab], valid during the call) and removes them again. The stream has no
  // trace of it (engine/session/aside.h). The head is read once for all tails, unless layers keep a state; a tail's
  // logits do not depend on the other tails. kInvalidArgument if a head and tail have more tokens than
  // SessionOptions::aside_slots or than a window in slots of its own sees, for an empty tail, and while the session
  // holds an excerpt; kCancelled when `*stop` became true between two tails; otherwise errors of Append().
  Status AskAside(std::span<const int32_t> head, std::span<const std::vector<int32_t>> tails, const Aside::Each& each,
                  const std::atomic<bool>* stop = nullptr);

  // Logits for the token after the last one read, [n_vocab]. kInvalidArgument before the first token.
  Result<std::span<float>> Logits();
  // Returns only the largest logits and their ids, in the order of ops/top_logits.h, as many as `ids` and `values`
  // hold. If the logits are on a device, only these are copied to the host. Returns the errors of Logits(), and
  // kInvalidArgument if the two spans differ in size, are empty, or are larger than kMaxTopLogits or the vocabulary.
  Status MostLikely(std::span<int32_t> ids, std::span<float> values);

  // Forgets everything, including counters: the session is as new. Its memory stays reserved.
  void Reset();

  // For a prompt that shares a prefix with the tokens already read: how many tokens Rewind() may keep so that reading
  // the rest gives the same bytes as reading the whole prompt. n_same: length of the common prefix, with the same
  // tokens pinned. n_call: tokens of the prompt up to the end of the Append() that reads the rest. The result is less
  // than n_same and is the end of a chunk that the prompt would also be read in. It is 0 if anything was forgotten,
  // restored or copied, if the policy sums the attention of all rows, and for sessions with SessionOptions::nll.
  // REQUIRES: the prompt's pinned tokens come first, in the calls that read them here, and one call reads everything
  // after them up to n_call.
  int64_t RewindPoint(int64_t n_same, int64_t n_call) const;
  // Keeps the first n tokens as if no others had been read. 0: like Reset(). REQUIRES: n is 0 or the value of
  // RewindPoint(), and the token that followed is read again before logits are requested or anything is saved.
  void Rewind(int64_t n);
  // Upper bound of every RewindPoint().
  int64_t n_rewindable() const { return rewind_.n(); }

  // Writes everything forgotten from now on to `trace`, which must outlive the session or the next call to SetTrace().
  void SetTrace(TraceWriter* trace) { parts_.trace.SetWriter(trace); }

  const SessionPlan& plan() const { return core_.plan; }
  const PolicySpec& policy() const { return core_.options.policy; }
  SessionCounters counters() const;
  // What the pot holds of the stream. Walks through the pot.
  Held held() const;
  // Tokens that were guessed and read in advance so far (SessionOptions::max_guesses), and how many of them came.
  int64_t n_guessed() const { return parts_.ahead.n_guessed(); }
  int64_t n_guessed_right() const { return parts_.ahead.n_taken(); }
  // Of these, those of the draft model.
  int64_t n_drafted() const { return parts_.ahead.n_drafted(); }
  int64_t n_drafted_right() const { return parts_.ahead.n_drafted_taken(); }
  // Tokens of the stream so far. Cheaper than counters(), which walks through the pot.
  int64_t n_seen() const { return core_.stream.n_seen; }
  // The time of the newest token; kNoTime before the first.
  static constexpr int64_t kNoTime = weir::kNoTime;
  int64_t t_newest_ms() const { return core_.stream.t_newest_ms; }
  // Slots that the last row attended to, including its own, summed over the pot's groups: all of them, or those that
  // the policy chose for it (PolicyNeeds::read_every). The model's own attention window is not taken into account.
  int64_t n_slots_read() const { return core_.stream.n_slots_read; }
  const Pot& pot() const { return *core_.pot; }
  // Its limit is the plan: the only additional room is what SessionOptions::beside declared.
  const Ledger& ledger() const { return core_.ledger; }
  Ledger& ledger() { return core_.ledger; }
  const Model& model() const { return *core_.model; }

 private:
  friend class StepBatch;  // reads a token of several sessions in one forward pass
  struct StateHeader;      // the fixed-size part of the saved bytes

  explicit Session(int64_t budget_bytes);
  Status AppendRows(const Chunk& call, const AppendOptions& options);
  // An excerpt grows by n rows that are about to come.
  Status GrowExcerpt(int64_t n);
  Status ReadRows(const Chunk& call, const AppendOptions& options);
  // Lets rows that wait for their prompt's end go on. Call before anything reads what the pot or the last row holds.
  Status Settle() { return parts_.late.Finish(false); }
  // Reads a call's chunks; those that wait are not settled.
  Status ReadChunks(const Chunk& call, const AppendOptions& options, bool late, const AttentionWatch** watch);
  // Resets everything except the pot.
  void StartAnew();
  StateHeader HeaderNow() const;
  // Restores the state in a header; `ids` are those of the probe and the question. The caller has restored the rest.
  Status Become(const StateHeader& header, std::span<const int32_t> ids);

  SessionCore core_;   // first: its ledger outlives every reservation below
  BufferSpace space_;  // the memory of the parts below
  SessionParts parts_;
  RewindMark rewind_;
  SlotSelector selector_;
  PartialReads reads_;
  ChunkReader reader_;
};

}  // namespace weir
