// SPDX-License-Identifier: Apache-2.0
#include "eval/examinee.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "chat/generate.h"
#include "chat/probe.h"

namespace weir {
namespace {

// Whether the text has a number followed by another character.
bool NumberIsWhole(const std::string& text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto first = std::find_if(text.begin(), text.end(), digit);
  return std::find_if_not(first, text.end(), digit) != text.end();
}

}  // namespace

Examinee::Examinee(Session& session, const Tokenizer& tokenizer, const ChatTemplate* chat, bool score_gold,
                   const std::atomic<bool>* stop)
    : session_(session), tokenizer_(tokenizer), chat_(chat), score_gold_(score_gold), stop_(stop), talk_(NewTalk()) {}

Status Examinee::Begin() {
  session_.Reset();
  if (recall_ != nullptr) WEIR_RETURN_IF_ERROR(recall_->CutTo({}));
  pending_.clear();
  talk_ = NewTalk();
  return OpenTurn();
}

// A question without a template is a text that is continued, and so is what comes after the answer.
Conversation Examinee::NewTalk() const {
  return Conversation(tokenizer_, chat_, {.question = std::string(kQuestionMark), .gap = ""});
}

Status Examinee::OpenTurn() {
  const std::vector<int32_t> head = talk_.TurnHead();
  talk_.TurnOpened();
  return ReadTokens(head);
}

Status Examinee::Expect(const Question& question) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Policy> policy, session_.policy().Make());
  const PolicyNeeds needs = policy->Needs();
  if (needs.probe.find(kQuestionMark) == std::string::npos) return Status();
  std::vector<int32_t> tokens = question.tokens;
  const std::vector<int32_t> text = Encode(chat_ == nullptr ? question.completion : question.chat);
  tokens.insert(tokens.end(), text.begin(), text.end());
  for (const int64_t n_slots = session_.plan().probe_slots;;) {
    WEIR_ASSIGN_OR_RETURN(const std::vector<int32_t> probe,
                          ProbeTokens(needs, tokenizer_, chat_, tokenizer_.Decode(tokens)));
    const int64_t n_over = std::ssize(probe) - n_slots;
    if (n_over <= 0 || tokens.empty()) return session_.SetProbe(probe);
    tokens.erase(tokens.begin(), tokens.begin() + std::min(n_over, std::ssize(tokens)));
  }
}

std::vector<int32_t> Examinee::Encode(std::string_view text) const {
  EncodeOptions options;
  options.add_special = false;
  return tokenizer_.Encode(text, options);
}

Status Examinee::Read(std::string_view text) { return ReadTokens(Encode(text)); }

Status Examinee::ReadTokens(std::span<const int32_t> tokens) {
  pending_.insert(pending_.end(), tokens.begin(), tokens.end());
  return pending_.size() >= kFlushTokens ? Flush() : Status();
}

Status Examinee::Flush() {
  if (pending_.empty()) return Status();
  const Status read = Append(pending_, {});
  pending_.clear();
  return read;
}

Status Examinee::Append(std::span<const int32_t> tokens, Session::AppendOptions append) {
  const auto start = Clock::now();
  append.stop = stop_;
  WEIR_RETURN_IF_ERROR(session_.Append(tokens, append));
  cost_.read_tokens += static_cast<int64_t>(tokens.size());
  cost_.read_s += SecondsSince(start);
  return Status();
}

std::vector<int32_t> Examinee::Asked(const Question& question) const {
  std::vector<int32_t> out = question.tokens;
  const std::vector<int32_t> text = talk_.Ask(chat_ == nullptr ? question.completion : question.chat).tokens;
  out.insert(out.end(), text.begin(), text.end());
  if (chat_ != nullptr && !question.lead.empty()) {
    const std::vector<int32_t> lead = Encode(question.lead);
    out.insert(out.end(), lead.begin(), lead.end());
  }
  return out;
}

Result<Reply> Examinee::Answer(std::span<const int32_t> tokens, const Question& question) {
  WEIR_RETURN_IF_ERROR(session_.BeginRound(tokens, question.n_answer));
  Session::AppendOptions append;
  append.end_of_prompt = true;
  WEIR_RETURN_IF_ERROR(Append(tokens, append));
  SamplerOptions greedy;
  greedy.temperature = 0;
  WEIR_ASSIGN_OR_RETURN(Sampler sampler, Sampler::Create(greedy));
  std::atomic<bool> enough{false};
  GenerateOptions options;
  options.max_tokens = question.n_answer;
  options.stop = &enough;
  const auto start = Clock::now();
  Reply reply;
  WEIR_ASSIGN_OR_RETURN(const GenerateResult result,
                        Generate(session_, sampler, tokenizer_, options, [&](const std::string& text) {
                          reply.text += text;
                          if ((stop_ != nullptr && *stop_) || (question.number && NumberIsWhole(reply.text)))
                            enough = true;
                        }));
  if (stop_ != nullptr && *stop_) return Cancelled("stopped while answering");
  cost_.answer_tokens += static_cast<int64_t>(result.tokens.size());
  cost_.answer_s += SecondsSince(start);
  // An answer cut short by a pot that may not forget does not count as the policy's answer.
  if (result.reason == StopReason::kPotFull) return result.full;
  reply.end_token_read = result.end_token_read;
  return reply;
}

Result<Recalled> Examinee::Bring(const Question& question) {
  if (recall_ == nullptr) return Recalled();
  return recall_->recaller().Bring(session_, chat_ == nullptr ? question.completion : question.chat,
                                   std::max<int64_t>(session_.t_newest_ms(), 0), question.where);
}

