// SPDX-License-Identifier: Apache-2.0
#include "text/dialects/calls_reader.h"

#include <algorithm>
#include <utility>

namespace weir {
namespace {

constexpr size_t kMaxBareLead = 1024;  // white space before a bare call

}  // namespace

CallsReader::CallsReader(const CallsForm& form, const DialectOptions& options, PartSink& sink)
    : TextReader(sink), form_(form), options_(options), at_start_(form.bare) {
  opens_.assign(form.opens.begin(), form.opens.end());
  opens_.insert(opens_.end(), form.dropped.begin(), form.dropped.end());
  name_marks_.assign(form.name_ends.begin(), form.name_ends.end());
  if (!form.id_begins.empty()) name_marks_.push_back(form.id_begins);
  if (!name_marks_.empty()) name_marks_.push_back("{");
}

void CallsReader::Restart() {
  stage_ = Stage::kContent;
  at_start_ = bare_ = in_list_ = false;
  object_.reset();
}

bool CallsReader::Step(bool last) {
  switch (stage_) {
    case Stage::kContent:
      return ReadContent(last);
    case Stage::kOpen:
      return ReadOpen(last);
    case Stage::kName:
    case Stage::kId:
      return ReadName(last);
    case Stage::kNamed:
      return ReadNamed(last);
    case Stage::kArguments:
      return ReadArguments(last);
    case Stage::kObject:
      return ReadObject(last);
    case Stage::kBetween:
      return ReadBetween(last);
  }
  return false;
}

bool CallsReader::ReadContent(bool last) {
  if (at_start_) {
    const std::string_view text = rest();
    const size_t begin = text.find_first_not_of(" \n\t\r");
    if (begin == text.npos && !last && text.size() <= kMaxBareLead) return false;
    at_start_ = false;
    if (begin != text.npos && begin <= kMaxBareLead && (text[begin] == '{' || text[begin] == '[')) {
      Try("");
      bare_ = true;
      stage_ = Stage::kOpen;
      return true;
    }
  }
  std::string text;
  const int found = ScanTo(opens_, last, &text);
  sink_.Content(text);
  if (found < 0) return false;
  const auto open = static_cast<size_t>(found);
  if (open < form_.opens.size()) {
    Try(opens_[open]);
    stage_ = Stage::kOpen;
  }
  return true;
}

bool CallsReader::Abandon() {
  if (trying()) {
    GiveUp();
  } else {
    Restart();
  }
  return true;
}

bool CallsReader::ReadOpen(bool last) {
  SkipSpace();
  if (rest().empty()) return last && Abandon();
  const char c = rest()[0];
  if (c == '[' && !in_list_) {
    in_list_ = true;
    Take(1);
    return true;
  }
  if (c == '{') {
    object_.emplace(sink_, options_, bare_, form_.keyed);
    stage_ = Stage::kObject;
    return true;
  }
  if (form_.name_ends.empty() || in_list_) return Abandon();
  name_.clear();
  id_.clear();
  stage_ = Stage::kName;
  return true;
}

bool CallsReader::ReadName(bool last) {
  std::string& text = stage_ == Stage::kName ? name_ : id_;
  const int found = ScanTo(name_marks_, last, &text, kMaxToolNameBytes);
  if (found == kTooLong || (found < 0 && last)) return Abandon();
  if (found < 0) return false;
  const std::string_view mark = name_marks_[static_cast<size_t>(found)];
  text = std::string(Trimmed(text));
  if (!IsToolName(text)) return Abandon();
  if (form_.numbered && stage_ == Stage::kName) {
    id_ = text;
    if (text.starts_with("functions.")) text.erase(0, 10);
    text.resize(std::min(text.size(), text.rfind(':')));
    if (text.empty()) return Abandon();
  }
  if (mark == form_.id_begins && stage_ == Stage::kName) {
    stage_ = Stage::kId;
  } else if (mark == "{") {
    stage_ = Stage::kArguments;
    Commit();
    sink_.BeginCall(name_, id_);
    arguments_.Reset();
    Feed("{");
  } else {
    stage_ = Stage::kNamed;
  }
  return true;
}

bool CallsReader::ReadNamed(bool last) {
  SkipSpace();
  if (rest().empty()) return last && Abandon();
  if (rest()[0] == '{' || rest()[0] == '"') {
    stage_ = Stage::kArguments;
    Commit();
    sink_.BeginCall(name_, id_);
    arguments_.Reset();
  } else {  // what was read is the word for a tool, and its name comes now
    stage_ = Stage::kName;
    name_.clear();
  }
  return true;
}

size_t CallsReader::Feed(std::string_view text) {
  size_t n = 0;
  std::string piece;
  const auto state = arguments_.Feed(text, &n, &piece);
  sink_.Arguments(piece);
  if (state != JsonArguments::State::kMore) {
    sink_.EndCall();
    stage_ = Stage::kBetween;
  }
  return n;
}

bool CallsReader::ReadArguments(bool last) {
  if (rest().empty()) {
    if (last) Restart();
    return false;
  }
  Take(Feed(rest()));
  return true;
}

bool CallsReader::ReadObject(bool last) {
  if (rest().empty()) return last && Abandon();
  size_t n = 0;
  const auto state = object_->Feed(rest(), &n);
  Take(n);
  if (object_->begun() && trying()) Commit();
  if (state == JsonCall::State::kDone) stage_ = Stage::kBetween;
  if (state == JsonCall::State::kFailed) {
    if (object_->begun()) sink_.EndCall();
    return Abandon();
  }
  return true;
}

bool CallsReader::ReadBetween(bool last) {
  SkipSpace();
  if (rest().empty()) return false;
  const char c = rest()[0];
  if (in_list_ && (c == ',' || c == ']')) {
    Take(1);
    if (c == ']') {
      in_list_ = false;
    } else {
      Try("");
      stage_ = Stage::kOpen;
    }
    return true;
  }
  bool may_close = false;
  for (const std::string_view close : form_.closes) {
    const Begins begins = At(close, last);
    may_close |= begins == Begins::kMaybe;
    if (begins != Begins::kYes) continue;
    Take(close.size());
    Restart();
    return true;
  }
  if (may_close) return false;
  if (!in_list_ && (c == '{' || c == ';' || (bare_ && c == ','))) {
    Try("");
    if (c != '{') Take(1);
    stage_ = Stage::kOpen;
    return true;
  }
  Restart();
  return true;
}

}  // namespace weir
