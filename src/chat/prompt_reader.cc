// SPDX-License-Identifier: Apache-2.0
#include "chat/prompt_reader.h"

#include <atomic>
#include <utility>

namespace weir {
namespace {

void AddHead(const Conversation& talk, TurnParts* turn) {
  std::vector<int32_t> head = talk.TurnHead();
  if (!head.empty()) turn->parts.push_back({std::move(head), false, /*whole=*/true, false});
  turn->n_heads = turn->parts.size();
}

}  // namespace

std::vector<int32_t> TokensOf(std::span<const PromptPart> parts) {
  std::vector<int32_t> out;
  for (const PromptPart& part : parts) out.insert(out.end(), part.tokens.begin(), part.tokens.end());
  return out;
}

TurnParts OpenTurn(const Conversation& talk, std::optional<PromptPart> body) {
  TurnParts turn;
  AddHead(talk, &turn);
  if (body) turn.parts.push_back(*std::move(body));
  return turn;
}

TurnParts AskInTurn(const Conversation& talk, const std::string& question, bool in_one, EncodeReport* report) {
  TurnParts turn;
  AddHead(talk, &turn);
  Conversation opened = talk;
  opened.TurnOpened();
  Conversation::Question asked = opened.Ask(question, report);
  const size_t n_body = in_one ? asked.tokens.size() : asked.tokens.size() - asked.n_tail;
  const auto tail = asked.tokens.begin() + static_cast<ptrdiff_t>(n_body);
  turn.parts.push_back({{asked.tokens.begin(), tail}, false, in_one, false});
  if (!in_one) turn.parts.push_back({{tail, asked.tokens.end()}, false, /*whole=*/true, false});
  turn.asks = true;
  return turn;
}

void PromptReader::Start(std::vector<PromptPart> parts, bool ends_prompt, PictureSource* pictures, int64_t t_ms,
                         int64_t n_held) {
  parts_ = std::move(parts);
  std::erase_if(parts_, [](const PromptPart& part) { return part.tokens.empty() && !part.visual; });
  ends_prompt_ = ends_prompt;
  part_ = 0;
  at_ = static_cast<size_t>(n_held);
  while (at_ > 0 && at_ >= parts_[part_].tokens.size()) at_ -= parts_[part_++].tokens.size();
  n_read_ = n_visual_ = 0;
  pictures_ = pictures;
  t_ms_ = t_ms;
  in_part_ = false;
  talk_ = nullptr;
}

void PromptReader::Start(TurnParts turn, Conversation& talk, PictureSource* pictures, int64_t t_ms) {
  if (turn.n_heads == 0) talk.TurnOpened();
  Start(std::move(turn.parts), turn.asks, pictures, t_ms);
  talk_ = &talk;
  n_heads_ = turn.n_heads;
}

Status PromptReader::Step(Session& session, const TensorObserver* observer, const std::function<void()>* between) {
  const bool is_text = !visual() && part_ >= (talk_ == nullptr ? 0 : n_heads_);
  const int64_t n_before = n_read_;
  const Status status = ReadSome(session, observer, between);
  if (talk_ == nullptr) return status;
  if (part_ >= n_heads_) talk_->TurnOpened();
  if (is_text && n_read_ > n_before) talk_->TextRead();
  if (done() && ends_prompt_) talk_->Asked();
  return status;
}

Status PromptReader::LookAt(Session& session, Session::AppendOptions append) {
  if (!in_part_) t_part_ms_ = t_ms_;
  in_part_ = true;
  append.t_src_ms = t_part_ms_;
  const int64_t n_before = session.counters().seen;
  const bool ends_prompt = std::exchange(append.end_of_prompt, false);  // not every frame of a video does
  const auto t_ms = pictures_->ReadNext(session, append);
  const int64_t n_rows = session.counters().seen - n_before;
  n_read_ += n_rows;
  n_visual_ += n_rows;
  WEIR_RETURN_IF_ERROR(t_ms.status());
  if (*t_ms) {
    t_ms_ = **t_ms;
  } else {
    ++part_;
    in_part_ = false;
    append.end_of_prompt = ends_prompt;
    if (ends_prompt) return session.Append({}, append);
  }
  return Status();
}

Status PromptReader::ReadSome(Session& session, const TensorObserver* observer, const std::function<void()>* between) {
  const PromptPart& part = parts_[part_];
  // Stops after the first chunk; the session still knows that more of this prompt follows.
  std::atomic<bool> stop{false};
  int64_t n_done = 0;
  Session::AppendOptions append;
  append.pinned = part.pinned;
  append.end_of_prompt = ends_prompt_ && part_ + 1 == parts_.size();
  append.stop = &stop;
  append.observer = observer;
  if (part.visual) return LookAt(session, append);
  append.between = between;
  append.t_src_ms = t_ms_;
  append.progress = [&](int64_t n) {
    n_done = n;
    stop.store(true, std::memory_order_relaxed);
  };
  const Status status = session.Append(std::span<const int32_t>(part.tokens).subspan(at_), append);
  at_ += static_cast<size_t>(n_done);
  n_read_ += n_done;
  if (!status.ok() && status.code() != StatusCode::kCancelled) return status;
  if (at_ == part.tokens.size()) {
    ++part_;
    at_ = 0;
  }
  return Status();
}

}  // namespace weir
