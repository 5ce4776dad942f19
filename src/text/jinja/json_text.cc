// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/json_text.h"

#include <fmt/core.h>
#include <algorithm>
#include <cmath>

#include "base/utf8.h"
#include "text/jinja/numbers.h"

namespace weir::jinja {
namespace {

class JsonPrinter {
 public:
  JsonPrinter(Machine& machine, const JsonForm& form) : m_(machine), form_(form) {}

  Text Take() { return std::move(out_); }

  void Print(const Value& value, int level) {
    if (!m_.ok()) return;
    if (const Text* text = value.text()) {
      String(*text);
    } else if (const Dict* dict = value.dict()) {
      Object(*dict, level);
    } else if (const Seq* seq = value.seq(); seq != nullptr && seq->kind <= SeqKind::kTuple) {
      Array(*seq, level);
    } else if (value.is_none() || value.is_number()) {
      out_.Append(Scalar(value), false);
    } else {
      m_.Fail(std::string(TypeName(value)) + " has no form in JSON");
    }
  }

 private:
  static std::string Scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_bool()) return value.boolean() ? "true" : "false";
    if (value.is_int()) return std::to_string(value.integer());
    const double number = value.number();
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return FloatText(number);
  }

  void NewLine(int level) {
    if (!form_.indent) return;
    out_.Append("\n", false);
    m_.Charge((form_.indent->cost() + 1) * level);
    for (int i = 0; m_.ok() && i < level; ++i) out_.Append(*form_.indent);
  }

  void Array(const Seq& seq, int level) {
    if (seq.items.empty()) return out_.Append("[]", false);
    out_.Append("[", false);
    for (size_t i = 0; m_.ok() && i < seq.items.size(); ++i) {
      m_.Charge(form_.item_separator.cost() + form_.key_separator.cost() + 64);
      if (i > 0) out_.Append(form_.item_separator);
      NewLine(level + 1);
      Print(seq.items[i], level + 1);
    }
    NewLine(level);
    out_.Append("]", false);
  }

  void Object(const Dict& dict, int level) {
    if (dict.items.empty()) return out_.Append("{}", false);
    std::vector<std::pair<Value, Value>> items = dict.items;
    if (form_.sort_keys) {
      std::stable_sort(items.begin(), items.end(),
                       [&](const auto& a, const auto& b) { return m_.ok() && m_.Less(a.first, b.first); });
    }
    out_.Append("{", false);
    for (size_t i = 0; m_.ok() && i < items.size(); ++i) {
      m_.Charge(form_.item_separator.cost() + form_.key_separator.cost() + 64);
      if (i > 0) out_.Append(form_.item_separator);
      NewLine(level + 1);
      const Value& key = items[i].first;
      if (const Text* text = key.text()) {
        String(*text);
      } else if (key.is_none() || key.is_number()) {
        out_.Append("\"" + Scalar(key) + "\"", false);
      } else {
        m_.Fail(std::string(TypeName(key)) + " cannot be a key in JSON");
      }
      out_.Append(form_.key_separator);
      Print(items[i].second, level + 1);
    }
    NewLine(level);
    out_.Append("}", false);
  }

  void String(const Text& text) {
    m_.Charge(static_cast<int64_t>(text.size()) * 4);
    if (!m_.ok()) return;
    const std::string_view bytes = text.view();
    out_.Append("\"", false);
    size_t plain = 0;  // from here on nothing needs an escape
    for (size_t pos = 0; pos < bytes.size();) {
      const auto c = static_cast<unsigned char>(bytes[pos]);
      if (c >= 0x20 && c != '"' && c != '\\' && (c < 0x80 || !form_.ascii) && c != 0x7F) {
        ++pos;
        continue;
      }
      out_.AppendPart(text, plain, pos);
      const Utf8Char one = DecodeUtf8(bytes, pos);
      out_.Append(Escape(one.cp), text.GivenAt(pos));
      pos += static_cast<size_t>(one.bytes);
      plain = pos;
    }
    out_.AppendPart(text, plain, bytes.size());
    out_.Append("\"", false);
  }

  std::string Escape(char32_t c) const {
    switch (c) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\f':
        return "\\f";
      case '\b':
        return "\\b";
      case 0x7F:
        return "\x7f";
      default:
        break;
    }
    const auto cp = static_cast<uint32_t>(c);
    if (cp < 0x10000) return fmt::format("\\u{:04x}", cp);
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((cp - 0x10000) >> 10), 0xDC00 + ((cp - 0x10000) & 0x3FF));
  }

  Machine& m_;
  const JsonForm& form_;
  Text out_;
};

}  // namespace

Value JsonOf(Machine& machine, const Value& value, const JsonForm& form) {
  machine.Charge(WeightOf(value) * 2);
  if (!machine.ok()) return Value();
  JsonPrinter printer(machine, form);
  printer.Print(value, 0);
  return machine.NewText(printer.Take());
}

}  // namespace weir::jinja
