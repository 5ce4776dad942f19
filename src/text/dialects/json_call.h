// SPDX-License-Identifier: Apache-2.0
// JSON inside an answer, byte by byte: where a value ends, and a call written as an object.
#pragma once

#include <string>
#include <string_view>

#include "text/dialects/dialect.h"

namespace weir {

// Follows one JSON value. What is between its brackets is not checked: a model's mistakes are the caller's to see.
class JsonSpan {
 public:
  // The value begins with this byte, which is part of it. False: no value begins so.
  bool Begin(char c);
  // Whether the byte belongs to the value. False: the value ended before it (a number, a word).
  bool Push(char c);
  // The last byte pushed was the value's last.
  bool closed() const { return closed_; }
  bool is_text() const { return kind_ == Kind::kText; }
  bool is_word() const { return kind_ == Kind::kWord; }

 private:
  enum class Kind { kText, kBox, kWord };
  Kind kind_ = Kind::kWord;
  int64_t depth_ = 0;
  bool in_text_ = false, escaped_ = false, closed_ = false;
};

// The arguments of a call: an object, whose text is passed on as it comes, or a text that holds one.
class JsonArguments {
 public:
  enum class State { kMore, kDone, kFailed };
  // Passes on what it takes. kFailed: no value begins here; nothing was taken.
  State Feed(std::string_view text, size_t* n_used, std::string* out);
  void Reset() { *this = JsonArguments(); }

 private:
  JsonSpan span_;
  std::string quoted_;
  bool begun_ = false;
};

// {"name": "f", "arguments": {...}} and what models make of it: other names of the two fields, any order, an object
// around it ({"function": {...}}). Further fields are skipped.
class JsonCall {
 public:
  // `known_only`: a call of a tool that was not offered is none. `keyed`: the object is {NAME: ARGUMENTS}.
  JsonCall(PartSink& sink, const DialectOptions& options, bool known_only, bool keyed = false)
      : sink_(sink), options_(options), known_only_(known_only), keyed_(keyed) {}

  enum class State { kMore, kDone, kFailed };
  // Takes bytes; the first of the call is '{'. kFailed: the byte at *n_used cannot be part of it.
  State Feed(std::string_view text, size_t* n_used);
  // The sink has been told of the call.
  bool begun() const { return begun_; }

 private:
  enum class Stage { kOpen, kFirstKey, kKey, kInKey, kColon, kValue, kName, kArguments, kOther, kNext, kDone };
  // False: the byte cannot be there. *again: the stage changed, and the byte is still to be looked at.
  bool Step(char c, bool* again);
  bool BeginValue(char c, bool* again);
  bool EndObject();
  bool TakeName();
  void Begin();

  PartSink& sink_;
  const DialectOptions& options_;
  const bool known_only_, keyed_;
  Stage stage_ = Stage::kOpen;
  int depth_ = 0;  // objects that are open
  std::string key_, name_;
  std::string arguments_;      // read before the name was known
  std::string_view expected_;  // what a value that is skipped has to be; empty: anything
  JsonSpan span_;
  JsonArguments argument_reader_;
  bool has_arguments_ = false, begun_ = false;
};

}  // namespace weir
