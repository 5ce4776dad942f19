// SPDX-License-Identifier: Apache-2.0
#include "serve/answer_job.h"

#include <algorithm>
#include <iterator>

#include "base/clock.h"
#include "serve/answer_spans.h"

namespace weir {
namespace {

// Limits on the events queued for a client; beyond them, further output is merged into one event. An answer's length is
// unlimited, so it must not be buffered without bound for a slow client.
constexpr size_t kMaxEvents = 256, kMaxUnreadBytes = 4 << 20, kMaxUnreadLikelihoods = 1 << 14;

// A prompt that others' chunks are interrupted for.
constexpr int64_t kMostUrgentTokens = 512;

size_t BytesOf(const AnswerEvent& event) {
  size_t n = event.text.size();
  for (const AnswerPart& part : event.parts) n += sizeof(part) + part.text.size() + part.id.size();
  return n;
}

// Texts of one kind become one part.
void AddParts(std::vector<AnswerPart> more, std::vector<AnswerPart>* parts) {
  for (AnswerPart& part : more) {
    const bool continues = part.kind != AnswerPart::Kind::kCall && !parts->empty() && parts->back().kind == part.kind;
    if (continues) {
      parts->back().text += part.text;
    } else {
      parts->push_back(std::move(part));
    }
  }
}

}  // namespace

AnswerJob::AnswerJob(Host& host, std::string id, AnswerRequest request)
    : SessionJob(host, std::move(id), std::move(request.visuals)),
      request_(std::move(request)),
      asked_at_(Clock::now()),
      begun_at_(asked_at_) {}

std::span<const PromptPart> AnswerJob::Reusable() const {
  // Log-likelihoods are reported for every token, so every token is read.
  const bool may = host_.options().cache_prompt && request_.cache_prompt && !request_.score_prompt;
  return may ? std::span<const PromptPart>(request_.prompt) : std::span<const PromptPart>();
}

Status AnswerJob::Begin() {
  begun_at_ = Clock::now();
  WEIR_ASSIGN_OR_RETURN(Sampler sampler, Sampler::Create(request_.sampler));
  sampler_ = std::move(sampler);
  if (stream_ == nullptr || stream_->recall == nullptr) return StartQuestion();
  Conversation& talk = stream_->conversation;
  stage_ = Stage::kOpen;
  if (!talk.turn_open()) {
    TurnParts head = OpenTurn(talk, std::nullopt);
    Accept(TokensOf(head.parts));
    reader_.Start(std::move(head), talk, nullptr, stream_->t_ms);
  }
  if (talk.turn_open() || reader_.done()) stage_ = Stage::kRecall;
  return Status();
}

void AnswerJob::Accept(std::span<const int32_t> tokens) {
  if (request_.sampler.repeat_penalty != 1) {
    for (const int32_t id : tokens) sampler_->Accept(id);
  }
  summary_.n_prompt += std::ssize(tokens);
  n_prompt_.store(summary_.n_prompt, std::memory_order_relaxed);
}

Status AnswerJob::Open() {
  const int64_t n_before = reader_.n_read();
  const Status status = ReadStep();
  n_others_ += reader_.n_read() - n_before;
  n_read_.store(n_others_, std::memory_order_relaxed);
  if (status.ok() && reader_.done()) stage_ = Stage::kRecall;
  overflow_ = status.code() == StatusCode::kOverBudget;
  return status;
}

// An archive that cannot be searched costs the excerpt, not the answer.
Status AnswerJob::BringBack() {
  SessionRecall& recall = *stream_->recall;
  WEIR_RETURN_IF_ERROR(EndFrames());
  summary_.recalled.emplace();
  if (recall.stream == nullptr) {
    summary_.recall_failed = IoError("{}", recall.Notes());
    return StartQuestion();
  }
  WEIR_RETURN_IF_ERROR(recall.stream->recaller().TakeBack(*session_));
  const int64_t n_seen = session_->n_seen();
  auto brought = recall.stream->recaller().Bring(*session_, request_.question, stream_->t_ms);
  const int64_t n = session_->n_seen() - n_seen;
  host_.metrics().CountRead(n);
  if (brought.ok()) {
    summary_.recalled = *std::move(brought);
    if (n > 0) stream_->conversation.TextRead();
  } else {
    summary_.recall_failed = brought.status();
    WEIR_RETURN_IF_ERROR(recall.stream->recaller().TakeBack(*session_));
  }
  host_.metrics().CountRecall(std::ssize(summary_.recalled->passages));
  n_others_ += n;
  summary_.n_prompt += n;
  return StartQuestion();
}

Status AnswerJob::StartQuestion() {
  stage_ = Stage::kQuestion;
  TurnParts turn;
  turn.parts = request_.prompt;
  if (stream_ != nullptr) {
    turn = AskInTurn(stream_->conversation, request_.question);
    if (stream_->kept_frames != nullptr && stream_->kept_frames->fresh()) {
      frames_.emplace(*host_.vision()->encoder, *stream_->kept_frames);
      turn.parts.insert(turn.parts.begin() + static_cast<ptrdiff_t>(turn.n_heads), {{}, false, false, true});
    }
    summary_.t_ms = stream_->t_ms;
    const std::span<const PromptPart> parts(turn.parts);
    const std::vector<int32_t> question = TokensOf(parts.subspan(turn.n_heads));
    const auto n_heads = std::ssize(TokensOf(parts.first(turn.n_heads)));
    WEIR_RETURN_IF_ERROR(session_->BeginRound(question, request_.max_tokens, -n_heads));
  }
  std::vector<int32_t> all = TokensOf(turn.parts);
  if (all.empty()) return InvalidArgument("the prompt contains no tokens");
  if (stream_ == nullptr) {
    summary_.n_cached = session_->n_seen();
    host_.metrics().CountReused(summary_.n_cached);
    n_read_.store(summary_.n_cached, std::memory_order_relaxed);
    WEIR_RETURN_IF_ERROR(session_->BeginRound(all, request_.max_tokens, summary_.n_cached));
  }
  Accept(all);
  if (request_.score_prompt) {
    ScoredToken first;
    first.id = all[0];
    pending_.tokens.push_back(first);
    prompt_ = std::move(all);
  }
  if (stream_ != nullptr) {
    reader_.Start(std::move(turn), stream_->conversation, frames_ ? &*frames_ : nullptr, summary_.t_ms);
  } else {
    reader_.Start(std::move(turn.parts), true, feed_.get(), summary_.t_ms, summary_.n_cached);
  }
  return Status();
}

Status AnswerJob::Read() {
  const int64_t n_before = reader_.n_read();
  Status scored;
  const TensorObserver score = [&](const std::string& name, int64_t n_rows, int64_t n_cols, const float* data) {
    if (name != "final_norm") return;
    // The prompt's last row predicts the answer's first token, which is not known yet. A probe's rows do not represent
    // text.
    const int64_t n = std::min<int64_t>(n_rows, std::ssize(prompt_) - 1 - n_before);
    if (n <= 0) return;
    const std::span<const int32_t> targets(prompt_.data() + n_before + 1, static_cast<size_t>(n));
    scored = host_.scorer().Score(data, targets, request_.n_logprobs, &pending_.tokens);
  };
  const int64_t n_visual = reader_.n_visual();
  const Status status = ReadStep(request_.score_prompt ? &score : nullptr);
  summary_.n_prompt += reader_.n_visual() - n_visual;
  n_prompt_.store(summary_.n_prompt, std::memory_order_relaxed);
  n_read_.store(summary_.n_cached + n_others_ + reader_.n_read(), std::memory_order_relaxed);
  if (stream_ == nullptr) summary_.t_ms = reader_.t_ms();
  overflow_ = status.code() == StatusCode::kOverBudget;
  if (reader_.done()) {
    stage_ = Stage::kAnswer;
    AnswerOptions options = request_;
    options.read_last = stream_ != nullptr;
    options.t_src_ms = summary_.t_ms;
    if (request_.reading) {
      apart_.emplace(host_.answer_form(), *request_.reading);
    }
    summary_.n_guessed = -session_->n_guessed();
    summary_.n_guessed_right = -session_->n_guessed_right();
    answerer_.emplace(*session_, *sampler_, host_.tokenizer(), std::move(options));
    if (apart_) answerer_->Show(host_.answer_form().shown());
  }
  return status.ok() ? scored : status;
}

Result<bool> AnswerJob::Write() {
  const bool behind = events.size() >= kMaxEvents;
  const size_t n_likelihoods = pending_.tokens.size() * static_cast<size_t>(1 + std::max(0, request_.n_logprobs));
  if (behind && (BytesOf(pending_) > kMaxUnreadBytes || n_likelihoods > kMaxUnreadLikelihoods)) {
    return Cancelled("the client reads the answer too slowly");
  }
  WEIR_ASSIGN_OR_RETURN(const bool reads, answerer_->Draw());
  TakeWritten();
  if (!behind && (!pending_.text.empty() || !pending_.parts.empty() || !pending_.tokens.empty())) {
    pending_.n_prompt = summary_.n_prompt;
    pending_.n_cached = summary_.n_cached;
    pending_.n_answer = answerer_->n_drawn();
    pending_.prompt_ms = Milliseconds(answerer_->first_token_at() - begun_at_);
    pending_.answer_ms = Milliseconds(Clock::now() - answerer_->first_token_at());
    events.Push(std::move(pending_));
    pending_ = AnswerEvent();
  }
  if (!apart_ || !apart_->done()) return reads;
  answerer_->Stop();  // what would follow is not wanted
  return reads && stream_ != nullptr;
}

void AnswerJob::TakeWritten(bool last) {
  if (apart_) {
    apart_->Push(answerer_->TakeText());
    if (last) apart_->Finish();
    std::vector<AnswerPart> parts = apart_->Take();
    for (const AnswerPart& part : parts) {
      if (part.kind == AnswerPart::Kind::kContent) pending_.text += part.text;
    }
    AddParts(std::move(parts), &pending_.parts);
  } else {
    pending_.text += answerer_->TakeText();
  }
  std::vector<ScoredToken> scored = answerer_->TakeScored();
  pending_.tokens.insert(pending_.tokens.end(), std::make_move_iterator(scored.begin()),
                         std::make_move_iterator(scored.end()));
}

Status AnswerJob::Written(const Status& read) {
  WEIR_RETURN_IF_ERROR(answerer_->Read(read));
  if (stream_ != nullptr) stream_->conversation.Answered(answerer_->end_token_read());
  return Status();
}

Job::Step AnswerJob::StepOf(Status status) {
  if (status.ok() && !(answerer_ && answerer_->done())) return Step::kMore;
  status_ = std::move(status);
  return Step::kDone;
}

Status AnswerJob::AdvanceStage() {
  switch (stage_) {
    case Stage::kBegin:
      return Begin();
    case Stage::kOpen:
      return Open();
    case Stage::kRecall:
      return BringBack();
    case Stage::kQuestion:
      return Read();
    case Stage::kAnswer:
      break;
  }
  WEIR_ASSIGN_OR_RETURN(const bool reads, Write());
  const int32_t token = answerer_->token();
  return reads ? Written(session_->Append({&token, 1}, answerer_->append())) : Status();
}

Job::Step AnswerJob::Advance() {
  const bool may_stop = stage_ == Stage::kBegin || stage_ == Stage::kRecall || reader_.may_stop();
  Status status = may_stop ? CheckGoOn() : Status();
  if (status.ok()) status = AdvanceStage();
  return StepOf(std::move(status));
}

bool AnswerJob::Urgent() const {
  if (stage_ == Stage::kAnswer) return answerer_->n_drawn() == 0;
  // Pictures take an encoder, and an archive its time.
  const bool text = feed_ == nullptr && !frames_ && (stream_ == nullptr || stream_->recall == nullptr);
  return text &&
         n_prompt_.load(std::memory_order_relaxed) - n_read_.load(std::memory_order_relaxed) <= kMostUrgentTokens;
}

void AnswerJob::AdvanceTogether(StepBatch& batch, std::span<Job* const> jobs, std::span<Step> steps) {
  std::vector<StepBatch::Step> reading;
  std::vector<size_t> readers;  // of `reading`, in jobs
  for (size_t i = 0; i < jobs.size(); ++i) {
    AnswerJob& job = static_cast<AnswerJob&>(*jobs[i]);
    Status status = job.CheckGoOn();
    StepBatch::Step step;
    if (status.ok()) {
      const auto reads = job.Write();
      status = reads.status();
      if (status.ok() && *reads) {
        step.session = job.session_;
        step.token = job.answerer_->token();
        step.t_src_ms = job.summary_.t_ms;
        reading.push_back(std::move(step));
        readers.push_back(i);
        continue;
      }
    }
    steps[i] = job.StepOf(std::move(status));
  }
  batch.Append(reading);
  for (size_t i = 0; i < reading.size(); ++i) {
    AnswerJob& job = static_cast<AnswerJob&>(*jobs[readers[i]]);
    steps[readers[i]] = job.StepOf(job.Written(reading[i].status));
  }
}

void AnswerJob::Finish() {
  const bool has_session = session_ != nullptr;
  const Clock::time_point end = Clock::now();
  Clock::time_point first = end;
  if (has_session) {
    session_->CancelQuestion();
    if (Status taken_back = session_->TakeBackExcerpt(); status_.ok()) status_ = std::move(taken_back);
    if (answerer_) {
      summary_.n_guessed += session_->n_guessed();
      summary_.n_guessed_right += session_->n_guessed_right();
    }
    summary_.tokens = session_->counters();
    summary_.n_pinned = session_->held().n_pinned;
    summary_.held = HeldSpans(session_->pot());
    if (answerer_ && answerer_->n_drawn() > 0) {
      summary_.n_answer = answerer_->n_drawn();
      first = answerer_->first_token_at();
      summary_.first_token_ms = Milliseconds(first - asked_at_);
    }
    if (stage_ != Stage::kBegin) summary_.prompt_ms = Milliseconds(first - begun_at_);
    summary_.answer_ms = Milliseconds(end - first);
    summary_.rows_pruned = stream_ != nullptr ? stream_->rows_pruned : rows_pruned_;
  }
  SessionJob::Finish();  // before the client gets the event: its next request then finds the pot free
  if (answerer_) {
    answerer_->Finish();
    summary_.ended = answerer_->ended() || (apart_ && apart_->done());
    TakeWritten(/*last=*/true);
    summary_.n_calls = apart_ ? apart_->n_calls() : 0;
    summary_.stop_text = answerer_->done() && answerer_->reason() == StopReason::kStopText;
  }
  summary_.cancelled = status_.code() == StatusCode::kCancelled;
  if (summary_.cancelled) host_.metrics().CountCancelled();
  if (has_session) {
    const std::optional<Exemplar> traced = trace_ == nullptr ? std::nullopt : trace_->AsExemplar();
    host_.metrics().CountAnswer({.n_tokens = summary_.n_answer,
                                 .wait_s = Seconds(begun_at_ - asked_at_),
                                 .first_token_s = summary_.first_token_ms / 1000,
                                 .rest_s = summary_.answer_ms / 1000},
                                traced);
    if (trace_ != nullptr) {
      std::optional<int64_t> n_passages;
      if (summary_.recalled) n_passages = std::ssize(summary_.recalled->passages);
      AddAnswerSpans(host_.options().model_name,
                     {.asked = asked_at_,
                      .begun = begun_at_,
                      .first = first,
                      .end = end,
                      .sampler = request_.sampler,
                      .max_tokens = request_.max_tokens,
                      .n_prompt = summary_.n_prompt,
                      .n_cached = summary_.n_cached,
                      .n_answer = summary_.n_answer,
                      .ended = summary_.ended,
                      .cancelled = summary_.cancelled,
                      .tokens = summary_.tokens,
                      .n_selections = n_selections_,
                      .n_evicted = n_evicted_,
                      .n_passages = n_passages},
                     status_, trace_.get());
    }
  }
  pending_.n_prompt = summary_.n_prompt;
  pending_.n_cached = summary_.n_cached;
  pending_.n_answer = summary_.n_answer;
  pending_.prompt_ms = summary_.prompt_ms;
  pending_.answer_ms = summary_.answer_ms;
  pending_.last = true;
  pending_.status = std::move(status_);
  pending_.overflow = overflow_;
  pending_.cut = summary_.cancelled && stage_ != Stage::kBegin && stream_ != nullptr;
  pending_.summary = summary_;
  events.Push(std::move(pending_));
}

void AnswerJob::Dropped(const Status& why) {
  AnswerEvent event;
  event.last = true;
  event.status = why;
  events.Push(std::move(event));
}

}  // namespace weir
