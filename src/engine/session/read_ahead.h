// SPDX-License-Identifier: Apache-2.0
// Several tokens a step (speculative decoding: Leviathan et al. 2023; Chen et al. 2023). Guesses of what comes next are
// read in the same forward pass as a token of an answer. Their rows wait: keys and values in slots of the pot that are
// not in use, hidden states in the runner's memory, logits in memory of their own. When the next token that is appended
// is the one that was guessed, its row is taken in place of a pass; otherwise the rows are forgotten.
//
// Nothing else of a session changes. A row is computed as it would be alone (BatchItem::one_by_one), so it has the same
// bits, and it is counted, recorded and announced when it is taken, like any other. Text and draws are therefore the
// same with and without guesses, whatever the sampler.
//
// Guesses are read while the pot has free slots, so that room is made for the same tokens as without them. None are
// read where a row votes for a policy, reads only some slots or is watched, where layers keep a state, which cannot
// un-read, or where positions have three axes.
//
// Guesses come from the text (lookup.h), and where that has none from a draft model, if there is one (drafter.h). Their
// number follows from what they cost and how often they were right (guess_count.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "engine/buffer_space.h"
#include "engine/session/core.h"
#include "engine/session/drafter.h"
#include "engine/session/guess_count.h"
#include "engine/session/lookup.h"

namespace weir {

class ReadAhead {
 public:
  // Whether tokens are ever read ahead in a session like this.
  static bool Suits(const AttentionLayout& layout, const PolicyNeeds& needs) {
    return layout.n_state == 0 && !layout.has_axes() && needs.evidence.rows != EvidenceRows::kAll;
  }
  // Lays out its memory but for the draft's own, as planned; nothing where no guesses are made.
  void LayOut(int64_t n_vocab, const SessionPlan& plan, BufferSpace* space);
  // Sets the session, which must outlive the object, and makes the planned draft.
  Status Use(SessionCore* core);

  // The hidden states of a chunk, of a pass or of rows that were read ahead. REQUIRES: ChunkReader::Begin() returned
  // `item`. Errors of Runner::Forward().
  Result<const float*> Read(const Chunk& chunk, const BatchItem& item, const TensorObserver* observer);
  // After the chunk was recorded: the logits of its last row if they are known, in memory of the backend, or nullptr.
  const float* logits() const { return logits_now_; }
  // Whether the next token, if it is this one, was read already.
  bool Holds(int32_t token) const;
  // Something else reads a chunk into the pot.
  void ReadElsewhere(const Chunk& chunk);
  // Forgets what was read ahead.
  void Drop();
  // The stream is another one: what the pot holds of it is known.
  void Restart();

  bool enabled() const { return most_ > 0; }
  int64_t n_guessed() const { return n_guessed_; }  // so far
  int64_t n_taken() const { return n_taken_; }      // of those, right
  int64_t n_drafted() const { return n_drafted_; }  // by the draft
  int64_t n_drafted_taken() const { return n_drafted_taken_; }

 private:
  // The row of a chunk that was read ahead, or -1.
  int64_t RowOf(const Chunk& chunk, const BatchItem& item) const;
  // Learns what the stream has read.
  void Follow(std::span<const int32_t> tokens);
  void Follow(const Chunk& chunk);
  // What to read after the newest token, at most `most` tokens. Sets step_.
  Result<std::span<const int32_t>> FindGuess(int64_t most);
  // Reads a token together with guesses.
  Result<const float*> ReadWith(std::span<const int32_t> guess, const BatchItem& item);
  void EndStep();

  SessionCore* core_ = nullptr;
  Lookup lookup_;
  std::unique_ptr<Drafter> drafter_;  // or nullptr
  GuessCount count_;
  int64_t most_ = 0, n_vocab_ = 0;
  float* rows_logits_ = nullptr;  // [1 + most, n_vocab]
  const float* logits_now_ = nullptr;
  // The rows that wait: tokens [taken_, size) of ahead_, the stream's next ones.
  std::vector<int32_t> ahead_;
  size_t taken_ = 0;
  const float* hidden_ = nullptr;                // of the pass that read them; row 0 is the token before them
  int64_t next_seq_ = -1, at_selection_ = 0;     // what the stream must be like
  std::optional<Clock::time_point> step_began_;  // of the last pass of an answer
  GuessCount::Step step_;
  int64_t n_guessed_ = 0, n_taken_ = 0, n_drafted_ = 0, n_drafted_taken_ = 0;
};

}  // namespace weir
