// SPDX-License-Identifier: Apache-2.0
// The job of one question and its answer: reads a prompt, then generates token by token until a stop condition is met.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "chat/answerer.h"
#include "chat/recalled_frames.h"
#include "chat/score.h"
#include "engine/step_batch.h"
#include "recall/recaller.h"
#include "serve/held_map.h"
#include "serve/session_job.h"
#include "text/answer_reader.h"
#include "text/sampler.h"

namespace weir {

// The job itself sets AnswerOptions::read_last and t_src_ms.
struct AnswerRequest : AnswerOptions {
  SamplerOptions sampler;
  bool cache_prompt = true;   // reuse the prompt's prefix that an answer pot holds
  bool score_prompt = false;  // likelihoods of the prompt's tokens too
  // The prompt for an answer pot, and the pictures of its visual parts; a stream session uses `question` instead.
  std::vector<PromptPart> prompt;
  std::vector<VisualInput> visuals;
  std::string question;
  std::optional<ReadingOptions> reading;  // the answer is taken apart; nullopt: it is a text
};

struct AnswerSummary {
  bool ended = false;      // by an end token, a stop string or its one call; otherwise because of its length
  bool stop_text = false;  // by a stop string
  bool cancelled = false;
  int64_t n_prompt = 0, n_answer = 0;
  int64_t n_cached = 0;                        // of the prompt, not read again
  int64_t n_guessed = 0, n_guessed_right = 0;  // of the answer: Session::n_guessed()
  SessionCounters tokens;                      // of the session
  int64_t n_pinned = 0;                        // of those it keeps
  std::array<HeldSpan, kNumModalities> held{};
  std::optional<Recalled> recalled;    // nullopt: a session without recall
  Status recall_failed;                // why it could not be searched
  int64_t t_ms = 0;                    // the stream time at which it was asked
  std::optional<int64_t> rows_pruned;  // of the session's pictures; nullopt without a pruner
  double first_token_ms = 0;           // since the job was created; 0 without a token
  double prompt_ms = 0;                // from the job's start to its first token, or to its end without one
  double answer_ms = 0;                // from there to its end
  int n_calls = 0;                     // of tools, in the answer
};

// One step's result. Text is whole characters; if the request wants the answer taken apart, it is the content alone,
// which the parts hold, too. `tokens` are those sampled (or read, with score_prompt) since the last event.
struct AnswerEvent {
  std::string text;
  std::vector<ScoredToken> tokens;
  int64_t n_prompt = 0, n_cached = 0;   // AnswerSummary's, known from the first event on
  int64_t n_answer = 0;                 // tokens so far
  double prompt_ms = 0, answer_ms = 0;  // so far
  bool last = false;
  Status status;          // of the last event: why there is no (whole) answer
  bool overflow = false;  // the prompt does not fit into a pot that may not forget
  bool cut = false;       // cancelled after the stream session had changed
  AnswerSummary summary;  // of the last event
  std::vector<AnswerPart> parts;
};

class AnswerJob : public SessionJob {
 public:
  // An empty id: answer in an answer pot.
  AnswerJob(Host& host, std::string id, AnswerRequest request);
  Step Advance() override;
  bool CanJoin() const override { return stage_ == Stage::kAnswer; }
  // Until the first token of an answer to a short text.
  bool Urgent() const override;
  void Finish() override;
  void Dropped(const Status& why) override;

  // Scheduler::JointStep for jobs that are all AnswerJobs: each samples a token, and `batch` reads them in one forward
  // pass.
  static void AdvanceTogether(StepBatch& batch, std::span<Job* const> jobs, std::span<Step> steps);

  Channel<AnswerEvent> events;
  // Tokens of the prompt; a picture's count is known once it is read. 0 of 0 before the job starts. Any thread.
  struct Progress {
    int64_t n_read = 0, n_prompt = 0;
  };
  Progress progress() const {
    return {n_read_.load(std::memory_order_relaxed), n_prompt_.load(std::memory_order_relaxed)};
  }

 private:
  std::span<const PromptPart> Reusable() const override;
  // The stages of a question to a session with recall: the turn is opened, what the question is about is brought back,
  // the question is read. Others begin with the question.
  enum class Stage { kBegin, kOpen, kRecall, kQuestion, kAnswer };
  Status Begin();
  Status Open();
  Status BringBack();
  Status StartQuestion();
  // Counts tokens that are about to be read.
  void Accept(std::span<const int32_t> tokens);
  Status Read();
  // Samples the next token and emits its text. True if the session must read it.
  Result<bool> Write();
  // Reports the result of reading the token.
  Status Written(const Status& read);
  // Moves the answerer's new output to pending_. `last`: there will be no more.
  void TakeWritten(bool last = false);
  Status AdvanceStage();
  Step StepOf(Status status);

  AnswerRequest request_;
  const Clock::time_point asked_at_;
  Clock::time_point begun_at_;
  std::optional<Sampler> sampler_;
  std::optional<RecalledFrames> frames_;
  std::optional<Answerer> answerer_;   // set once the prompt was read
  std::optional<AnswerReader> apart_;  // set with it, if the answer is taken apart
  std::vector<int32_t> prompt_;        // all parts: only with score_prompt
  Stage stage_ = Stage::kBegin;
  int64_t n_others_ = 0;  // tokens read before the question
  AnswerSummary summary_;
  std::atomic<int64_t> n_read_{0}, n_prompt_{0};  // progress()
  AnswerEvent pending_;
  Status status_;
  bool overflow_ = false;
};

}  // namespace weir
