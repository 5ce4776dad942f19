// SPDX-License-Identifier: Apache-2.0
#include "text/forms/char_dfa.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/utf8.h"

namespace weir::forms {
namespace {

Status TooLarge(const DfaWork& work) {
  return InvalidArgument(
      "the expression is too large: held together with its other limits it needs more than {} states", work.max_states);
}

Status TooMuchWork() {
  return InvalidArgument("the expressions are too complex: to hold them together takes too many steps to work out");
}

bool Fits(size_t n_states, size_t n_classes, const DfaWork& work) {
  return static_cast<int64_t>(n_states) <= work.max_states &&
         static_cast<int64_t>(n_states) * static_cast<int64_t>(n_classes) <= work.max_cells;
}

size_t ClassOf(const std::vector<char32_t>& begins, char32_t c) {
  return static_cast<size_t>(std::upper_bound(begins.begin(), begins.end(), c) - begins.begin()) - 1;
}

void CleanBegins(std::vector<char32_t>* begins) {
  begins->push_back(0);
  std::sort(begins->begin(), begins->end());
  begins->erase(std::unique(begins->begin(), begins->end()), begins->end());
}

// An expression's nondeterministic automaton, with copies for repetitions.
class Nfa {
 public:
  explicit Nfa(const DfaWork& limits) : limits_(limits) {}
  struct Edge {
    enum class Kind : uint8_t { kEmpty, kBegin, kEnd, kChars } kind;
    int32_t to;
    CharSet set;
  };

  int32_t Add() {
    nodes_.emplace_back();
    return static_cast<int32_t>(nodes_.size()) - 1;
  }
  bool full() const { return std::ssize(nodes_) > limits_.max_nodes || n_edges_ > limits_.max_edges; }
  void Connect(int32_t from, Edge edge) {
    n_edges_ += 1 + std::ssize(edge.set);
    nodes_[static_cast<size_t>(from)].push_back(std::move(edge));
  }
  void Empty(int32_t from, int32_t to) { Connect(from, {Edge::Kind::kEmpty, to, {}}); }
  const std::vector<std::vector<Edge>>& nodes() const { return nodes_; }

  void Read(const Expression& e, int32_t from, int32_t to) {
    using Kind = Expression::Kind;
    if (full()) return;
    switch (e.kind) {
      case Kind::kBegin:
        return Connect(from, {Edge::Kind::kBegin, to, {}});
      case Kind::kEnd:
        return Connect(from, {Edge::Kind::kEnd, to, {}});
      case Kind::kChars:
        return Connect(from, {Edge::Kind::kChars, to, e.set});
      case Kind::kOneOf:
        for (const Expression& part : e.parts) Read(part, from, to);
        return;
      case Kind::kSequence:
        for (const Expression& part : e.parts) {
          const int32_t next = Add();
          Read(part, from, next);
          from = next;
        }
        return Empty(from, to);
      case Kind::kRepeat:
        break;
      case Kind::kRule:
      case Kind::kToken:
        return;  // not in regular expressions
    }
    for (int32_t i = 0; i < e.min && !full(); ++i) {
      const int32_t next = Add();
      Read(e.parts[0], from, next);
      from = next;
    }
    if (e.max == kNoMax) {
      const int32_t before = Add(), after = Add();
      Empty(from, before);
      Read(e.parts[0], before, after);
      Empty(after, before);
      return Empty(before, to);
    }
    Empty(from, to);
    for (int32_t i = e.min; i < e.max && !full(); ++i) {
      const int32_t next = Add();
      Read(e.parts[0], from, next);
      Empty(next, to);
      from = next;
    }
  }

 private:
  const DfaWork limits_;
  std::vector<std::vector<Edge>> nodes_;
  int64_t n_edges_ = 0;  // and their ranges
};

// Sets of the nodes of an automaton become states.
class Determiniser {
 public:
  Determiniser(const Nfa& nfa, int32_t final, const DfaWork& limits)
      : nfa_(nfa), final_(final), limits_(limits), mark_(nfa.nodes().size(), 0) {}
  int64_t work() const { return work_; }

