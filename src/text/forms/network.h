// SPDX-License-Identifier: Apache-2.0
// The network of a form: what every kind of form (grammar, schema, expression, choices) is compiled to.
//
// A rule is a small automaton over bytes. Its nodes are joined by edges that read a byte, that read nothing, or that
// call another rule and go on where they lead once that rule has ended. A counted node reads a rule a number of times
// without a copy of it for each. A rule ends at its `end` node, from which nothing leads on.
//
// NetworkBuilder collects nodes and edges; Finish() checks them, drops what can never lead to an end, and lays them out
// for forms/automaton.h.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/forms/char_set.h"
#include "text/forms/form_limits.h"

namespace weir::forms {

inline constexpr int32_t kMaxRepeat = 1 << 20;  // of a counted node
inline constexpr int32_t kNoMax = -1;
// A token that is no text, such as <|im_end|>, is spelled with bytes that UTF-8 never contains: this one, and the
// digits of its id, which begin at the other.
inline constexpr uint8_t kTokenByte = 0xFF, kTokenDigit = 0xF5;
std::string SpellToken(int32_t id);

struct Network {
  struct ByteEdge {
    uint8_t lo, hi;
    int32_t to;
  };
  struct CallEdge {
    int32_t start, back;  // the rule's start; where to go on
    bool tail;            // nothing follows in this rule: its caller goes on
  };
  struct Counted {
    int32_t body, min, max, next;  // start of the repeated rule; kNoMax; where to go on
  };
  struct Node {
    int32_t bytes = 0, empties = 0, calls = 0;  // its first edges; the next node's are the ends
    int32_t counted = -1;
    bool is_end = false;
  };
  std::vector<Node> nodes;  // and one more for the ends
  std::vector<ByteEdge> bytes;
  std::vector<int32_t> empties;
  std::vector<CallEdge> calls;
  std::vector<Counted> counted;
  int32_t start = 0;
  std::array<uint8_t, 256> class_of{};  // bytes of one class are read alike everywhere
  std::vector<uint8_t> byte_of;         // a byte of each class
  int n_classes() const { return static_cast<int>(byte_of.size()); }
  int64_t n_bytes() const;  // of memory
};

// How a character is written: as it is, or within a JSON string, where some are escaped in their shortest way.
enum class Writing { kPlain, kJson };

// Nodes, and what is read between two of them. What does not fit into the limits is dropped, and Finish() fails.
class NetworkBuilder {
 public:
  explicit NetworkBuilder(const FormLimits& limits = {}) : max_size_(limits.network), work_(limits.work) {}
  // A rule, without a way from its start to its end yet. `name`: for errors; empty: of no interest to the user.
  int32_t AddRule(std::string name);
  int32_t StartOf(int32_t rule) const { return rules_[static_cast<size_t>(rule)].start; }
  int32_t EndOf(int32_t rule) const { return rules_[static_cast<size_t>(rule)].end; }
  int32_t AddNode();

  void Empty(int32_t from, int32_t to);
  void Byte(int32_t from, uint8_t lo, uint8_t hi, int32_t to);
  void Call(int32_t from, int32_t rule, int32_t to);
  // The rule, `min` to `max` times. REQUIRES: 0 <= min <= kMaxRepeat, min <= max <= kMaxRepeat or max == kNoMax.
  void Repeat(int32_t from, int32_t rule, int32_t min, int32_t max, int32_t to);
  void Text(int32_t from, std::string_view text, int32_t to);
  // One of the texts; common beginnings are shared.
  void Texts(int32_t from, std::vector<std::string> texts, int32_t to);
  void Chars(int32_t from, const CharSet& set, Writing writing, int32_t to);
  // A token that is no text.
  void Token(int32_t from, int32_t id, int32_t to);

  bool full() const { return full_; }
  int64_t size() const { return n_nodes_ + static_cast<int64_t>(edges_.size()); }
  // What is left of it.
  SchemaWork& work() { return work_; }
  // kInvalidArgument: too large, a rule that calls itself before it reads anything, or nothing that can be written at
  // all. `usable[b]`: whether byte b can be written; those of tokens that are no text always can.
  Result<Network> Finish(int32_t root, const std::array<bool, 256>& usable) const;

 private:
  friend class NetworkFinisher;
  struct Edge {
    enum class Kind : uint8_t { kEmpty, kByte, kCall, kRepeat } kind;
    uint8_t lo, hi;
    int32_t from, to, rule;
    int32_t min, max;
  };
  struct Rule {
    int32_t start, end;
    std::string name;
  };
  bool Room();
  void Wide(int32_t from, const CharSet& set, int32_t to);

  std::vector<Rule> rules_;
  std::vector<Edge> edges_;
  int32_t n_nodes_ = 0;
  std::map<CharSet, int32_t> wide_;  // rules that read one character beyond ASCII
  const int64_t max_size_;
  bool full_ = false;
  SchemaWork work_;
};

}  // namespace weir::forms
