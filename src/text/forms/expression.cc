// SPDX-License-Identifier: Apache-2.0
#include "text/forms/expression.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace weir::forms {
namespace {

using Kind = Expression::Kind;

bool HasAnchor(const Expression& e) {
  if (e.kind == Kind::kBegin || e.kind == Kind::kEnd) return true;
  return std::any_of(e.parts.begin(), e.parts.end(), HasAnchor);
}

Expression AnyText() { return Expression::Repeat(Expression::Chars(AllChars()), 0, kNoMax); }

}  // namespace

Expression Expression::Chars(CharSet set) {
  Expression out;
  out.kind = Kind::kChars;
  out.set = std::move(set);
  return out;
}

Expression Expression::Text(std::string_view text) {
  Expression out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = DecodeUtf8(text, at);
    at += static_cast<size_t>(c.bytes);
    out.parts.push_back(Chars({{c.cp, c.cp}}));
  }
  return out;
}

Expression Expression::Repeat(Expression part, int32_t min, int32_t max) {
  Expression out;
  out.kind = Kind::kRepeat;
  out.min = min;
  out.max = max;
  out.parts.push_back(std::move(part));
  return out;
}

Expression Expression::OneOf(std::vector<Expression> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  Expression out;
  out.kind = Kind::kOneOf;
  out.parts = std::move(parts);
  return out;
}

Expression Expression::Sequence(std::vector<Expression> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  Expression out;
  out.parts = std::move(parts);
  return out;
}

void Emit(const Expression& e, Writing writing, int32_t from, int32_t to, NetworkBuilder* network) {
  if (network->full()) return;
  switch (e.kind) {
    case Kind::kBegin:
    case Kind::kEnd:
      return network->Empty(from, to);
    case Kind::kSequence:
      if (e.parts.empty()) return network->Empty(from, to);
      for (size_t i = 0; i < e.parts.size(); ++i) {
        const int32_t next = i + 1 == e.parts.size() ? to : network->AddNode();
        Emit(e.parts[i], writing, from, next, network);
        from = next;
      }
      return;
    case Kind::kOneOf:
      for (const Expression& part : e.parts) Emit(part, writing, from, to, network);
      return;
    case Kind::kChars:
      return network->Chars(from, e.set, writing, to);
    case Kind::kRule:
      return network->Call(from, e.rule, to);
    case Kind::kToken:
      return network->Token(from, e.rule, to);
    case Kind::kRepeat:
      break;
  }
  if (e.max == 0) return network->Empty(from, to);
  if (e.max == kNoMax && e.min <= 1) {
    const int32_t before = network->AddNode(), after = e.min == 0 ? before : network->AddNode();
    network->Empty(from, before);
    Emit(e.parts[0], writing, before, after, network);
    network->Empty(after, before);
    return network->Empty(after, to);
  }
  if (e.max == 1) {
    if (e.min == 0) network->Empty(from, to);
    return Emit(e.parts[0], writing, from, to, network);
  }
  const int32_t body = network->AddRule("");
  Emit(e.parts[0], writing, network->StartOf(body), network->EndOf(body), network);
  network->Repeat(from, body, e.min, e.max, to);
}

bool RemoveAnchors(bool search, Expression* e) {
  if (e->kind == Kind::kOneOf) {
    return std::all_of(e->parts.begin(), e->parts.end(),
                       [&](Expression& part) { return RemoveAnchors(search, &part); });
  }
  if (e->kind != Kind::kSequence)
    *e = [&] {
      Expression one;
      one.parts.push_back(std::move(*e));
      return one;
    }();
  auto& parts = e->parts;
  if (parts.size() == 1 && (parts[0].kind == Kind::kOneOf || parts[0].kind == Kind::kSequence)) {
    return RemoveAnchors(search, &parts[0]);
  }
  bool begins = false, ends = false;
  while (!parts.empty() && parts.front().kind == Kind::kBegin) {
    parts.erase(parts.begin());
    begins = true;
  }
  while (!parts.empty() && parts.back().kind == Kind::kEnd) {
    parts.pop_back();
    ends = true;
  }
  if (HasAnchor(*e)) return false;
  if (search && !begins) parts.insert(parts.begin(), AnyText());
  if (search && !ends) parts.push_back(AnyText());
  return true;
}

}  // namespace weir::forms
