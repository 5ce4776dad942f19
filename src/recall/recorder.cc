// SPDX-License-Identifier: Apache-2.0
#include "recall/recorder.h"

#include <algorithm>
#include <utility>

#include "quant/half.h"

namespace weir {
namespace {

constexpr int32_t kBlockTokens = 32;      // a block ends with the first word after as many
constexpr int32_t kMostBlockTokens = 64;  // and with these, also inside a word
constexpr size_t kMaxBlockBytes = 4096;
constexpr size_t kMaxFrameBytes = 32;

constexpr std::string_view kRoles[] = {"user", "assistant", "system", "model"};

// Whether `text` is the name of a role and white space around it, or the beginning of that.
enum class RoleName { kNo, kBegun, kWhole };
RoleName RoleNameOf(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \n");
  if (begin == text.npos) return RoleName::kBegun;
  text.remove_prefix(begin);
  for (const std::string_view role : kRoles) {
    if (role.size() > text.size() && role.starts_with(text)) return RoleName::kBegun;
    if (text.starts_with(role) && text.find_first_not_of(" \n", role.size()) == text.npos) return RoleName::kWhole;
  }
  return RoleName::kNo;
}

bool BeginsWord(std::string_view piece) {
  return !piece.empty() && (piece.front() == ' ' || piece.front() == '\n' || piece.front() == '\t');
}

Role RoleOf(const Arrival& arrival) {
  return arrival.generated ? Role::kAnswer : arrival.question ? Role::kQuestion : Role::kInput;
}

}  // namespace

Recorder::Recorder(const Tokenizer& tokenizer, Sink sink, std::span<uint16_t> rows)
    : sink_(std::move(sink)), decoder_(tokenizer, {.at_start = false}), tokenizer_(tokenizer), rows_(rows) {
  text_.reserve(2 * kMaxBlockBytes);
}

void Recorder::Begin(const Arrival& arrival, int64_t seq) {
  block_ = {.seq = seq, .t_ms = arrival.t_src_ms, .role = RoleOf(arrival), .modality = arrival.modality};
}

// A role's name ends with a line in templates that have one: "user\n", then what was said.
void Recorder::AddText(std::string_view piece) {
  if (!in_frame_) {
    text_ += piece;
    return;
  }
  const RoleName before = RoleNameOf(frame_);
  frame_ += piece;
  if (RoleNameOf(frame_) != RoleName::kNo && frame_.size() < kMaxFrameBytes) return;
  in_frame_ = false;
  text_ += before == RoleName::kWhole && frame_.find('\n') != frame_.npos ? piece : std::string_view(frame_);
  frame_.clear();
}

void Recorder::EndFrame() {
  if (in_frame_ && RoleNameOf(frame_) != RoleName::kWhole) text_ += frame_;
  in_frame_ = false;
  frame_.clear();
}

void Recorder::Flush() {
  piece_.clear();
  decoder_.Finish(&piece_);
  AddText(piece_);
  EndFrame();
  End();
}

void Recorder::Drop() {
  decoder_.Finish(&text_);
  Forget();
}

void Recorder::Forget() {
  if (block_.n_tokens > 0 && watcher_ != nullptr) watcher_->Dropped();
  text_.clear();
  frame_.clear();
  in_frame_ = false;
  block_ = {};
}

void Recorder::End() {
  if (block_.n_tokens == 0) return;
  block_.text = text_;
  if (!text_.empty()) {
    sink_(block_);
  } else if (watcher_ != nullptr) {
    watcher_->Dropped();
  }
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
    const bool control = tokenizer_.Type(arrival.tokens[i]) == TokenType::kControl;
    if (control) EndFrame();
    decoder_.Push(arrival.tokens[i], &piece_);
    const bool full = block_.n_tokens >= kBlockTokens && BeginsWord(piece_);
    if (full || block_.n_tokens >= kMostBlockTokens || text_.size() + piece_.size() > kMaxBlockBytes) {
      End();
    }
    if (block_.n_tokens == 0) Begin(arrival, arrival.seq + static_cast<int64_t>(i));
    ++block_.n_tokens;
    if (watcher_ != nullptr) watcher_->Row(block_, arrival.n - static_cast<int64_t>(i));
    AddText(piece_);
    in_frame_ |= control;
  }
}

}  // namespace weir