  Result<CharDfa> Run(int32_t start) {
    for (const auto& edges : nfa_.nodes()) {
      for (const Nfa::Edge& edge : edges) {
        for (const CharRange& r : edge.set) {
          out_.begins.push_back(r.lo);
          if (r.hi < kMaxChar) out_.begins.push_back(r.hi + 1);
        }
      }
    }
    CleanBegins(&out_.begins);
    Intern({});
    Intern(Closed({start}, /*at_begin=*/true, false), /*at_begin=*/true);
    for (size_t s = 1; s < sets_.size(); ++s) {
      const std::vector<int32_t> set = sets_[s];
      for (size_t c = 0; c < out_.n_classes(); ++c) {
        std::vector<int32_t> to;
        for (const int32_t node : set) {
          for (const Nfa::Edge& edge : nfa_.nodes()[static_cast<size_t>(node)]) {
            if (edge.kind != Nfa::Edge::Kind::kChars) continue;
            work_ += 1 + std::ssize(edge.set) / 8;
            const char32_t ch = out_.begins[c];
            const auto it = std::upper_bound(edge.set.begin(), edge.set.end(), ch,
                                             [](char32_t x, const CharRange& r) { return x < r.lo; });
            if (it != edge.set.begin() && ch <= std::prev(it)->hi) to.push_back(edge.to);
          }
        }
        out_.next[s * out_.n_classes() + c] = Intern(Closed(std::move(to), false, false), false);
        ++work_;
        if (!Fits(sets_.size(), out_.n_classes(), limits_) || work_ > kMaxDfaWork) return TooLarge(limits_);
        if (work_ > limits_.steps) return TooMuchWork();
      }
    }
    return std::move(out_);
  }

