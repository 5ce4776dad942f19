#include "chat/prompt_reader.h"

#include <atomic>
#include <span>
#include <utility>

namespace weir {

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

Status PromptReader::Step(Session& session, const TensorObserver* observer) {
  const PromptPart& part = parts_[part_];
  // Stopped by itself after the first chunk: the session then still knows that more of this prompt comes.
  std::atomic<bool> stop{false};
  int64_t n_done = 0;
  Session::AppendOptions append;
  append.pinned = part.pinned;
  append.end_of_prompt = ends_prompt_ && part_ + 1 == parts_.size();
  append.stop = &stop;
  append.observer = observer;
  if (part.visual) return LookAt(session, append);
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
