// SPDX-License-Identifier: Apache-2.0
// The values of a running template: Python's, as far as templates can see them.
//
// Lists and dicts never change once they are made (the sandbox of Python's chat templates forbids it too), so values
// share them freely and no circle can be built. Only namespaces and loops change; the machine owns them, and values
// refer to them by plain pointers. Containers count how deep they are nested and how large they are in full, with
// everything that they share counted as often as it occurs; the machine bounds the one and charges for the other, so
// the functions here may recurse.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/text.h"

namespace weir::jinja {

struct Seq;
struct Dict;
struct Iter;
struct Namespace;
struct Loop;
struct Callable;

inline constexpr int kMaxValueDepth = 100;

struct Undefined {};
struct None {};

class Value {
 public:
  // clang-format off
  Value() : rep_(Undefined{}) {}
  Value(Undefined) : Value() {}                                                  // NOLINT: all of these implicit
  Value(None) : rep_(None{}) {}                                                  // NOLINT
  Value(bool b) : rep_(b) {}                                                     // NOLINT
  Value(int64_t n) : rep_(n) {}                                                  // NOLINT
  Value(double d) : rep_(d) {}                                                   // NOLINT
  Value(Text text) : rep_(std::make_shared<const Text>(std::move(text))) {}      // NOLINT
  Value(std::shared_ptr<const Text> text) : rep_(std::move(text)) {}             // NOLINT
  Value(std::shared_ptr<const Seq> seq) : rep_(std::move(seq)) {}                // NOLINT
  Value(std::shared_ptr<const Dict> dict) : rep_(std::move(dict)) {}             // NOLINT
  Value(std::shared_ptr<Iter> iter) : rep_(std::move(iter)) {}                   // NOLINT
  Value(Namespace* space) : rep_(space) {}                                       // NOLINT
  Value(Loop* loop) : rep_(loop) {}                                              // NOLINT
  Value(std::shared_ptr<const Callable> call) : rep_(std::move(call)) {}         // NOLINT
  Value(const char*) = delete;  // would be a bool
  // clang-format on
  // Words that the template (or this engine) wrote.
  static Value Words(std::string words) { return Text(std::move(words)); }

  bool is_undefined() const { return std::holds_alternative<Undefined>(rep_); }
  bool is_none() const { return std::holds_alternative<None>(rep_); }
  bool is_bool() const { return std::holds_alternative<bool>(rep_); }
  bool is_int() const { return std::holds_alternative<int64_t>(rep_); }  // bool excluded
  bool is_float() const { return std::holds_alternative<double>(rep_); }
  // As in Python, bool counts as a number.
  bool is_number() const { return is_bool() || is_int() || is_float(); }

  // nullptr when the value is of another type.
  const Text* text() const { return Held<std::shared_ptr<const Text>>(); }
  const Seq* seq() const { return Held<std::shared_ptr<const Seq>>(); }
  const Dict* dict() const { return Held<std::shared_ptr<const Dict>>(); }
  Iter* iter() const { return Held<std::shared_ptr<Iter>>(); }
  Loop* loop() const {
    Loop* const* held = std::get_if<Loop*>(&rep_);
    return held == nullptr ? nullptr : *held;
  }
  const Callable* call() const { return Held<std::shared_ptr<const Callable>>(); }
  std::shared_ptr<const Callable> shared_call() const { return std::get<std::shared_ptr<const Callable>>(rep_); }
  Namespace* space() const {
    Namespace* const* held = std::get_if<Namespace*>(&rep_);
    return held == nullptr ? nullptr : *held;
  }
  bool boolean() const { return std::get<bool>(rep_); }
  // REQUIRES: is_int() or is_bool().
  int64_t integer() const { return is_bool() ? static_cast<int64_t>(boolean()) : std::get<int64_t>(rep_); }
  // REQUIRES: is_number().
  double number() const { return is_float() ? std::get<double>(rep_) : static_cast<double>(integer()); }

 private:
  template <typename Ptr>
  auto Held() const -> decltype(std::declval<Ptr>().get()) {
    const Ptr* held = std::get_if<Ptr>(&rep_);
    return held == nullptr ? nullptr : held->get();
  }
  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>, std::shared_ptr<const Seq>,
               std::shared_ptr<const Dict>, std::shared_ptr<Iter>, Namespace*, Loop*, std::shared_ptr<const Callable>>
      rep_;
};

// A list, or what Python prints differently but reads alike.
enum class SeqKind { kList, kTuple, kRange, kKeys, kValues, kItems };
struct Seq {
  std::vector<Value> items;
  SeqKind kind = SeqKind::kList;
  int depth = 1;
  int64_t weight = 8;
  int64_t start = 0, stop = 0, step = 1;  // of a range
  bool is_group = false;                  // of groupby: its items have the names `grouper` and `list`, too
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;
  int depth = 1;
  int64_t weight = 8;
  // nullptr if there is none. Linear: objects of a request have at most kMaxJsonKeysOfOne keys.
  const Value* Find(std::string_view key) const;
  const Value* Find(const Value& key) const;
  void Put(Value key, Value value);
};

// What Python's generators are: items that can be read once.
struct Iter {
  std::vector<Value> items;
  size_t at = 0;
  int depth = 1;
  int64_t weight = 8;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> vars;
  const Value* Find(std::string_view name) const;
  void Put(std::string_view name, Value value);
};

// How deep a value is nested; 0 for what holds no others.
int DepthOf(const Value& value);
// About the bytes of the value in full: what comparing or printing it costs. At most kMaxWeight. Dicts weigh their keys
// squared, because comparing two of them looks each one up.
inline constexpr int64_t kMaxWeight = int64_t{1} << 50;
int64_t WeightOf(const Value& value);

Value MakeSeq(std::vector<Value> items, SeqKind kind = SeqKind::kList);
Value MakeIter(std::vector<Value> items);
Value MakeDict(std::vector<std::pair<Value, Value>> items);

// Python's truth. A loop or a namespace is true.
bool Truth(const Value& value);
// Python's ==.
bool Equal(const Value& a, const Value& b);
// Python's name of the type.
const char* TypeName(const Value& value);
// Python's str(): what `{{ value }}` prints. Empty for an undefined value.
Text Str(const Value& value);
// Python's repr().
Text Repr(const Value& value);

}  // namespace weir::jinja
