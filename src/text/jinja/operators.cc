// SPDX-License-Identifier: Apache-2.0
// Arithmetic and comparisons, with Python's rules. Whole numbers have 64 bits; what does not fit is an error.
#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja/machine.h"
#include "text/jinja/python_format.h"
#include "text/jinja/text_ops.h"

namespace weir::jinja {
namespace {

// nullopt: it does not fit.
std::optional<int64_t> WholePower(int64_t base, int64_t exponent) {
  int64_t out = 1;
  while (true) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(out, base, &out)) return std::nullopt;
    exponent >>= 1;
    if (exponent == 0) return out;
    if (__builtin_mul_overflow(base, base, &base)) return std::nullopt;
  }
}

Value WholeNumbers(Machine& machine, std::string_view op, int64_t a, int64_t b) {
  int64_t out = 0;
  bool fits = true;
  if (op == "+") {
    fits = !__builtin_add_overflow(a, b, &out);
  } else if (op == "-") {
    fits = !__builtin_sub_overflow(a, b, &out);
  } else if (op == "*") {
    fits = !__builtin_mul_overflow(a, b, &out);
  } else if (op == "**") {
    if (b < 0) {
      if (a == 0) return machine.Fail("0 to a negative power");
      return std::pow(static_cast<double>(a), static_cast<double>(b));
    }
    const auto power = WholePower(a, b);
    fits = power.has_value();
    out = power.value_or(0);
  } else if (b == 0) {
    return machine.Fail("division by zero");
  } else if (op == "/") {
    return static_cast<double>(a) / static_cast<double>(b);
  } else if (b == -1) {  // the least number divided by -1 does not fit
    fits = op == "%" || !__builtin_sub_overflow(int64_t{0}, a, &out);
  } else {
    const int64_t rest = a % b, whole = a / b;
    const bool below = rest != 0 && (rest < 0) != (b < 0);
    out = op == "%" ? rest + (below ? b : 0) : whole - (below ? 1 : 0);
  }
  return fits ? Value(out) : machine.Fail("a number is too large");
}

Value RealNumbers(Machine& machine, std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") {
    const double out = std::pow(a, b);
    if ((a == 0 && b < 0) || (std::isnan(out) && !std::isnan(a) && !std::isnan(b)) ||
        (std::isinf(out) && std::isfinite(a) && std::isfinite(b))) {
      return machine.Fail("a power that is no number");
    }
    return out;
  }
  if (b == 0) return machine.Fail("division by zero");
  if (op == "/") return a / b;
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) {
    rest += b;
  } else if (rest == 0) {
    rest = std::copysign(0.0, b);
  }
  if (op == "%") return rest;
  const double whole = (a - rest) / b, floor = std::floor(whole);
  return whole - floor > 0.5 ? floor + 1 : floor;
}

// "ab" * 3, [1] * 3.
Value Repeated(Machine& machine, const Value& of, int64_t times) {
  times = std::max<int64_t>(times, 0);
  const Text* text = of.text();
  const int64_t size =
      text != nullptr ? text->cost() + 1 : static_cast<int64_t>(of.seq()->items.size() * sizeof(Value));
  if (text != nullptr ? text->empty() : size == 0) times = 0;
  int64_t cost = 0;
  machine.Charge(__builtin_mul_overflow(size, times, &cost) ? std::numeric_limits<int64_t>::max() / 4 : cost);
  if (!machine.ok()) return Value();
  if (text != nullptr) {
    Text out;
    for (int64_t i = 0; i < times; ++i) out.Append(*text);
    return out;
  }
  std::vector<Value> items;
  for (int64_t i = 0; i < times; ++i) items.insert(items.end(), of.seq()->items.begin(), of.seq()->items.end());
  return machine.NewSeq(std::move(items), of.seq()->kind);
}

bool IsListOrTuple(const Value& value) {
  const Seq* seq = value.seq();
  return seq != nullptr && (seq->kind == SeqKind::kList || seq->kind == SeqKind::kTuple);
}

}  // namespace

