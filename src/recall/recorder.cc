// SPDX-License-Identifier: Apache-2.0
#include "recall/recorder.h"

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

Recorder::Recorder(const Tokenizer& tokenizer, Sink sink, bool pictures)
    : sink_(std::move(sink)), pictures_(pictures), decoder_(tokenizer, {.at_start = false}) {
  text_.reserve(2 * kMaxBlockBytes);
}

int64_t Recorder::MemoryBytes(int64_t n_embd, int64_t max_rows) {
  return static_cast<int64_t>(2 * kMaxBlockBytes) + n_embd * max_rows * static_cast<int64_t>(sizeof(uint16_t));
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
  text_.clear();
  block_ = {};
}

void Recorder::End() {
  if (block_.n_tokens == 0) return;
  block_.text = text_;
  if (!text_.empty()) sink_(block_);
  block_ = {};
  text_.clear();
}

void Recorder::Arrived(const Arrival& arrival) {
  if (arrival.tokens.empty()) {
    Flush();
    if (!pictures_ || arrival.n == 0) return;
    rows_.resize(arrival.embeddings.size());
    for (size_t i = 0; i < rows_.size(); ++i) rows_[i] = F32ToF16(arrival.embeddings[i]);
    Begin(arrival, arrival.seq);
    block_.n_tokens = static_cast<int32_t>(arrival.n);
    block_.rows = rows_;
    block_.columns = arrival.columns;
    block_.row = static_cast<int32_t>(arrival.row);
    block_.n_rows = static_cast<int32_t>(arrival.n_rows);
    sink_(block_);
    block_ = {};
    return;
  }
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
    text_ += piece_;
  }
}

}  // namespace weir
