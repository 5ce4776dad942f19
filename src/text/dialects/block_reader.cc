// SPDX-License-Identifier: Apache-2.0
#include "text/dialects/block_reader.h"

#include <optional>
#include <utility>

#include "io/json.h"

namespace weir {
namespace {

constexpr int kMaxLiteralDepth = 32;
constexpr size_t kMaxNotedCalls = 256;

bool IsWordLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsWordDigit(char c) { return c >= '0' && c <= '9'; }

// Literals, with a few words and brackets that differ between notations.
class Notation {
 public:
  // An empty quote: Python's own.
  Notation(std::string_view text, std::string_view quote) : text_(text), quote_(quote) {}

  bool done() {
    Skip();
    return at_ == text_.size();
  }
  bool Take(std::string_view word) {
    Skip();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  std::string Name() {
    Skip();
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (IsWordLetter(text_[at_]) || IsWordDigit(text_[at_]) || text_[at_] == '.' || text_[at_] == '-')) {
      ++at_;
    }
    return std::string(text_.substr(begin, at_ - begin));
  }
  // nullopt: none stands here.
  std::optional<Json> Literal(int depth = 0) {
    Skip();
    if (depth > kMaxLiteralDepth || at_ == text_.size()) return std::nullopt;
    if (!quote_.empty() && Take(quote_)) return Quoted();
    const char c = text_[at_];
    if (c == '"' || c == '\'') return PythonText();
    if (c == '[' || c == '(') return List(depth, c == '[' ? "]" : ")");
    if (c == '{') return Object(depth);
    const size_t begin = at_;
    while (at_ < text_.size() && (IsWordLetter(text_[at_]) || IsWordDigit(text_[at_]) || text_[at_] == '.' ||
                                  text_[at_] == '-' || text_[at_] == '+')) {
      ++at_;
    }
    const std::string word(text_.substr(begin, at_ - begin));
    if (word == "True" || word == "true") return Json(true);
    if (word == "False" || word == "false") return Json(false);
    if (word == "None" || word == "null") return Json(nullptr);
    Json number = Json::parse(word, nullptr, /*allow_exceptions=*/false);
    if (!number.is_number()) return std::nullopt;
    return number;
  }

 private:
  void Skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }
  std::optional<Json> Quoted() {
    const size_t end = text_.find(quote_, at_);
    if (end == text_.npos) return std::nullopt;
    Json out = std::string(text_.substr(at_, end - at_));
    at_ = end + quote_.size();
    return out;
  }
  std::optional<Json> PythonText() {
    if (text_[at_] == '"') {  // perhaps as JSON writes it, with escapes of its own
      size_t end = at_ + 1;
      while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
      if (end < text_.size()) {
        Json quoted = Json::parse(text_.substr(at_, end + 1 - at_), nullptr, /*allow_exceptions=*/false);
        if (quoted.is_string()) {
          at_ = end + 1;
          return quoted;
        }
      }
    }
    const char quote = text_[at_++];
    std::string out;
    for (; at_ < text_.size() && text_[at_] != quote; ++at_) {
      char c = text_[at_];
      if (c == '\\' && at_ + 1 < text_.size()) {
        c = text_[++at_];
        if (c == 'n') c = '\n';
        if (c == 't') c = '\t';
        if (c == 'r') c = '\r';
      }
      out += c;
    }
    if (at_ == text_.size()) return std::nullopt;
    ++at_;
    return Json(out);
  }
  std::optional<Json> List(int depth, std::string_view end) {
    ++at_;
    Json out = Json::array();
    while (!Take(end)) {
      auto value = Literal(depth + 1);
      if (!value) return std::nullopt;
      out.push_back(*std::move(value));
      if (!Take(",")) return Take(end) ? std::optional<Json>(std::move(out)) : std::nullopt;
    }
    return out;
  }
  std::optional<Json> Object(int depth) {
    ++at_;
    Json out = Json::object();
    while (!Take("}")) {
      std::string key = Name();
      if (key.empty()) {
        const auto quoted = Literal(depth + 1);
        if (!quoted || !quoted->is_string()) return std::nullopt;
        key = quoted->get<std::string>();
      }
      if (!Take(":")) return std::nullopt;
      auto value = Literal(depth + 1);
      if (!value) return std::nullopt;
      if (out.size() < static_cast<size_t>(kMaxJsonKeysOfOne)) out[key] = *std::move(value);
      if (!Take(",")) return Take("}") ? std::optional<Json>(std::move(out)) : std::nullopt;
    }
    return out;
  }

  const std::string_view text_, quote_;
  size_t at_ = 0;
};

// name(key=value, ...)
bool PythonCall(Notation& text, NotedCall* out) {
  out->name = text.Name();
  // Llama's own tools are written as objects with one method.
  if (out->name.ends_with(".call")) out->name.resize(out->name.size() - 5);
  if (!IsToolName(out->name) || !text.Take("(")) return false;
  Json arguments = Json::object();
  for (bool more = true; more && !text.Take(")");) {
    const std::string key = text.Name();
    if (key.empty() || !text.Take("=")) return false;
    auto value = text.Literal();
    if (!value || arguments.size() >= static_cast<size_t>(kMaxJsonKeysOfOne)) return false;
    arguments[key] = *std::move(value);
    more = text.Take(",");
    if (!more && !text.Take(")")) return false;
  }
  out->arguments = JsonText(arguments);
  return true;
}

}  // namespace

bool BlockReader::Step(bool last) {
  if (!in_block_) {
    std::string text;
    const int found = ScanTo(form_.opens, last, &text);
    sink_.Content(text);
    if (found < 0) return false;
    Try(form_.opens[static_cast<size_t>(found)]);
    in_block_ = true;
    block_.clear();
    return true;
  }
  const int found = ScanTo(form_.closes, last, &block_);
  if (found < 0 && !last) return false;
  const std::vector<NotedCall> calls = form_.understand(block_);
  // Where calls are held to a form, a block that says nothing has the marker within a text of its own.
  if (calls.empty() && held_ && found >= 0) {
    block_ += form_.closes[static_cast<size_t>(found)];
    return true;
  }
  if (calls.empty()) {
    GiveUp();
    return true;
  }
  Commit();
  for (const NotedCall& call : calls) {
    sink_.BeginCall(call.name);
    sink_.Arguments(call.arguments);
    sink_.EndCall();
  }
  Restart();
  return true;
}

std::vector<NotedCall> UnderstandPython(std::string_view block) {
  Notation text(block, "");
  std::vector<NotedCall> out;
  const bool list = text.Take("[");
  while (!text.done() && out.size() < kMaxNotedCalls) {
    if (list && text.Take("]")) return text.done() ? out : std::vector<NotedCall>();
    const bool printed = text.Take("print(");
    NotedCall call;
    if (!PythonCall(text, &call) || (printed && !text.Take(")"))) return {};
    out.push_back(std::move(call));
    text.Take(list ? "," : ";");
  }
  return list ? std::vector<NotedCall>() : out;
}

std::vector<NotedCall> UnderstandBraces(std::string_view block, std::string_view quote) {
  Notation text(block, quote);
  std::vector<NotedCall> out;
  while (!text.done() && out.size() < kMaxNotedCalls) {
    NotedCall call;
    text.Take(",");
    if (!text.Take("call:")) return {};
    call.name = text.Name();
    auto arguments = text.Literal();
    if (!IsToolName(call.name) || !arguments || !arguments->is_object()) return {};
    call.arguments = JsonText(*arguments);
    out.push_back(std::move(call));
  }
  return out;
}

}  // namespace weir
