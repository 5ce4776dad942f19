// SPDX-License-Identifier: Apache-2.0
// Filters that give a number.
#include <cmath>

#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/numbers.h"

namespace weir::jinja {
namespace {

// nullopt when it does not fit.
std::optional<int64_t> Whole(double value) {
  if (!(std::fabs(value) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(value);
}

Value IntFilter(Machine& m, const Value& self, const Args& args) {
  const Value* given = args.Find(0, "default");
  const Value otherwise = given != nullptr ? *given : Value(int64_t{0});
  const int64_t base = WholeArg(m, args, 1, "base", 10);
  if (self.is_undefined()) return m.Fail("an undefined value is no number");
  if (base < 2 || base > 36) return m.Fail("numbers have a base of 2 to 36");
  std::optional<int64_t> out;
  if (const Text* text = self.text()) {
    m.Charge(static_cast<int64_t>(text->size()));
    out = ParseInt(text->view(), static_cast<int>(base));
    if (!out) {
      if (const auto real = ParseFloat(text->view())) out = Whole(*real);
    }
  } else if (self.is_float()) {
    out = Whole(self.number());
  } else if (self.is_number()) {
    out = self.integer();
  }
  return out ? Value(*out) : otherwise;
}

Value FloatFilter(Machine& m, const Value& self, const Args& args) {
  const Value* given = args.Find(0, "default");
  if (self.is_undefined()) return m.Fail("an undefined value is no number");
  if (self.is_number()) return self.number();
  if (const Text* text = self.text()) {
    m.Charge(static_cast<int64_t>(text->size()));
    if (const auto out = ParseFloat(text->view())) return *out;
  }
  return given != nullptr ? *given : Value(0.0);
}

Value AbsFilter(Machine& m, const Value& self, const Args&) {
  if (!self.is_number()) return m.Fail(std::string(TypeName(self)) + " is no number");
  if (self.is_float()) return std::fabs(self.number());
  return self.integer() < 0 ? m.Arithmetic("-", int64_t{0}, self) : Value(self.integer());
}

Value RoundFilter(Machine& m, const Value& self, const Args& args) {
  const int64_t precision = std::clamp<int64_t>(WholeArg(m, args, 0, "precision", 0), -400, 400);
  const Text method = Has(args, 1, "method") ? TextArg(m, args, 1, "method") : Text("common");
  if (!self.is_number()) return m.Fail(std::string(TypeName(self)) + " is no number");
  if (method.view() == "common") {
    if (!self.is_float()) {
      if (precision >= 0) return self.integer();
      const auto rounded = Whole(RoundTo(self.number(), static_cast<int>(precision)));
      return rounded ? Value(*rounded) : m.Fail("a number is too large");
    }
    return RoundTo(self.number(), static_cast<int>(precision));
  }
  if (method.view() != "ceil" && method.view() != "floor")
    return m.Fail("numbers are rounded 'common', 'ceil' or 'floor'");
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = self.number() * unit;
  return (method.view() == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit;
}

constexpr Named kNumberFilters[] = {
    {"int", IntFilter, 0, 2, {"default", "base"}},
    {"float", FloatFilter, 0, 1, {"default"}},
    {"abs", AbsFilter},
    {"round", RoundFilter, 0, 2, {"precision", "method"}},
};

}  // namespace

std::span<const Named> NumberFilters() { return kNumberFilters; }

}  // namespace weir::jinja
