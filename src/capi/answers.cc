// SPDX-License-Identifier: Apache-2.0
// The C API: chats, questions, and answers in one call or token by token.
#include <utility>
#include <vector>

#include "capi/handles.h"

namespace weir {

Status CheckPinFlag(uint32_t flags) {
  if ((flags & ~uint32_t{WEIR_PINNED}) == 0) return Status();
  return InvalidArgument("flags {}: WEIR_PINNED is the only one here", flags);
}

Status EnsureChat(weir_session* session, const std::optional<std::string>& system, bool pinned) {
  if (session->talk) return Status();
  const weir_model& model = *session->model;
  if (!model.chat && model.no_chat.code() != StatusCode::kNotFound) return model.no_chat;
  Conversation talk(model.loaded->tokenizer(), model.chat ? &*model.chat : nullptr);
  // Read as a whole, whatever the progress function says: a chat that has half begun could not go on.
  Session::AppendOptions append;
  append.pinned = pinned;
  append.t_src_ms = session->t_ms;
  WEIR_RETURN_IF_ERROR(session->session->Append(talk.Begin(system), append));
  session->talk = std::move(talk);
  return Status();
}

Status OpenUserTurn(weir_session* session) {
  WEIR_RETURN_IF_ERROR(EnsureChat(session, std::nullopt, false));
  WEIR_ASSIGN_OR_RETURN(Sampler sampler, Sampler::Create({}));  // receives the tokens, but samples none
  return WithTalk(session, sampler, [&](Talk& talk) {
    TalkReading reading;
    reading.t_src_ms = session->t_ms;
    return talk.OpenTurn(reading);
  });
}

namespace {

// Reads tokens as part of the user's turn.
Status Say(weir_session* session, std::span<const int32_t> ids, uint32_t flags) {
  WEIR_RETURN_IF_ERROR(EndFrames(session));
  const Session::AppendOptions append = AppendOptionsFor(session, (flags & WEIR_PINNED) != 0);
  const int64_t n_seen = session->session->n_seen();
  const Status status = session->session->Append(ids, append);
  if (session->session->n_seen() > n_seen) session->talk->TextRead();  // also a part of it
  WEIR_RETURN_IF_ERROR(status);
  return CheckRules(session);
}

Result<Sampler> SamplerFor(const weir_generate_options& given) {
  SamplerOptions sampling;
  sampling.temperature = given.temperature;
  sampling.top_k = given.top_k;
  sampling.top_p = given.top_p;
  sampling.min_p = given.min_p;
  sampling.seed = given.seed;
  return Sampler::Create(sampling);
}

Status CopyTexts(const char* const* texts, size_t n, std::vector<std::string>* out) {
  if (texts == nullptr && n > 0) return kNull;
  for (size_t i = 0; i < n; ++i) {
    if (texts[i] == nullptr) return kNull;
    out->emplace_back(texts[i]);
  }
  return Status();
}

// nullptr: the answer may be anything.
Result<std::shared_ptr<const Form>> FormFor(weir_session& session, const weir_generate_options& given) {
  FormSpec spec;
  int n_given = 0;
  const auto take = [&](const char* text, FormSpec::Kind kind) {
    if (text == nullptr) return;
    ++n_given;
    spec.kind = kind;
    spec.text = text;
  };
  take(given.json_schema, FormSpec::Kind::kJsonSchema);
  take(given.grammar, FormSpec::Kind::kGrammar);
  take(given.regex, FormSpec::Kind::kRegex);
  if (given.choices != nullptr || given.n_choices > 0) {
    ++n_given;
    spec.kind = FormSpec::Kind::kChoices;
    WEIR_RETURN_IF_ERROR(CopyTexts(given.choices, given.n_choices, &spec.choices));
  }
  if (n_given == 0) return std::shared_ptr<const Form>();
  if (n_given > 1) return InvalidArgument("an answer has one form: json_schema, grammar, regex or choices");
  if (session.forms.room() == nullptr) {
    return InvalidArgument(
        "the session keeps no memory for forms: open it with weir_session_options.form_bytes, {} for most forms",
        kDefaultFormBytes);
  }
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const FormVocab> vocab, session.model->form_vocab->Get());
  return MakeForm(spec, std::move(vocab), session.forms.room());
}

struct Asked {
  Sampler sampler;
  AnswerOptions answer;
  int64_t max_tokens;
};

Result<Asked> Prepare(weir_session* session, const weir_generate_options* options) {
  weir_generate_options given = WEIR_GENERATE_OPTIONS_INIT;
  WEIR_RETURN_IF_ERROR(Read(options, &given));
  WEIR_ASSIGN_OR_RETURN(Sampler sampler, SamplerFor(given));
  AnswerOptions answer;
  answer.max_tokens = given.max_tokens;
  answer.ignore_eos = given.ignore_end != 0;
  answer.t_src_ms = session->t_ms;
  WEIR_ASSIGN_OR_RETURN(answer.form, FormFor(*session, given));
  // A SentencePiece model begins its answers with a space, which is no part of their form.
  answer.own_text = answer.form != nullptr;
  WEIR_RETURN_IF_ERROR(CopyTexts(given.stop_texts, given.n_stop_texts, &answer.stop_texts));
  return Asked{std::move(sampler), std::move(answer), given.max_tokens};
}

void Begin(weir_session* session, Sampler sampler, AnswerOptions options) {
  auto answer = std::make_unique<OpenAnswer>(std::move(sampler));
  answer->answerer.emplace(*session->session, answer->sampler, session->model->loaded->tokenizer(), std::move(options));
  session->answer = std::move(answer);
}

// What was brought back for a question is for its answer alone.
Status TakeBack(weir_session* session) {
  const Status back = session->session->TakeBackExcerpt();
  if (session->recall != nullptr) session->recall->Flush();
  return back;
}

Status BeginAsk(weir_session* session, const char* question, size_t n_bytes, const weir_generate_options* options) {
  if (question == nullptr && n_bytes > 0) return kNull;
  WEIR_ASSIGN_OR_RETURN(Asked asked, Prepare(session, options));
  WEIR_RETURN_IF_ERROR(OpenUserTurn(session));
  if (session->pictures != nullptr) WEIR_RETURN_IF_ERROR(session->pictures->Recall({}));
  session->recalled = {};
  const Status status = WithTalk(session, asked.sampler, [&](Talk& talk) {
    if (session->recall != nullptr) talk.SetRecaller(&session->recall->recaller());
    const Session::AppendOptions append = AppendOptionsFor(session, false);
    TalkReading reading;
    reading.t_src_ms = append.t_src_ms;
    reading.stop = append.stop;
    reading.progress = append.progress;
    const Status read = talk.Ask(std::string(question == nullptr ? "" : question, n_bytes), asked.max_tokens, reading);
    session->recalled = talk.recalled();
    return read;
  });
  if (!status.ok()) {
    (void)TakeBack(session);
    return status;
  }
  Begin(session, std::move(asked.sampler), std::move(asked.answer));
  return Status();
}

// Reads the token that was drawn last.
Status ReadDrawn(weir_session* session) {
  OpenAnswer& answer = *session->answer;
  if (!std::exchange(answer.unread, false)) return Status();
  const int32_t token = answer.answerer->token();
  return answer.answerer->Read(session->session->Append({&token, 1}, answer.answerer->append()));
}

// One token of an answer, whose text the answerer keeps. *more: false when this was the last.
Status DrawNext(weir_session* session, bool* more) {
  OpenAnswer& answer = *session->answer;
  Answerer& answerer = *answer.answerer;
  *more = false;
  // The token before is read only now: its text did not wait for a forward pass.
  WEIR_RETURN_IF_ERROR(ReadDrawn(session));
  if (answerer.done()) {
    answerer.Finish();
    return Status();
  }
  WEIR_ASSIGN_OR_RETURN(answer.unread, answerer.Draw());
  *more = true;
  return Status();
}

// Up to n tokens. After an error the answer can only be ended.
Status Step(weir_session* session, int32_t n, const char** text, size_t* n_bytes, int* more) {
  OpenAnswer& answer = *session->answer;
  *text = nullptr;
  *n_bytes = 0;
  *more = 0;
  WEIR_RETURN_IF_ERROR(answer.failed);
  bool goes_on = true;
  for (int32_t i = 0; i < n && goes_on && answer.failed.ok(); ++i) answer.failed = DrawNext(session, &goes_on);
  *more = goes_on && answer.failed.ok() ? 1 : 0;
  answer.text = answer.answerer->TakeText();
  *text = answer.text.data();
  *n_bytes = answer.text.size();
  return answer.failed;
}

Status End(weir_session* session, size_t* n_tokens, weir_end* end) {
  const Status status = session->answer->failed.ok() ? ReadDrawn(session) : Status();
  const std::unique_ptr<OpenAnswer> answer = std::move(session->answer);
  Answerer& answerer = *answer->answerer;
  answerer.Stop();
  if (session->talk) session->talk->Answered(answerer.end_token_read());
  if (n_tokens != nullptr) *n_tokens = static_cast<size_t>(answerer.n_drawn());
  if (end != nullptr) *end = static_cast<weir_end>(answerer.reason());
  const Status back = TakeBack(session);
  return status.ok() ? back : status;
}
static_assert(static_cast<int>(StopReason::kEndOfGeneration) == WEIR_ENDED &&
                  static_cast<int>(StopReason::kPotFull) == WEIR_POT_FULL &&
                  static_cast<int>(StopReason::kStopText) == WEIR_STOP_TEXT,
              "the two lists are one");

// The whole of an answer that has begun.
Status Finish(weir_session* session, weir_text_callback on_text, void* user, size_t* n_tokens, weir_end* end) {
  Status status;
  const char* text = nullptr;
  size_t n_bytes = 0;
  for (int more = 1; status.ok() && more != 0;) {
    status = Step(session, 1, &text, &n_bytes, &more);
    if (status.ok() && n_bytes > 0 && on_text != nullptr && on_text(text, n_bytes, user) != 0) break;
  }
  const Status ended = End(session, n_tokens, end);
  return status.ok() ? ended : status;
}

}  // namespace
}  // namespace weir

