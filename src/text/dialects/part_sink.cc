// SPDX-License-Identifier: Apache-2.0
#include "text/dialects/part_sink.h"

#include <utility>

namespace weir {
namespace {

constexpr size_t kMaxSpaceBytes = 4096;  // more of it is text

bool IsGap(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

}  // namespace

void PartSink::Add(AnswerPart::Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (parts_.empty() || parts_.back().kind != kind) parts_.push_back({kind, {}, {}});
  parts_.back().text += text;
}

void PartSink::AddTrimmed(AnswerPart::Kind kind, std::string_view text) {
  size_t begin = 0;
  while (skip_space_ && begin < text.size() && IsGap(text[begin])) ++begin;
  text.remove_prefix(begin);
  if (text.empty()) return;
  skip_space_ = false;
  size_t end = text.size();
  const bool keeps = kind == AnswerPart::Kind::kReasoning || options_.calls;
  while (keeps && end > 0 && IsGap(text[end - 1])) --end;
  if (end > 0 || space_.size() > kMaxSpaceBytes) {
    Add(kind, space_);
    space_.clear();
  }
  Add(kind, text.substr(0, end));
  space_ += text.substr(end);
}

void PartSink::EndReasoning() {
  if (!reasoning_) return;
  reasoning_ = false;
  space_.clear();
  skip_space_ = true;
}

void PartSink::Reasoning(std::string_view text) {
  if (done()) return;
  if (!reasoning_) {
    space_.clear();
    skip_space_ = true;
  }
  reasoning_ = true;
  AddTrimmed(AnswerPart::Kind::kReasoning, text);
}

void PartSink::Content(std::string_view text) {
  if (done()) return;
  EndReasoning();
  AddTrimmed(AnswerPart::Kind::kContent, text);
}

void PartSink::BeginCall(std::string_view name, std::string_view id) {
  if (done()) return;
  EndReasoning();
  space_.clear();
  std::string chosen(id);
  if (chosen.empty()) chosen = options_.new_id ? options_.new_id() : "call_" + std::to_string(n_calls_);
  parts_.push_back({AnswerPart::Kind::kCall, std::string(name), std::move(chosen)});
  ++n_calls_;
  empty_call_ = true;
}

void PartSink::Arguments(std::string_view text) {
  if (done() || text.empty()) return;
  Add(AnswerPart::Kind::kArguments, text);
  empty_call_ = false;
}

void PartSink::EndCall() {
  if (done()) return;
  if (empty_call_) Add(AnswerPart::Kind::kArguments, "{}");
  empty_call_ = false;
  ++n_ended_;
  skip_space_ = true;
}

void PartSink::Finish() {
  if (done()) return;
  if (!reasoning_) Add(AnswerPart::Kind::kContent, space_);
  space_.clear();
}

}  // namespace weir
