// SPDX-License-Identifier: Apache-2.0
#include "recall/recorder.h"

#include <algorithm>
#include <utility>

#include "quant/half.h"

namespace weir {
namespace {

constexpr int32_t kBlockTokens = 32;     // a block ends with the first word after as many
constexpr int32_t kMaxBlockTokens = 64;  // and with these, also inside a word
constexpr size_t kMaxBlockBytes = 4096;

bool BeginsWord(std::string_view piece) {
  return !piece.empty() && (piece.front() == ' ' || piece.front() == '\n' || piece.front() == '\t');
}

Role RoleOf(const Arrival& arrival) {
  return arrival.generated ? Role::kAnswer : arrival.question ? Role::kQuestion : Role::kInput;
}

}  // namespace

Recorder::Recorder(const Tokenizer& tokenizer, Sink sink, std::span<uint16_t> rows)
    : sink_(std::move(sink)), decoder_(tokenizer, {.at_start = false}), rows_(rows) {
  text_.reserve(2 * kMaxBlockBytes);
}

void Recorder::Begin(const Arrival& arrival, int64_t seq) {
  block_ = {.seq = seq, .t_ms = arrival.t_src_ms, .role = RoleOf(arrival), .modality = arrival.modality};
}

void Recorder::Flush() {
  decoder_.Finish(&text_);
  End();
}

void Recorder::Drop() {
  decoder_.Finish(&text_);
  Forget();
}

void Recorder::Forget() {
  if (block_.n_tokens > 0 && watcher_ != nullptr) watcher_->Dropped();
  text_.clear();
  block_ = {};
}

void Recorder::End() {
  if (block_.n_tokens == 0) return;
  if (text_.empty()) return Forget();
  block_.text = text_;
  sink_(block_);
  block_ = {};
  text_.clear();
}

void Recorder::AddPicture(const Arrival& arrival) {
  if (arrival.row == 0) {
    Flush();
    n_numbers_ = 0;
    Begin(arrival, arrival.seq);
    block_.columns = static_cast<int32_t>(std::min<int64_t>(arrival.columns, arrival.n_rows));
  }
  const bool whole = block_.modality == arrival.modality && block_.seq_end() == arrival.seq;
  if (!whole || n_numbers_ + arrival.embeddings.size() > rows_.size()) return Forget();
  for (const float value : arrival.embeddings) rows_[n_numbers_++] = F32ToF16(value);
  block_.n_tokens += static_cast<int32_t>(arrival.n);
  for (int64_t i = 0; watcher_ != nullptr && i < arrival.n; ++i) watcher_->Row(block_, arrival.n - i);
  if (arrival.row + arrival.n < arrival.n_rows) return;
  block_.rows = rows_.first(n_numbers_);
  sink_(block_);
  block_ = {};
}

void Recorder::Arrived(const Arrival& arrival) {
  if (arrival.tokens.empty()) {
    AddPicture(arrival);
    return;
  }
  if (block_.modality != Modality::kText) Forget();  // a picture that was stopped
  if (block_.n_tokens > 0 && (block_.role != RoleOf(arrival) || block_.seq_end() != arrival.seq)) Flush();
  for (size_t i = 0; i < arrival.tokens.size(); ++i) {
    piece_.clear();
    decoder_.Push(arrival.tokens[i], &piece_);
    const bool full = block_.n_tokens >= kBlockTokens && BeginsWord(piece_);
    if (full || block_.n_tokens >= kMaxBlockTokens || text_.size() + piece_.size() > kMaxBlockBytes) {
      End();
    }
    if (block_.n_tokens == 0) Begin(arrival, arrival.seq + static_cast<int64_t>(i));
    ++block_.n_tokens;
    if (watcher_ != nullptr) watcher_->Row(block_, arrival.n - static_cast<int64_t>(i));
    text_ += piece_;
  }
}

}  // namespace weir