Result<Reply> Examinee::Ask(const Question& question) {
  WEIR_RETURN_IF_ERROR(Flush());
  return AskAfter({}, question);
}

Result<Reply> Examinee::AskRound(const Question& question) {
  if (recall_ != nullptr) return Ask(question);
  return AskAfter(std::exchange(pending_, {}), question);
}

Result<Reply> Examinee::AskAfter(std::vector<int32_t> tokens, const Question& question) {
  WEIR_ASSIGN_OR_RETURN(Recalled recalled, Bring(question));
  const std::vector<int32_t> asked = Asked(question);
  tokens.insert(tokens.end(), asked.begin(), asked.end());
  WEIR_ASSIGN_OR_RETURN(Reply reply, Answer(tokens, question));
  reply.recalled = std::move(recalled);
  WEIR_RETURN_IF_ERROR(session_.TakeBackExcerpt());
  talk_.Asked();
  talk_.Answered(reply.end_token_read);
  WEIR_RETURN_IF_ERROR(OpenTurn());
  return reply;
}

Status Examinee::SaveStream(std::vector<uint8_t>* out) {
  WEIR_RETURN_IF_ERROR(Flush());
  WEIR_RETURN_IF_ERROR(session_.Save(out));
  if (recall_ == nullptr) return Status();
  const ArchivePoint point = recall_->SavePoint();
  const std::span<const uint8_t> bytes = BytesOf(std::span(&point, 1));
  out->insert(out->end(), bytes.begin(), bytes.end());
  return Status();
}

Status Examinee::RestoreStream(std::span<const uint8_t> saved) {
  pending_.clear();
  if (recall_ == nullptr) return session_.Restore(saved);
  ArchivePoint point;
  const std::span<uint8_t> bytes = BytesOf(std::span(&point, 1));
  std::ranges::copy(saved.last(bytes.size()), bytes.begin());
  WEIR_RETURN_IF_ERROR(session_.Restore(saved.first(saved.size() - bytes.size())));
  return recall_->CutTo(point);
}

Status Examinee::Mark() {
  WEIR_RETURN_IF_ERROR(Flush());
  return session_.Save(&mark_);
}

Result<Reply> Examinee::AskAside(const Question& question) {
  const std::vector<int32_t> asked = Asked(question);
  Reply reply;
  if (recall_ != nullptr) recall_->Pause(true);
  const Status status = AnswerAside(asked, question, &reply);
  if (recall_ != nullptr) recall_->Pause(false);
  if (!status.ok()) return status;
  return reply;
}

Status Examinee::AnswerAside(std::span<const int32_t> asked, const Question& question, Reply* out) {
  WEIR_ASSIGN_OR_RETURN(Recalled recalled, Bring(question));
  WEIR_ASSIGN_OR_RETURN(*out, Answer(asked, question));
  Reply& reply = *out;
  reply.recalled = std::move(recalled);
  WEIR_RETURN_IF_ERROR(session_.Restore(mark_));
  if (!score_gold_ || question.gold.empty() || chat_ != nullptr) return Status();
  // The whole is encoded at once: where the question ends, a token may span it and the answer.
  std::vector<int32_t> whole = question.tokens;
  const std::vector<int32_t> text = Encode(question.completion + question.gold);
  whole.insert(whole.end(), text.begin(), text.end());
  const size_t same =
      static_cast<size_t>(std::mismatch(asked.begin(), asked.end(), whole.begin(), whole.end()).first - asked.begin());
  if (same >= whole.size()) return Status();
  std::vector<float> nll(whole.size());
  // Asked as in Answer(); the gold answer is then read as generated tokens, so that policies that compress at the end
  // of a prompt have done so.
  const std::span<const int32_t> question_tokens(whole.data(), same),
      gold_tokens(whole.data() + same, whole.size() - same);
  WEIR_RETURN_IF_ERROR(Bring(question).status());
  WEIR_RETURN_IF_ERROR(session_.BeginRound(question_tokens, static_cast<int64_t>(gold_tokens.size())));
  Session::AppendOptions append;
  append.end_of_prompt = true;
  if (!question_tokens.empty()) WEIR_RETURN_IF_ERROR(Append(question_tokens, append));
  append = {};
  append.generated = true;
  append.nll = nll.data();
  WEIR_RETURN_IF_ERROR(Append(gold_tokens, append));
  double sum = 0;
  for (size_t i = 0; i < gold_tokens.size(); ++i) sum += nll[i];
  reply.gold_nll = sum / static_cast<double>(gold_tokens.size());
  reply.has_gold_nll = true;
  return session_.Restore(mark_);
}

Result<Reply> Examinee::MarkAndAsk(const Question& question) {
  WEIR_RETURN_IF_ERROR(Mark());
  return AskAside(question);
}

Result<Rates> MeasureRates(Session& session) {
  const size_t n_read = static_cast<size_t>(std::min(session.plan().chunk_rows, session.plan().pot_slots / 2));
  constexpr int kAnswer = 4;
  std::vector<int32_t> tokens(std::max<size_t>(n_read, 1), 0);
  Rates rates;
  session.Reset();
  auto start = Clock::now();
  WEIR_RETURN_IF_ERROR(session.Append(tokens));
  rates.read = static_cast<double>(tokens.size()) / SecondsSince(start);
  start = Clock::now();
  for (int i = 0; i < kAnswer; ++i) {
    WEIR_RETURN_IF_ERROR(session.Logits().status());
    WEIR_RETURN_IF_ERROR(session.Append({tokens.data(), 1}));
  }
  rates.answer = kAnswer / SecondsSince(start);
  session.Reset();
  return rates;
}

}  // namespace weir
