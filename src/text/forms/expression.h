// SPDX-License-Identifier: Apache-2.0
// Expressions: what a grammar's rules and a regular expression are made of, as parsed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/forms/char_set.h"
#include "text/forms/network.h"

namespace weir::forms {

// Of groups, so that walking an expression may recurse.
inline constexpr int kMaxExpressionDepth = 200;

struct Expression {
  enum class Kind {
    kSequence,  // parts, one after the other; without parts: nothing is read
    kOneOf,     // one of the parts
    kRepeat,    // parts[0], min to max times
    kChars,     // one character of the set
    kRule,      // rule, of the network
    kToken,     // rule: the id of a control token
    kBegin,     // nothing, at the beginning of the text
    kEnd,       // nothing, at the end of the text
  };
  Kind kind = Kind::kSequence;
  CharSet set;
  int32_t min = 0, max = 0, rule = -1;  // max: or kNoMax
  std::vector<Expression> parts;

  static Expression Chars(CharSet set);
  static Expression Text(std::string_view text);  // valid UTF-8
  static Expression Repeat(Expression part, int32_t min, int32_t max);
  static Expression OneOf(std::vector<Expression> parts);
  static Expression Sequence(std::vector<Expression> parts);
};

// Adds the ways from `from` to `to` that read the expression. kBegin and kEnd read nothing.
void Emit(const Expression& expression, Writing writing, int32_t from, int32_t to, NetworkBuilder* network);

// Parses a regular expression as in JSON schemas (ECMA-262 without flags, by code points): alternatives, groups,
// classes, repetitions, ^ and $, escapes. kInvalidArgument for errors, and for what no automaton can hold: look-around,
// references to groups, \b, \p.
Result<Expression> ParseRegex(std::string_view text);

// The expression without its anchors, so that it reads a whole text: ^ and $ where they must be true are dropped.
// `search`: it may be found anywhere in the text. False if an anchor is in the middle.
bool RemoveAnchors(bool search, Expression* expression);

}  // namespace weir::forms
