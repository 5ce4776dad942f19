// SPDX-License-Identifier: Apache-2.0
#include "engine/session/aside.h"

#include <algorithm>

#include "engine/session/aside_room.h"

namespace weir {

// Rows on top of a pot, which it is rid of at the end.
class Aside::Rows {
 public:
  Rows(SessionCore& core, int64_t n_most) : core_(core), first_(core.stream.n_seen) {
    core_.pot->state().SetAside(first_);
    core_.pot->SetExcerpt({first_, first_ + n_most});
  }
  ~Rows() {
    DropTo(0);
    core_.pot->SetExcerpt({});
  }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  int64_t n() const { return n_; }

  // The hidden state of the last of these tokens, in memory of the backend; valid until the next call.
  Result<const float*> Read(std::span<const int32_t> tokens) {
    const int64_t max_rows = core_.runner->shape().max_rows;
    const float* last = nullptr;
    for (int64_t done = 0; done < std::ssize(tokens);) {
      const int64_t n_here = std::min(max_rows, std::ssize(tokens) - done);
      core_.rows.clear();
      for (int64_t i = 0; i < n_here; ++i) {
        core_.rows.push_back({.seq = first_ + n_ + i,
                              .t_src_ms = std::max<int64_t>(core_.stream.t_newest_ms, 0),
                              .token_id = tokens[static_cast<size_t>(done + i)]});
      }
      const BatchItem item = {
          .pot = core_.pot.get(), .tokens = core_.rows, .pos_shift = core_.stream.pos_shift, .last_hidden_only = true};
      WEIR_ASSIGN_OR_RETURN(const float* hidden, core_.runner->Forward({&item, 1}));
      n_ += n_here;
      done += n_here;
      last = hidden + (n_here - 1) * core_.model->config().n_embd;
    }
    return last;
  }

  // Removes all but the first n. A state cannot: it returns to that of the stream. REQUIRES: n is 0, or no state.
  void DropTo(int64_t n) {
    core_.pot->DropLast(static_cast<int32_t>(n_ - n));
    n_ = n;
    if (n == 0) core_.pot->state().BringBack();
  }

 private:
  SessionCore& core_;
  const int64_t first_;
  int64_t n_ = 0;
};

void Aside::LayOut(const Model& model, const Backend& backend, BufferSpace* space) {
  n_vocab_ = model.config().n_vocab;
  logits_ = space->Floats(MemTag::kLogits, n_vocab_, Access::kDevice);
  if (!backend.on_host()) host_logits_ = space->Floats(MemTag::kLogits, n_vocab_);
}

Status Aside::Check(std::span<const int32_t> head, std::span<const std::vector<int32_t>> tails) const {
  if (logits_ == nullptr) return InvalidArgument("this session was made without room for questions aside");
  if (core_->excerpt.end > core_->excerpt.begin) {
    return InvalidArgument("an excerpt is in use: take it back before anything is asked aside");
  }
  const int64_t most = AsideRoom(core_->plan);
  for (const std::vector<int32_t>& tail : tails) {
    const int64_t n = std::ssize(head) + std::ssize(tail);
    if (tail.empty()) return InvalidArgument("a question aside has no tokens of its own");
    if (n > most) return InvalidArgument("a question of {} tokens aside, where {} are possible", n, most);
  }
  return Status();
}

Status Aside::Ask(std::span<const int32_t> head, std::span<const std::vector<int32_t>> tails, const Each& each,
                  const std::atomic<bool>* stop) {
  WEIR_RETURN_IF_ERROR(Check(head, tails));
  if (tails.empty()) return Status();
  size_t longest = 0;
  for (const std::vector<int32_t>& tail : tails) longest = std::max(longest, tail.size());
  const auto n_head = static_cast<int64_t>(head.size());
  Rows rows(*core_, n_head + static_cast<int64_t>(longest));
  // The head is read once for all, unless a state has read what comes after it.
  const bool keeps_head = core_->pot->state().empty();
  for (size_t i = 0; i < tails.size(); ++i) {
    if (stop != nullptr && stop->load(std::memory_order_relaxed)) {
      return Cancelled("stopped after {} of {} questions", i, tails.size());
    }
    if (rows.n() == 0 && n_head > 0) WEIR_RETURN_IF_ERROR(rows.Read(head).status());
    WEIR_ASSIGN_OR_RETURN(const float* hidden, rows.Read(tails[i]));
    WEIR_ASSIGN_OR_RETURN(const std::span<const float> logits, LogitsAfter(hidden));
    each(i, logits);
    rows.DropTo(keeps_head ? n_head : 0);
  }
  return Status();
}

Result<std::span<const float>> Aside::LogitsAfter(const float* hidden) {
  core_->runner->Logits(hidden, 1, logits_);
  const float* at = logits_;
  if (host_logits_ != nullptr) {
    core_->backend->Copy(host_logits_, logits_, n_vocab_ * 4);
    at = host_logits_;
  }
  core_->backend->Synchronise();
  WEIR_RETURN_IF_ERROR(core_->backend->status());
  return std::span<const float>(at, static_cast<size_t>(n_vocab_));
}

}  // namespace weir
