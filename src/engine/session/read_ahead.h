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
// number follows from what they cost and how often they were right, measured as the stream goes: a text that does not
// repeat itself, or a draft that guesses badly, loses at most a few steps, and then 1 % of the time. What a draft takes
// to read a prompt is not part of that.
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
#include "engine/session/lookup.h"

namespace weir {

// How many guesses to read: as many as are expected to save time.
class GuessCount {
 public:
  // For guesses from the text after n_same equal tokens, at most `most`.
  int64_t Best(int n_same, Lookup::Votes votes, int64_t most) const;
  // For those of a draft, before it makes them.
  int64_t BestDraft(int64_t most);

  // A step that began with a pass of 1 + n_guessed rows and delivered 1 + n_right tokens.
  struct Step {
    double seconds = 0;        // all of it
    double draft_seconds = 0;  // of these, the draft's
    int n_same = 0;            // equal tokens before the guesses; kDraft: they are a draft's
    Lookup::Votes votes = Lookup::Votes::kOne;
    int64_t n_guessed = 0, n_right = 0;
  };
  static constexpr int kDraft = Lookup::kMostSame + 1;
  void Took(Step step);

 private:
  static constexpr double kNew = 0.1;  // weight of a new measurement
  bool may_lose() const { return one_ > 0 && lost_ <= 0.01 * total_ + 4 * one_; }
  // The best number where a guess is right with this probability and costs that share of a step of one row.
  static int64_t BestOf(double right, double cost, int64_t most);

  double one_ = 0;               // seconds of a step of one row; 0: not known yet
  double more_ = 0.15;           // what each further row costs, as a share of that
  double draft_ = 0.15;          // what the draft takes for a guess, as well
  double draft_gain_ = 0.5;      // steps of one row that an attempt of the draft saves
  double total_ = 0, lost_ = 0;  // seconds of all steps; of them, in vain
  // By n_same and votes: a guess is right.
  double right_[kDraft + 1][3] = {{0, 0, 0},          {0.3, 0.4, 0.2}, {0.4, 0.5, 0.3},    {0.5, 0.6, 0.4},
                                  {0.6, 0.7, 0.5},    {0.7, 0.8, 0.6}, {0.75, 0.85, 0.65}, {0.8, 0.9, 0.7},
                                  {0.85, 0.95, 0.75}, {0.8, 0.8, 0.8}};
};

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
