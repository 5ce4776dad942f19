// SPDX-License-Identifier: Apache-2.0
#include "text/dialects/tagged_reader.h"

#include <fmt/core.h>
#include <utility>

#include "io/json.h"
#include "text/tool_table.h"

namespace weir {
namespace {

constexpr size_t kMaxKeyText = 4096;

// The inside of a JSON string. Bytes may be any part of a character.
std::string EscapedBytes(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

TaggedReader::TaggedReader(const TaggedForm& form, const DialectOptions& options, PartSink& sink)
    : TextReader(sink), form_(form), options_(options) {
  starts_.assign(form.opens.begin(), form.opens.end());
  if (!form.call.empty()) starts_.push_back(form.call);
  after_name_ = {form.name_end, form.parameter};
  in_body_ = {form.parameter};
  if (!form.close.empty()) in_body_.push_back(form.close);
  in_body_.insert(in_body_.end(), form.closes.begin(), form.closes.end());
  after_name_.insert(after_name_.end(), in_body_.begin() + 1, in_body_.end());
}

bool TaggedReader::Step(bool last) {
  switch (stage_) {
    case Stage::kContent:
      return ReadContent(last);
    case Stage::kOpened:
      return ReadOpened(last);
    case Stage::kName:
      return ReadName(last);
    case Stage::kBody:
      return ReadBody(last);
    case Stage::kKey:
      return ReadKey(last);
    case Stage::kBeforeValue: {
      std::string dropped;
      if (ScanTo({&form_.value, 1}, last, &dropped) < 0) return false;
      stage_ = Stage::kValue;
      return true;
    }
    case Stage::kValue:
      return ReadValue(last);
    case Stage::kAfter:
      return ReadAfter(last);
  }
  return false;
}

bool TaggedReader::ReadContent(bool last) {
  std::string text;
  const int found = ScanTo(starts_, last, &text);
  sink_.Content(text);
  if (found < 0) return false;
  const auto start = static_cast<size_t>(found);
  Try(starts_[start]);
  name_.clear();
  stage_ = start < form_.opens.size() && !form_.call.empty() ? Stage::kOpened : Stage::kName;
  return true;
}

bool TaggedReader::ReadOpened(bool last) {
  SkipSpace();
  if (rest().empty() && !last) return false;
  const Begins begins = At(form_.call, last);
  if (begins == Begins::kMaybe) return false;
  if (begins == Begins::kYes) {
    Take(form_.call.size());
    stage_ = Stage::kName;
  } else {
    GiveUp();
  }
  return true;
}

bool TaggedReader::ReadName(bool last) {
  if (name_.empty()) SkipSpace();
  const int found = ScanTo(after_name_, last, &name_, kMaxToolNameBytes);
  if (found == kNoMarker && !last) return false;
  // The name may be quoted.
  std::string_view name = Trimmed(name_);
  name = name.substr(0, name.find('"'));
  if (found < 0 || !IsToolName(name)) {
    GiveUp();
    return true;
  }
  name_ = std::string(name);
  Commit();
  sink_.BeginCall(name_);
  has_arguments_ = false;
  stage_ = Stage::kBody;
  if (found == 1) {
    key_.clear();
    stage_ = Stage::kKey;
  }
  if (found > 1) EndCall();
  return true;
}

bool TaggedReader::ReadBody(bool last) {
  std::string dropped;
  const int found = ScanTo(in_body_, last, &dropped);
  if (found < 0) return false;
  key_.clear();
  stage_ = Stage::kKey;
  if (found > 0) EndCall();
  return true;
}

bool TaggedReader::ReadKey(bool last) {
  const int found = ScanTo({&form_.key_end, 1}, last, &key_, kMaxKeyText);
  if (found == kNoMarker) return false;
  const std::string_view text = Trimmed(key_);
  const size_t quote = text.find('"');
  const std::string_view key = text.substr(0, quote);
  takes_ = options_.tools == nullptr ? ParameterTakes::kUnknown : options_.tools->Parameter(name_, key);
  if (quote != text.npos && text.find("string=\"true", quote) != text.npos) takes_ = ParameterTakes::kText;
  if (quote != text.npos && text.find("string=\"false", quote) != text.npos) takes_ = ParameterTakes::kOther;
  sink_.Arguments(std::string(has_arguments_ ? ", \"" : "{\"") + EscapedBytes(key) + "\": ");
  if (takes_ == ParameterTakes::kText) sink_.Arguments("\"");
  has_arguments_ = true;
  value_.clear();
  value_begun_ = false;
  stage_ = form_.value.empty() ? Stage::kValue : Stage::kBeforeValue;
  return true;
}

void TaggedReader::AddValue(std::string_view text) {
  value_ += text;
  if (form_.lines && !value_begun_ && !value_.empty()) {
    if (value_[0] == '\n') value_.erase(0, 1);
    value_begun_ = true;
  }
  if (takes_ != ParameterTakes::kText) return;
  // A line's end may be the last one, which belongs to the tag.
  const size_t n = form_.lines && value_.ends_with('\n') ? value_.size() - 1 : value_.size();
  sink_.Arguments(EscapedBytes(std::string_view(value_).substr(0, n)));
  value_.erase(0, n);
}

void TaggedReader::EndValue() {
  if (takes_ == ParameterTakes::kText) {
    sink_.Arguments("\"");
    return;
  }
  if (form_.lines && value_.ends_with('\n')) value_.pop_back();
  const std::string_view text = Trimmed(value_);
  const bool is_json = takes_ == ParameterTakes::kTextOrNull ? text == "null" : Json::accept(text);
  sink_.Arguments(is_json ? std::string(text) : "\"" + EscapedBytes(value_) + "\"");
}

bool TaggedReader::ReadValue(bool last) {
  std::string text;
  const int found = ScanTo({&form_.value_end, 1}, last, &text);
  AddValue(text);
  if (found < 0) return false;
  // Where calls are held to a form, JSON that is not whole has the marker within a text of its own.
  if (options_.held && takes_ == ParameterTakes::kOther && !Json::accept(Trimmed(value_))) {
    AddValue(form_.value_end);
    return true;
  }
  EndValue();
  stage_ = Stage::kBody;
  return true;
}

void TaggedReader::EndCall() {
  if (has_arguments_) sink_.Arguments("}");
  sink_.EndCall();
  stage_ = Stage::kAfter;
}

bool TaggedReader::ReadAfter(bool last) {
  SkipSpace();
  if (rest().empty()) return false;
  for (const std::string_view close : form_.closes) {
    const Begins begins = At(close, last);
    if (begins == Begins::kMaybe) return false;
    if (begins == Begins::kYes) {
      Take(close.size());
      break;
    }
  }
  stage_ = Stage::kContent;
  return true;
}

}  // namespace weir
