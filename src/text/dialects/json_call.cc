// SPDX-License-Identifier: Apache-2.0
#include "text/dialects/json_call.h"

#include <utility>

#include "io/json.h"
#include "text/dialects/text_reader.h"
#include "text/tool_table.h"

namespace weir {
namespace {

constexpr size_t kMaxCallKey = 256;
constexpr int kMaxWrappers = 4;

bool IsJsonSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// The text that a JSON string stands for; nothing if it is none.
std::string UnquotedText(const std::string& quoted) {
  const Json json = Json::parse(quoted, nullptr, /*allow_exceptions=*/false);
  return json.is_string() ? json.get<std::string>() : std::string();
}

}  // namespace

bool JsonSpan::Begin(char c) {
  *this = JsonSpan();
  if (c == '"') {
    kind_ = Kind::kText;
    in_text_ = true;
  } else if (c == '{' || c == '[') {
    kind_ = Kind::kBox;
    depth_ = 1;
  } else {
    return c == '-' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  }
  return true;
}

bool JsonSpan::Push(char c) {
  if (kind_ == Kind::kWord) {
    return c == '-' || c == '+' || c == '.' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z');
  }
  if (in_text_) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_text_ = false;
      closed_ = depth_ == 0;
    }
  } else if (c == '"') {
    in_text_ = true;
  } else if (c == '{' || c == '[') {
    ++depth_;
  } else if (c == '}' || c == ']') {
    closed_ = --depth_ == 0;
  }
  return true;
}

JsonArguments::State JsonArguments::Feed(std::string_view text, size_t* n_used, std::string* out) {
  size_t at = 0;
  *n_used = 0;
  if (!begun_) {
    if (text.empty()) return State::kMore;
    if ((text[0] != '{' && text[0] != '"') || !span_.Begin(text[0])) return State::kFailed;
    begun_ = true;
    at = 1;
  }
  while (at < text.size() && !span_.closed()) {
    span_.Push(text[at]);
    ++at;
  }
  *n_used = at;
  if (!span_.is_text()) {
    out->append(text.substr(0, at));
  } else {
    quoted_ += text.substr(0, at);
    if (span_.closed()) *out += UnquotedText(quoted_);
  }
  return span_.closed() ? State::kDone : State::kMore;
}

JsonCall::State JsonCall::Feed(std::string_view text, size_t* n_used) {
  size_t at = 0;
  while (at < text.size() && stage_ != Stage::kDone) {
    if (stage_ == Stage::kArguments) {  // many bytes at once
      size_t n = 0;
      std::string piece;
      const auto state = argument_reader_.Feed(text.substr(at), &n, &piece);
      if (begun_) {
        sink_.Arguments(piece);
      } else {
        arguments_ += piece;
      }
      at += n;
      if (state == JsonArguments::State::kDone) stage_ = Stage::kNext;
      continue;
    }
    bool again = false;
    if (!Step(text[at], &again)) {
      *n_used = at;
      return State::kFailed;
    }
    at += !again;
  }
  *n_used = at;
  return stage_ == Stage::kDone ? State::kDone : State::kMore;
}

bool JsonCall::Step(char c, bool* again) {
  const bool skips = stage_ != Stage::kInKey && stage_ != Stage::kName && stage_ != Stage::kOther;
  if (skips && IsJsonSpace(c)) return true;
  switch (stage_) {
    case Stage::kOpen:
      depth_ = 1;
      stage_ = Stage::kFirstKey;
      return c == '{';
    case Stage::kFirstKey:
      if (c == '}') return EndObject();
      [[fallthrough]];
    case Stage::kKey:
      key_ = c;
      stage_ = Stage::kInKey;
      return c == '"';
    case Stage::kInKey:
      if (key_.size() > kMaxCallKey || c == '\\') return false;  // no key of a call
      key_ += c;
      if (c == '"') stage_ = Stage::kColon;
      return true;
    case Stage::kColon:
      stage_ = Stage::kValue;
      return c == ':';
    case Stage::kValue:
      return BeginValue(c, again);
    case Stage::kName:
      if (name_.size() > kMaxToolNameBytes) return false;
      span_.Push(c);
      name_ += c;
      return !span_.closed() || TakeName();
    case Stage::kOther:
      if (!expected_.empty()) {
        if (c != expected_[0]) return false;
        expected_.remove_prefix(1);
      }
      *again = !span_.Push(c);
      if (*again || span_.closed()) stage_ = Stage::kNext;
      return true;
    case Stage::kNext:
      if (c == '}') return EndObject();
      stage_ = Stage::kKey;
      return c == ',';
    case Stage::kArguments:
    case Stage::kDone:
      break;
  }
  return false;
}

bool JsonCall::BeginValue(char c, bool* again) {
  const std::string_view key = std::string_view(key_).substr(1, key_.size() - 2);
  if (keyed_) {
    if (!name_.empty() || !IsToolName(key) || (c != '{' && c != '"')) return false;
    name_ = key;
    has_arguments_ = true;
    stage_ = Stage::kArguments;
    Begin();
    *again = true;
    return true;
  }
  // A bare call that is held to a form begins with its name, or says that it is a function before that. Any other
  // object is an answer.
  if (known_only_ && options_.held && name_.empty()) {
    if ((key != "name" && key != "type") || c != '"') return false;
    if (key == "type") expected_ = "\"function\"";
  }
  const bool names = key == "name" || key == "tool_name" || key == "function_name" || key == "function";
  if (names && c == '"' && name_.empty()) {
    span_.Begin(c);
    name_ = c;
    stage_ = Stage::kName;
    return true;
  }
  const bool wraps = key == "function" || key == "tool_call" || key == "function_call" || key == "call";
  if (wraps && c == '{' && name_.empty() && depth_ <= kMaxWrappers) {
    ++depth_;
    stage_ = Stage::kFirstKey;
    return true;
  }
  const bool has = key == "arguments" || key == "parameters" || key == "args";
  if (has && !has_arguments_ && (c == '{' || c == '"')) {
    has_arguments_ = true;
    stage_ = Stage::kArguments;
    if (!name_.empty()) Begin();
    *again = true;
    return true;
  }
  has_arguments_ |= has;  // null
  stage_ = Stage::kOther;
  if (!expected_.empty()) expected_.remove_prefix(1);  // this byte
  return span_.Begin(c);
}

bool JsonCall::TakeName() {
  if (known_only_ && options_.held && name_.find('\\') != std::string::npos) return false;
  name_ = UnquotedText(name_);
  stage_ = Stage::kNext;
  if (!IsToolName(name_)) return false;
  if (known_only_ && (options_.tools == nullptr || !options_.tools->Knows(name_))) return false;
  if (has_arguments_) Begin();
  return true;
}

void JsonCall::Begin() {
  begun_ = true;
  sink_.BeginCall(name_);
  sink_.Arguments(std::exchange(arguments_, {}));
}

bool JsonCall::EndObject() {
  stage_ = --depth_ == 0 ? Stage::kDone : Stage::kNext;
  if (depth_ > 0) return true;
  if (!begun_ && (name_.empty() || (known_only_ && !has_arguments_))) return false;
  if (!begun_) Begin();
  sink_.EndCall();
  return true;
}

}  // namespace weir
