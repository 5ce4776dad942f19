// SPDX-License-Identifier: Apache-2.0
// Session: one endless stream inside one fixed pot.
//
// Append tokens at any moment, ask for the next token's logits at any moment. Before a chunk is read the session makes
// room for it: when the pot lacks slots, the policy chooses which stay and the pot is compacted. Everything the session
// will ever hold is planned first (engine/session_plan.h), reserved in its ledger when it is made, and never grows.
//
// Its parts are in engine/session/, the kinds of evidence that a policy may ask for in engine/evidence/.
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
#include "engine/session/chunk_reader.h"
#include "engine/session/core.h"
#include "engine/session/partial_reads.h"
#include "engine/session/parts.h"
#include "engine/session/rewind_mark.h"
#include "engine/session/selector.h"
#include "engine/session_plan.h"
#include "kv/store.h"
#include "kv/trace.h"
#include "model/architecture.h"
#include "policy/policy.h"

namespace weir {

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
  int64_t n_rewindable() const { return rewind_.n(); }

  // Lines of everything forgotten from now on go to `trace`, which must outlive the session or the next call.
  void SetTrace(TraceWriter* trace) { parts_.trace.SetWriter(trace); }

  const SessionPlan& plan() const { return core_.plan; }
  const PolicySpec& policy() const { return core_.options.policy; }
  SessionCounters counters() const;
  // Tokens of the stream so far, without the walk through the pot that counters() takes.
  int64_t n_seen() const { return core_.stream.n_seen; }
  // The time of the newest token; kNoTime before the first.
  static constexpr int64_t kNoTime = weir::kNoTime;
  int64_t t_newest_ms() const { return core_.stream.t_newest_ms; }
  // Slots that the last row attended to, its own included, summed over the pot's groups: all of them, or those that the
  // policy chose for it (PolicyNeeds::read_every). A window that the model itself has is not counted.
  int64_t n_slots_read() const { return core_.stream.n_slots_read; }
  const Pot& pot() const { return *core_.pot; }
  // Its limit is the plan: only what SessionOptions::beside announced fits in beside the session.
  const Ledger& ledger() const { return core_.ledger; }
  Ledger& ledger() { return core_.ledger; }
  const Model& model() const { return *core_.model; }

 private:
  friend class StepBatch;  // reads a token of several sessions in one forward pass
  struct StateHeader;      // of the saved bytes: all that is no list

  explicit Session(int64_t budget_bytes);
  Status AppendRows(const Chunk& call, const AppendOptions& options);
  // Reset() of all but the pot.
  void StartAnew();
  StateHeader HeaderNow() const;
  // Takes over what a header says; `ids` are the probe's and the question's. What the two do not tell is there already.
  Status Become(const StateHeader& header, std::span<const int32_t> ids);

  SessionCore core_;   // first: its ledger outlives every reservation below
  BufferSpace space_;  // the memory of the parts below
  SessionParts parts_;
  RewindMark rewind_;
  Selector selector_;
  PartialReads reads_;
  ChunkReader reader_;
};

}  // namespace weir