Value Machine::Arithmetic(std::string_view op, const Value& a, const Value& b) {
  if (a.is_undefined() || b.is_undefined()) return Fail("'" + std::string(op) + "' with an undefined value");
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return RealNumbers(*this, op, a.number(), b.number());
    return WholeNumbers(*this, op, a.integer(), b.integer());
  }
  const Text *x = a.text(), *y = b.text();
  if (op == "%" && x != nullptr) return FormatPercent(*this, *x, b);
  if (op == "+" && x != nullptr && y != nullptr) {
    Charge(x->cost() + y->cost() + 32);
    if (!ok()) return Value();
    if (!x->is_markup() && !y->is_markup()) {
      Text out = *x;
      out.Append(*y);
      return out;
    }
    Charge((x->cost() + y->cost()) * 5);
    if (!ok()) return Value();
    Text out = x->is_markup() ? *x : Escaped(*x);
    out.Append(y->is_markup() ? *y : Escaped(*y));
    out.set_markup();
    return NewText(std::move(out));
  }
  if (op == "+" && IsListOrTuple(a) && IsListOrTuple(b) && a.seq()->kind == b.seq()->kind) {
    Charge(static_cast<int64_t>((a.seq()->items.size() + b.seq()->items.size()) * sizeof(Value)));
    if (!ok()) return Value();
    std::vector<Value> items = a.seq()->items;
    items.insert(items.end(), b.seq()->items.begin(), b.seq()->items.end());
    return NewSeq(std::move(items), a.seq()->kind);
  }
  if (op == "*") {
    const bool left = x != nullptr || IsListOrTuple(a), right = y != nullptr || IsListOrTuple(b);
    if (left && (b.is_int() || b.is_bool())) return Repeated(*this, a, b.integer());
    if (right && (a.is_int() || a.is_bool())) return Repeated(*this, b, a.integer());
  }
  return Fail("'" + std::string(op) + "' between " + TypeName(a) + " and " + TypeName(b));
}

bool Machine::Less(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return a.number() < b.number();
    return a.integer() < b.integer();
  }
  Charge(std::min(WeightOf(a), WeightOf(b)));
  // UTF-8 has the order of its code points.
  if (const Text* x = a.text(), *y = b.text(); x != nullptr && y != nullptr) return x->view() < y->view();
  if (IsListOrTuple(a) && IsListOrTuple(b) && a.seq()->kind == b.seq()->kind) {
    const auto &x = a.seq()->items, &y = b.seq()->items;
    for (size_t i = 0; ok() && i < std::min(x.size(), y.size()); ++i) {
      if (!Same(x[i], y[i])) return Less(x[i], y[i]);
    }
    return x.size() < y.size();
  }
  Fail("'<' between " + std::string(TypeName(a)) + " and " + TypeName(b));
  return false;
}

bool Machine::In(const Value& item, const Value& container) {
  if (container.is_undefined()) return false;
  if (const Text* text = container.text()) {
    if (item.text() == nullptr) {
      Fail(std::string("'in' a str needs a str, not ") + TypeName(item));
      return false;
    }
    ChargeSearch(text->view(), item.text()->view());
    if (!ok()) return false;
    return text->view().find(item.text()->view()) != std::string_view::npos;
  }
  if (const Dict* dict = container.dict()) {
    if (item.dict() != nullptr || (item.seq() != nullptr && item.seq()->kind == SeqKind::kList)) {
      Fail(std::string(TypeName(item)) + " cannot be the key of a dict");
      return false;
    }
    return Look(*dict, item) != nullptr;
  }
  std::vector<Value> items;
  if (!Items(container, &items)) return false;
  return std::any_of(items.begin(), items.end(), [&](const Value& one) { return ok() && Same(one, item); });
}

bool Machine::Compare(std::string_view op, const Value& a, const Value& b) {
  if (op == "==") return Same(a, b);
  if (op == "!=") return !Same(a, b);
  if (op == "in") return In(a, b);
  if (op == "not in") return !In(a, b);
  if (a.is_undefined() || b.is_undefined()) {
    Fail("'" + std::string(op) + "' with an undefined value");
    return false;
  }
  if (op == "<") return Less(a, b);
  if (op == ">") return Less(b, a);
  // Not the opposite of the other order: nothing holds for what is not a number.
  if (a.is_float() || b.is_float()) {
    if (a.is_number() && b.is_number()) return op == "<=" ? a.number() <= b.number() : a.number() >= b.number();
  }
  return op == "<=" ? !Less(b, a) : !Less(a, b);
}

}  // namespace weir::jinja
