// SPDX-License-Identifier: Apache-2.0
// What stands behind `is`.
#include "text/jinja/arguments.h"

namespace weir::jinja {
namespace {

Value IsDefined(Machine&, const Value& self, const Args&) { return !self.is_undefined(); }
Value IsUndefined(Machine&, const Value& self, const Args&) { return self.is_undefined(); }
Value IsNone(Machine&, const Value& self, const Args&) { return self.is_none(); }
Value IsBoolean(Machine&, const Value& self, const Args&) { return self.is_bool(); }
Value IsTrue(Machine&, const Value& self, const Args&) { return self.is_bool() && self.boolean(); }
Value IsFalse(Machine&, const Value& self, const Args&) { return self.is_bool() && !self.boolean(); }
Value IsInteger(Machine&, const Value& self, const Args&) { return self.is_int(); }
Value IsFloat(Machine&, const Value& self, const Args&) { return self.is_float(); }
Value IsNumber(Machine&, const Value& self, const Args&) { return self.is_number(); }
Value IsString(Machine&, const Value& self, const Args&) { return self.text() != nullptr; }
Value IsMapping(Machine&, const Value& self, const Args&) { return self.dict() != nullptr; }
Value IsCallable(Machine&, const Value& self, const Args&) { return self.call() != nullptr || self.is_undefined(); }

Value IsIterable(Machine&, const Value& self, const Args&) {
  return self.is_undefined() || self.text() != nullptr || self.seq() != nullptr || self.dict() != nullptr ||
         self.iter() != nullptr || self.loop() != nullptr;
}

Value IsSequence(Machine&, const Value& self, const Args&) {
  const Seq* seq = self.seq();
  return self.is_undefined() || self.text() != nullptr || self.dict() != nullptr ||
         (seq != nullptr && seq->kind <= SeqKind::kRange);
}

Value IsSameAs(Machine& m, const Value& self, const Args& args) {
  const Value& other = args.pos[0];
  if (self.seq() != nullptr || self.dict() != nullptr) return self.seq() == other.seq() && self.dict() == other.dict();
  if (self.is_bool() != other.is_bool() || self.is_float() != other.is_float()) return false;
  return m.Same(self, other);
}

template <const char* kOp>
Value Compares(Machine& m, const Value& self, const Args& args) {
  return m.Compare(kOp, self, args.pos[0]);
}
constexpr char kEq[] = "==", kNe[] = "!=", kLt[] = "<", kLe[] = "<=", kGt[] = ">", kGe[] = ">=", kInOp[] = "in";

template <const char* kMethod>
Value InItsCase(Machine& m, const Value& self, const Args&) {
  return FindTextMethod(kMethod)->function(m, Value(m.StrOf(self)), {});
}
constexpr char kIsLower[] = "islower", kIsUpper[] = "isupper";

template <int kRest>
Value Parity(Machine& m, const Value& self, const Args&) {
  return m.Same(m.Arithmetic("%", self, int64_t{2}), int64_t{kRest});
}

Value IsDivisibleBy(Machine& m, const Value& self, const Args& args) {
  return m.Same(m.Arithmetic("%", self, args.pos[0]), int64_t{0});
}

Value IsEscaped(Machine&, const Value&, const Args&) { return false; }

Value IsFilter(Machine&, const Value& self, const Args&) {
  return self.text() != nullptr && FindFilter(self.text()->view()) != nullptr;
}
Value IsTest(Machine&, const Value& self, const Args&) {
  return self.text() != nullptr && FindTest(self.text()->view()) != nullptr;
}

constexpr Named kTests[] = {
    {"defined", IsDefined},
    {"undefined", IsUndefined},
    {"none", IsNone},
    {"boolean", IsBoolean},
    {"true", IsTrue},
    {"false", IsFalse},
    {"integer", IsInteger},
    {"float", IsFloat},
    {"number", IsNumber},
    {"string", IsString},
    {"mapping", IsMapping},
    {"iterable", IsIterable},
    {"sequence", IsSequence},
    {"callable", IsCallable},
    {"sameas", IsSameAs, 1, 1},
    {"lower", InItsCase<kIsLower>},
    {"upper", InItsCase<kIsUpper>},
    {"even", Parity<0>},
    {"odd", Parity<1>},
    {"divisibleby", IsDivisibleBy, 1, 1},
    {"escaped", IsEscaped},
    {"filter", IsFilter},
    {"test", IsTest},
    {"in", Compares<kInOp>, 1, 1},
    {"==", Compares<kEq>, 1, 1},
    {"eq", Compares<kEq>, 1, 1},
    {"equalto", Compares<kEq>, 1, 1},
    {"!=", Compares<kNe>, 1, 1},
    {"ne", Compares<kNe>, 1, 1},
    {"<", Compares<kLt>, 1, 1},
    {"lt", Compares<kLt>, 1, 1},
    {"lessthan", Compares<kLt>, 1, 1},
    {"<=", Compares<kLe>, 1, 1},
    {"le", Compares<kLe>, 1, 1},
    {">", Compares<kGt>, 1, 1},
    {"gt", Compares<kGt>, 1, 1},
    {"greaterthan", Compares<kGt>, 1, 1},
    {">=", Compares<kGe>, 1, 1},
    {"ge", Compares<kGe>, 1, 1},
};

}  // namespace

const Named* FindTest(std::string_view name) { return FindIn(kTests, name); }

}  // namespace weir::jinja