using weir::kNull;
using weir::Reading;
using weir::Status;

extern "C" {

weir_status weir_session_begin_answer(weir_session* session, const weir_generate_options* options) {
  return Reading(session, [&]() -> Status {
    WEIR_ASSIGN_OR_RETURN(weir::Asked asked, weir::Prepare(session, options));
    WEIR_RETURN_IF_ERROR(weir::EndFrames(session));
    weir::Begin(session, std::move(asked.sampler), std::move(asked.answer));
    return Status();
  });
}

weir_status weir_session_begin_ask(weir_session* session, const char* question, size_t n_bytes,
                                   const weir_generate_options* options) {
  return Reading(session, [&] { return weir::BeginAsk(session, question, n_bytes, options); });
}

weir_status weir_session_next(weir_session* session, const char** text, size_t* n_bytes, int* more) {
  return weir::Answering(session, [&]() -> Status {
    if (text == nullptr || n_bytes == nullptr || more == nullptr) return kNull;
    return weir::Step(session, 1, text, n_bytes, more);
  });
}

weir_status weir_session_next_tokens(weir_session* session, int32_t n, const char** text, size_t* n_bytes, int* more) {
  return weir::Answering(session, [&]() -> Status {
    if (text == nullptr || n_bytes == nullptr || more == nullptr) return kNull;
    if (n < 1 || n > 1024) return weir::InvalidArgument("n is {}: a call draws 1 to 1024 tokens", n);
    return weir::Step(session, n, text, n_bytes, more);
  });
}

weir_status weir_session_end_answer(weir_session* session, size_t* n_tokens, weir_end* end) {
  return weir::Answering(session, [&] { return weir::End(session, n_tokens, end); });
}

weir_status weir_session_generate(weir_session* session, const weir_generate_options* options,
                                  weir_text_callback on_text, void* user, size_t* n_tokens, weir_end* end) {
  return Reading(session, [&]() -> Status {
    WEIR_ASSIGN_OR_RETURN(weir::Asked asked, weir::Prepare(session, options));
    WEIR_RETURN_IF_ERROR(weir::EndFrames(session));
    weir::Begin(session, std::move(asked.sampler), std::move(asked.answer));
    return weir::Finish(session, on_text, user, n_tokens, end);
  });
}

weir_status weir_session_ask(weir_session* session, const char* question, size_t n_bytes,
                             const weir_generate_options* options, weir_text_callback on_text, void* user,
                             size_t* n_tokens, weir_end* end) {
  return Reading(session, [&]() -> Status {
    WEIR_RETURN_IF_ERROR(weir::BeginAsk(session, question, n_bytes, options));
    return weir::Finish(session, on_text, user, n_tokens, end);
  });
}

weir_status weir_session_begin_chat(weir_session* session, const char* system, size_t n_bytes, uint32_t flags) {
  return Reading(session, [&]() -> Status {
    if (system == nullptr && n_bytes > 0) return kNull;
    WEIR_RETURN_IF_ERROR(weir::CheckPinFlag(flags));
    if (session->talk) return weir::InvalidArgument("the chat has begun already");
    std::optional<std::string> text;
    if (system != nullptr) text.emplace(system, n_bytes);
    return weir::EnsureChat(session, text, (flags & WEIR_PINNED) != 0);
  });
}

weir_status weir_session_say(weir_session* session, const char* text, size_t n_bytes, uint32_t flags) {
  return Reading(session, [&]() -> Status {
    if (text == nullptr && n_bytes > 0) return kNull;
    WEIR_RETURN_IF_ERROR(weir::CheckPinFlag(flags));
    WEIR_RETURN_IF_ERROR(weir::OpenUserTurn(session));
    weir::EncodeOptions options;
    options.add_special = false;
    return weir::Say(session, session->model->loaded->tokenizer().Encode(std::string_view(text, n_bytes), options),
                     flags);
  });
}

weir_status weir_session_say_tokens(weir_session* session, const int32_t* ids, size_t n_ids, uint32_t flags) {
  return Reading(session, [&]() -> Status {
    if (ids == nullptr && n_ids > 0) return kNull;
    WEIR_RETURN_IF_ERROR(weir::CheckPinFlag(flags));
    WEIR_RETURN_IF_ERROR(weir::OpenUserTurn(session));
    return weir::Say(session, {ids, n_ids}, flags);
  });
}

}  // extern "C"
