// SPDX-License-Identifier: Apache-2.0
#include "eval/viewer.h"

#include <algorithm>

#include "base/clock.h"
#include "chat/answerer.h"
#include "engine/picture_parts.h"

namespace weir {
namespace {

// Without a template rounds are lines, and the form says where an answer begins.
RoundForm FormOf(const std::string& question) { return {.question = question, .gap = "\n"}; }

}  // namespace

Viewer::Viewer(Session& session, EncodedPictures& pictures, const Tokenizer& tokenizer, const ChatTemplate* chat,
               const ViewerOptions& options, const std::atomic<bool>* stop, FrameStore* frames)
    : session_(session),
      pictures_(pictures),
      tokenizer_(tokenizer),
      chat_(chat),
      options_(options),
      stop_(stop),
      frames_(frames != nullptr && frames->keeps() ? frames : nullptr),
      talk_(tokenizer, chat, FormOf(options.form)) {}

Status Viewer::Begin() {
  session_.Reset();
  if (frames_ != nullptr) frames_->Forget();
  if (recall_ != nullptr) WEIR_RETURN_IF_ERROR(recall_->CutTo({}));
  n_tokens_ = n_pictures_ = 0;
  talk_ = Conversation(tokenizer_, chat_, FormOf(options_.form));
  return Status();
}

Status Viewer::ReadTokens(std::span<const int32_t> tokens, const Session::AppendOptions& options) {
  const auto start = Clock::now();
  Session::AppendOptions append = options;
  append.stop = stop_;
  append.t_src_ms = t_ms();
  if (!tokens.empty()) WEIR_RETURN_IF_ERROR(session_.Append(tokens, append));
  n_tokens_ += std::ssize(tokens);
  cost_.read_tokens += std::ssize(tokens);
  cost_.read_s += SecondsSince(start);
  return Status();
}

Status Viewer::Show(std::string_view lead, std::span<const std::string> pictures) {
  const std::vector<int32_t> head = talk_.TurnHead(lead);
  talk_.TurnOpened();
  WEIR_RETURN_IF_ERROR(ReadTokens(head, {}));
  for (const std::string& path : pictures) {
    WEIR_RETURN_IF_ERROR(ReadPicture(path));
    ++n_pictures_;
  }
  return Status();
}

Status Viewer::ReadPicture(const std::string& path) {
  if (options_.video && frames_ != nullptr) {
    WEIR_ASSIGN_OR_RETURN(const float* const frame, pictures_.Prepared(path));
    return ReadVisual([&](const Session::AppendOptions& append) {
      return frames_->ReadPrepared(pictures_.encoder(), frame, session_, append);
    });
  }
  WEIR_ASSIGN_OR_RETURN(const EncodedPicture picture, pictures_.Get(path, options_.video));
  return ReadVisual([&](const Session::AppendOptions& append) {
    return AppendParts(pictures_.config(), picture.parts, picture.rows,
                       options_.video ? Modality::kVideo : Modality::kImage, session_, append);
  });
}

Status Viewer::ReadVisual(const std::function<Status(const Session::AppendOptions&)>& read) {
  const auto start = Clock::now();
  Session::AppendOptions append;
  append.stop = stop_;
  append.t_src_ms = t_ms();
  const int64_t n_before = session_.n_seen();
  WEIR_RETURN_IF_ERROR(read(append));
  const int64_t n_read = session_.n_seen() - n_before;
  n_tokens_ += n_read;
  cost_.read_tokens += n_read;
  cost_.read_s += SecondsSince(start);
  return Status();
}

Status Viewer::ReadQuestion(const std::string& question) {
  if (frames_ != nullptr) {
    WEIR_RETURN_IF_ERROR(ReadVisual(
        [&](const Session::AppendOptions& append) { return frames_->Recall(pictures_.encoder(), session_, append); }));
  }
  const std::vector<int32_t> tokens = talk_.Ask(question).tokens;
  talk_.Asked();
  WEIR_RETURN_IF_ERROR(session_.BeginRound(tokens, options_.n_answer));
  Session::AppendOptions append;
  append.end_of_prompt = true;
  return ReadTokens(tokens, append);
}

void Viewer::TakeShares(ViewerReply* reply) const {
  const Pot& pot = session_.pot();
  const PotShape& shape = pot.shape();
  int64_t n_held = 0, n_visual = 0;
  for (int32_t group = 0; group < shape.n_groups(); ++group) {
    const std::span<const SlotMeta> slots = pot.meta(group);
    n_held += std::ssize(slots);
    n_visual +=
        std::count_if(slots.begin(), slots.end(), [](const SlotMeta& s) { return s.modality != Modality::kText; });
  }
  const SessionCounters counters = session_.counters();
  const int64_t n_seen_visual = counters.seen - counters.by[static_cast<size_t>(Modality::kText)].seen;
  const double groups = shape.n_groups();
  reply->stored_share = static_cast<double>(n_held) / (groups * static_cast<double>(counters.seen));
  if (n_seen_visual > 0) {
    reply->stored_visual_share = static_cast<double>(n_visual) / (groups * static_cast<double>(n_seen_visual));
  }
  reply->kv_bytes = 0;
  for (int32_t layer = 0; layer < shape.n_layers; ++layer) {
    const int32_t n = shape.head_dim_of(layer);
    const int64_t slot_bytes = RowBytes(shape.k_type, n) + (shape.values_in_keys ? 0 : RowBytes(shape.v_type, n));
    for (int32_t head = 0; head < shape.n_kv_heads_of(layer); ++head) {
      reply->kv_bytes += pot.n_used(layer, head) * slot_bytes;
    }
  }
}

double Viewer::UsedShare() const {
  return static_cast<double>(session_.n_slots_read()) /
         (static_cast<double>(session_.pot().shape().n_groups()) * static_cast<double>(session_.n_seen()));
}

bool Viewer::Ended(std::span<const int32_t> tokens) const {
  if (tokenizer_.IsEndOfGeneration(tokens.back())) return true;
  return chat_ == nullptr && tokenizer_.Decode(tokens).find('\n', 1) != std::string::npos;
}

Result<BeamAnswer> Viewer::BestOfBeams() {
  BeamModel model;
  model.ended = [this](std::span<const int32_t> tokens) { return Ended(tokens); };
  model.logits = [this](std::span<const std::vector<int32_t>> beams, const BeamModel::Each& each) {
    return session_.AskAside({}, beams, each, stop_);
  };
  WEIR_ASSIGN_OR_RETURN(const std::span<const float> first, session_.Logits());
  return SearchBeams({options_.n_beams, options_.n_answer, options_.length_penalty}, first, model);
}

Result<ViewerReply> Viewer::Answer(int32_t n_least) {
  ViewerReply reply;
  TakeShares(&reply);
  SamplerOptions greedy;
  greedy.temperature = 0;
  WEIR_ASSIGN_OR_RETURN(Sampler sampler, Sampler::Create(greedy));
  AnswerOptions options;
  options.max_tokens = options_.n_answer;
  options.own_text = true;
  options.t_src_ms = t_ms();
  Answerer answerer(session_, sampler, tokenizer_, options);
  int64_t n_written = 0;
  const auto write = [&](Answerer& writer) -> Status {
    if (stop_ != nullptr && *stop_) return Cancelled("stopped while answering");
    WEIR_RETURN_IF_ERROR(writer.Step());
    // An answer cut short by a pot that may not forget does not count as the policy's answer.
    WEIR_RETURN_IF_ERROR(writer.full());
    ++n_written;
    ++n_tokens_;
    reply.used_share += UsedShare();
    return Status();
  };
  const auto start = Clock::now();
  bool end_token_read = false;
  if (options_.n_beams > 1) {
    WEIR_ASSIGN_OR_RETURN(const BeamAnswer best, BestOfBeams());
    Session::AppendOptions append;
    append.generated = true;
    append.t_src_ms = t_ms();
    for (const int32_t& token : best.tokens) {
      WEIR_RETURN_IF_ERROR(session_.Append({&token, 1}, append));
      ++n_written;
      ++n_tokens_;
      reply.used_share += UsedShare();
    }
    reply.text = tokenizer_.Decode(best.tokens);
    end_token_read = !best.tokens.empty() && tokenizer_.IsEndOfGeneration(best.tokens.back());
  } else {
    while (!answerer.done()) {
      WEIR_RETURN_IF_ERROR(write(answerer));
      reply.text += answerer.TakeText();
      // Without a template a new line may be the only sign that the answer is over.
      if (chat_ == nullptr && reply.text.find('\n', 1) != std::string::npos) answerer.Stop();
    }
    answerer.Finish();
    reply.text += answerer.TakeText();
    end_token_read = answerer.end_token_read();
  }
  options.max_tokens = std::max<int64_t>(0, n_least - n_written);
  options.ignore_eos = true;
  for (Answerer more(session_, sampler, tokenizer_, options); !more.done();) WEIR_RETURN_IF_ERROR(write(more));
  const double seconds = SecondsSince(start);
  reply.used_share /= static_cast<double>(std::max<int64_t>(n_written, 1));
  reply.ms_per_token = 1000 * seconds / static_cast<double>(std::max<int64_t>(n_written, 1));
  cost_.answer_tokens += n_written;
  cost_.answer_s += seconds;
  reply.text.erase(0, std::min(reply.text.find_first_not_of(" \n"), reply.text.size()));
  reply.text = reply.text.substr(0, reply.text.find('\n'));
  talk_.Answered(end_token_read);
  return reply;
}

Result<Recalled> Viewer::Bring(const std::string& question) {
  if (recall_ == nullptr) return Recalled();
  if (frames_ != nullptr) {
    WEIR_RETURN_IF_ERROR(ReadVisual([&](const Session::AppendOptions& append) {
      return frames_->Interrupt(pictures_.encoder(), session_, append);
    }));
  }
  WEIR_ASSIGN_OR_RETURN(Recalled recalled, recall_->recaller().Bring(session_, question, t_ms()));
  n_tokens_ += recalled.n_tokens;
  return recalled;
}

Result<ViewerReply> Viewer::Ask(const std::string& question) {
  WEIR_ASSIGN_OR_RETURN(Recalled recalled, Bring(question));
  WEIR_RETURN_IF_ERROR(ReadQuestion(question));
  WEIR_ASSIGN_OR_RETURN(ViewerReply reply, Answer(0));
  reply.recalled = std::move(recalled);
  WEIR_RETURN_IF_ERROR(session_.TakeBackExcerpt());
  return reply;
}

Result<ViewerReply> Viewer::AskAside(const std::string& question) {
  WEIR_RETURN_IF_ERROR(session_.Save(&mark_));
  frames_mark_.clear();
  if (frames_ != nullptr) {
    VectorSink sink(&frames_mark_);
    WEIR_RETURN_IF_ERROR(frames_->Save(sink));
  }
  const Conversation talk = talk_;
  const int64_t n_tokens = n_tokens_;
  ViewerReply reply;
  const auto ask = [&]() -> Status {
    WEIR_ASSIGN_OR_RETURN(Recalled recalled, Bring(question));
    WEIR_RETURN_IF_ERROR(ReadQuestion(question));
    WEIR_ASSIGN_OR_RETURN(reply, Answer(options_.n_decode));
    reply.recalled = std::move(recalled);
    return session_.Restore(mark_);
  };
  if (recall_ != nullptr) recall_->Pause(true);
  const Status status = ask();
  if (recall_ != nullptr) recall_->Pause(false);
  WEIR_RETURN_IF_ERROR(status);
  if (frames_ != nullptr) {
    SpanSource source(frames_mark_);
    WEIR_RETURN_IF_ERROR(frames_->Restore(source));
  }
  talk_ = talk;
  n_tokens_ = n_tokens;
  return reply;
}

Status Viewer::Tell(const std::string& question, const std::string& answer) {
  WEIR_RETURN_IF_ERROR(ReadQuestion(question));
  Session::AppendOptions append;
  append.generated = true;
  return ReadTokens(talk_.Tell(answer), append);
}

int64_t Viewer::RoundTokens(const Tokenizer& tokenizer, const ChatTemplate* chat, const std::string& form,
                            const std::string& lead, const std::string& question) {
  Conversation talk(tokenizer, chat, FormOf(form));
  const int64_t n_head = std::ssize(talk.TurnHead(lead));
  talk.TurnOpened();
  return n_head + std::ssize(talk.Ask(question).tokens);
}

}  // namespace weir