 private:
  std::vector<int32_t> Closed(std::vector<int32_t> nodes, bool at_begin, bool at_end) {
    ++stamp_;
    std::vector<int32_t> out, todo;
    const auto add = [&](int32_t node) {
      if (std::exchange(mark_[static_cast<size_t>(node)], stamp_) != stamp_) {
        out.push_back(node);
        todo.push_back(node);
      }
    };
    for (const int32_t node : nodes) add(node);
    while (!todo.empty()) {
      const int32_t node = todo.back();
      todo.pop_back();
      for (const Nfa::Edge& edge : nfa_.nodes()[static_cast<size_t>(node)]) {
        ++work_;
        const bool open = edge.kind == Nfa::Edge::Kind::kEmpty || (at_begin && edge.kind == Nfa::Edge::Kind::kBegin) ||
                          (at_end && edge.kind == Nfa::Edge::Kind::kEnd);
        if (open) add(edge.to);
      }
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  int32_t Intern(std::vector<int32_t> set, bool at_begin = false) {
    work_ += std::ssize(set);
    if (!at_begin) {  // the start state is at the beginning, which no other one with its nodes is
      const auto [it, is_new] = ids_.try_emplace(set, static_cast<int32_t>(sets_.size()));
      if (!is_new) return it->second;
    }
    const std::vector<int32_t> at_end = Closed(set, at_begin, true);
    out_.accepts.push_back(std::binary_search(at_end.begin(), at_end.end(), final_));
    out_.next.resize(out_.next.size() + out_.n_classes(), 0);
    sets_.push_back(std::move(set));
    return static_cast<int32_t>(sets_.size()) - 1;
  }

  const Nfa& nfa_;
  const int32_t final_;
  const DfaWork limits_;
  CharDfa out_;
  std::vector<std::vector<int32_t>> sets_;
  std::map<std::vector<int32_t>, int32_t> ids_;
  std::vector<int32_t> mark_;
  int32_t stamp_ = 0;
  int64_t work_ = 0;
};

CharDfa Blank(std::vector<char32_t> begins) {
  CharDfa out;
  out.begins = std::move(begins);
  out.next.assign(out.n_classes() * 2, 0);
  out.accepts = {false, false};
  return out;
}

}  // namespace

Result<CharDfa> DfaOf(const Expression& expression, bool search, DfaWork* work) {
  Nfa nfa(*work);
  const int32_t start = nfa.Add(), first = nfa.Add(), last = nfa.Add(), final = nfa.Add();
  nfa.Empty(start, first);
  nfa.Read(expression, first, last);
  nfa.Empty(last, final);
  if (search) {
    nfa.Connect(first, {Nfa::Edge::Kind::kChars, first, AllChars()});
    nfa.Connect(final, {Nfa::Edge::Kind::kChars, final, AllChars()});
  }
  if (nfa.full()) return TooLarge(*work);
  Determiniser determiniser(nfa, final, *work);
  auto out = determiniser.Run(start);
  work->steps -= determiniser.work();
  return out;
}

Result<CharDfa> DfaOfTexts(const std::vector<std::string>& texts, const DfaWork& work) {
  std::vector<char32_t> begins;
  for (const std::string& text : texts) {
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = DecodeUtf8(text, at);
      at += static_cast<size_t>(c.bytes);
      begins.push_back(c.cp);
      begins.push_back(c.cp + 1);
    }
  }
  CleanBegins(&begins);
  CharDfa out = Blank(std::move(begins));
  for (const std::string& text : texts) {
    size_t state = 1;
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = DecodeUtf8(text, at);
      at += static_cast<size_t>(c.bytes);
      const size_t cell = state * out.n_classes() + ClassOf(out.begins, c.cp);
      if (out.next[cell] == 0) {
        if (!Fits(out.accepts.size() + 1, out.n_classes(), work)) return TooLarge(work);
        out.next[cell] = static_cast<int32_t>(out.accepts.size());
        out.accepts.push_back(false);
        out.next.resize(out.next.size() + out.n_classes(), 0);
      }
      state = static_cast<size_t>(out.next[cell]);
    }
    out.accepts[state] = true;
  }
  return out;
}

Result<CharDfa> DfaOfLength(int64_t min, int64_t max, const DfaWork& work) {
  const int64_t n = max < 0 ? min : max;
  if (n + 2 > work.max_states) return TooLarge(work);
  CharDfa out;
  out.begins = {0};
  out.next.assign(static_cast<size_t>(n) + 2, 0);
  out.accepts.assign(static_cast<size_t>(n) + 2, false);
  for (int64_t i = 0; i <= n; ++i) {
    out.next[static_cast<size_t>(i) + 1] = static_cast<int32_t>(i < n ? i + 2 : max < 0 ? i + 1 : 0);
    out.accepts[static_cast<size_t>(i) + 1] = i >= min;
  }
  return out;
}

Result<CharDfa> Both(const CharDfa& a, const CharDfa& b, DfaWork* work) {
  std::vector<char32_t> begins = a.begins;
  begins.insert(begins.end(), b.begins.begin(), b.begins.end());
  CleanBegins(&begins);
  CharDfa out = Blank(std::move(begins));
  std::vector<size_t> class_a, class_b;
  for (const char32_t c : out.begins) {
    class_a.push_back(ClassOf(a.begins, c));
    class_b.push_back(ClassOf(b.begins, c));
  }
  std::vector<std::pair<int32_t, int32_t>> pairs = {{0, 0}, {1, 1}};
  std::map<std::pair<int32_t, int32_t>, int32_t> ids = {{{1, 1}, 1}};
  out.accepts[1] = a.accepts[1] && b.accepts[1];
  for (size_t s = 1; s < pairs.size(); ++s) {
    const auto [x, y] = pairs[s];
    constexpr int64_t kLookUp = 4;
    if ((work->steps -= kLookUp * static_cast<int64_t>(out.n_classes())) < 0) return TooMuchWork();
    for (size_t c = 0; c < out.n_classes(); ++c) {
      const int32_t to_x = a.next[static_cast<size_t>(x) * a.n_classes() + class_a[c]];
      const int32_t to_y = b.next[static_cast<size_t>(y) * b.n_classes() + class_b[c]];
      if (to_x == 0 || to_y == 0) continue;
      const auto [it, is_new] = ids.try_emplace({to_x, to_y}, static_cast<int32_t>(pairs.size()));
      if (is_new) {
        if (!Fits(pairs.size() + 1, out.n_classes(), *work)) return TooLarge(*work);
        pairs.push_back(it->first);
        out.accepts.push_back(a.accepts[static_cast<size_t>(to_x)] && b.accepts[static_cast<size_t>(to_y)]);
        out.next.resize(out.next.size() + out.n_classes(), 0);
      }
      out.next[s * out.n_classes() + c] = it->second;
    }
  }
  return out;
}

CharDfa Not(const CharDfa& dfa) {
  // What was dead becomes a state that reads everything.
  CharDfa out = dfa;
  const auto all = static_cast<int32_t>(out.accepts.size());
  for (int32_t& next : out.next) next = next == 0 ? all : next;
  std::fill(out.next.begin(), out.next.begin() + static_cast<ptrdiff_t>(out.n_classes()), 0);
  out.next.resize(out.next.size() + out.n_classes(), all);
  for (size_t s = 1; s < out.accepts.size(); ++s) out.accepts[s] = !out.accepts[s];
  out.accepts.push_back(true);
  return out;
}

bool IsEmpty(const CharDfa& dfa) {
  std::vector<bool> seen(dfa.accepts.size(), false);
  std::vector<size_t> todo = {1};
  seen[1] = true;
  while (!todo.empty()) {
    const size_t s = todo.back();
    todo.pop_back();
    if (dfa.accepts[s]) return false;
    for (size_t c = 0; c < dfa.n_classes(); ++c) {
      const auto to = static_cast<size_t>(dfa.next[s * dfa.n_classes() + c]);
      if (to != 0 && !seen[to]) {
        seen[to] = true;
        todo.push_back(to);
      }
    }
  }
  return true;
}

bool Reads(const CharDfa& dfa, std::string_view text) {
  size_t state = 1;
  for (size_t at = 0; at < text.size() && state != 0;) {
    const Utf8Char c = DecodeUtf8(text, at);
    at += static_cast<size_t>(c.bytes);
    state = static_cast<size_t>(dfa.next[state * dfa.n_classes() + ClassOf(dfa.begins, c.cp)]);
  }
  return state != 0 && dfa.accepts[state];
}

void Emit(const CharDfa& dfa, Writing writing, int32_t from, int32_t to, NetworkBuilder* network) {
  std::vector<int32_t> nodes = {-1, from};
  for (size_t s = 2; s < dfa.accepts.size(); ++s) nodes.push_back(network->AddNode());
  // The start may be returned to: what comes before it must not be repeated.
  nodes[1] = network->AddNode();
  network->Empty(from, nodes[1]);
  for (size_t s = 1; s < dfa.accepts.size() && !network->full(); ++s) {
    if (dfa.accepts[s]) network->Empty(nodes[s], to);
    std::map<int32_t, CharSet> ways;
    for (size_t c = 0; c < dfa.n_classes(); ++c) {
      const int32_t next = dfa.next[s * dfa.n_classes() + c];
      if (next == 0) continue;
      ways[next].push_back({dfa.begins[c], c + 1 < dfa.n_classes() ? dfa.begins[c + 1] - 1 : kMaxChar});
    }
    for (auto& [next, set] : ways) {
      network->Chars(nodes[s], Clean(std::move(set)), writing, nodes[static_cast<size_t>(next)]);
    }
  }
}

}  // namespace weir::forms
