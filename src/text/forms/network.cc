// SPDX-License-Identifier: Apache-2.0
#include "text/forms/network.h"

#include <fmt/core.h>
#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace weir::forms {

std::string SpellToken(int32_t id) {
  std::string out(1, static_cast<char>(kTokenByte));
  for (const char digit : fmt::format("{:010}", id)) out += static_cast<char>(kTokenDigit + (digit - '0'));
  return out;
}

int64_t Network::n_bytes() const {
  const auto of = [](const auto& list) { return static_cast<int64_t>(list.capacity() * sizeof(list[0])); };
  return static_cast<int64_t>(sizeof(*this)) + of(nodes) + of(bytes) + of(empties) + of(calls) + of(counted) +
         of(byte_of);
}

bool NetworkBuilder::Room() {
  if (n_nodes_ + std::ssize(edges_) >= max_size_) full_ = true;
  return !full_;
}

int32_t NetworkBuilder::AddNode() { return Room() ? n_nodes_++ : std::max(0, n_nodes_ - 1); }

int32_t NetworkBuilder::AddRule(std::string name) {
  const int32_t start = AddNode(), end = AddNode();
  rules_.push_back({start, end, std::move(name)});
  return static_cast<int32_t>(rules_.size()) - 1;
}

void NetworkBuilder::Empty(int32_t from, int32_t to) {
  if (Room() && from != to) edges_.push_back({Edge::Kind::kEmpty, 0, 0, from, to, -1, 0, 0});
}

void NetworkBuilder::Byte(int32_t from, uint8_t lo, uint8_t hi, int32_t to) {
  if (Room()) edges_.push_back({Edge::Kind::kByte, lo, hi, from, to, -1, 0, 0});
}

void NetworkBuilder::Call(int32_t from, int32_t rule, int32_t to) {
  if (Room()) edges_.push_back({Edge::Kind::kCall, 0, 0, from, to, rule, 0, 0});
}

void NetworkBuilder::Repeat(int32_t from, int32_t rule, int32_t min, int32_t max, int32_t to) {
  if (max == 0) return Empty(from, to);
  if (min == 1 && max == 1) return Call(from, rule, to);
  const int32_t node = AddNode();
  Empty(from, node);
  if (max == kNoMax && min == 0) {
    Call(node, rule, node);
    Empty(node, to);
  } else if (Room()) {
    edges_.push_back({Edge::Kind::kRepeat, 0, 0, node, to, rule, min, max});
  }
}

void NetworkBuilder::Text(int32_t from, std::string_view text, int32_t to) {
  if (text.empty()) return Empty(from, to);
  for (size_t i = 0; i < text.size() && !full_; ++i) {
    const int32_t next = i + 1 == text.size() ? to : AddNode();
    const auto byte = static_cast<uint8_t>(text[i]);
    Byte(from, byte, byte, next);
    from = next;
  }
}

void NetworkBuilder::Texts(int32_t from, std::vector<std::string> texts, int32_t to) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  std::vector<int32_t> path = {from};  // nodes of the last text's bytes
  const std::string* last = nullptr;
  for (const std::string& text : texts) {
    size_t same = 0;
    if (last != nullptr) {
      same = static_cast<size_t>(std::mismatch(last->begin(), last->end(), text.begin(), text.end()).first -
                                 last->begin());
    }
    path.resize(same + 1);
    for (size_t i = same; i < text.size() && !full_; ++i) {
      path.push_back(AddNode());
      const auto byte = static_cast<uint8_t>(text[i]);
      Byte(path[i], byte, byte, path[i + 1]);
    }
    Empty(path.back(), to);
    if (full_) return;
    last = &text;
  }
}

void NetworkBuilder::Wide(int32_t from, const CharSet& set, int32_t to) {
  const auto [it, is_new] = wide_.try_emplace(set, -1);
  if (is_new) {
    const int32_t rule = it->second = AddRule("");
    const int32_t start = StartOf(rule);
    int32_t any[4] = {EndOf(rule), -1, -1, -1};  // from where 1, 2, 3 more bytes, of any value, end the character
    const auto tail = [&](int n) {
      for (int i = 1; i <= n; ++i) {
        if (any[i] < 0) {
          any[i] = AddNode();
          Byte(any[i], 0x80, 0xBF, any[i - 1]);
        }
      }
      return any[n];
    };
    for (const CharRange& range : set) {
      for (const ByteSequence& bytes : SplitUtf8(range)) {
        int n_any = 0;
        while (n_any + 1 < bytes.n && bytes.lo[static_cast<size_t>(bytes.n - 1 - n_any)] == 0x80 &&
               bytes.hi[static_cast<size_t>(bytes.n - 1 - n_any)] == 0xBF) {
          ++n_any;
        }
        int32_t at = start;
        for (int i = 0; i < bytes.n - n_any; ++i) {
          const int32_t next = i + 1 == bytes.n - n_any ? tail(n_any) : AddNode();
          Byte(at, bytes.lo[static_cast<size_t>(i)], bytes.hi[static_cast<size_t>(i)], next);
          at = next;
        }
        if (full_) return;
      }
    }
  }
  Call(from, it->second, to);
}

void NetworkBuilder::Chars(int32_t from, const CharSet& set, Writing writing, int32_t to) {
  CharSet wide;
  int32_t escape = -1;
  const auto escaped = [&] {
    if (escape < 0) {
      escape = AddNode();
      Byte(from, '\\', '\\', escape);
    }
    return escape;
  };
  for (const CharRange& range : set) {
    if (range.hi >= 0x80) wide.push_back({std::max<char32_t>(range.lo, 0x80), range.hi});
    if (range.lo >= 0x80) continue;
    const auto lo = static_cast<uint8_t>(range.lo);
    const auto hi = static_cast<uint8_t>(std::min<char32_t>(range.hi, 0x7F));
    if (writing == Writing::kPlain) {
      Byte(from, lo, hi, to);
      continue;
    }
    int plain = -1;  // where a run of characters that are not escaped began
    for (int c = lo; c <= hi; ++c) {
      const bool is_plain = c >= 0x20 && c != '"' && c != '\\';
      if (is_plain && plain < 0) plain = c;
      if (plain >= 0 && (!is_plain || c == hi)) {
        Byte(from, static_cast<uint8_t>(plain), static_cast<uint8_t>(is_plain ? c : c - 1), to);
        plain = -1;
      }
      if (is_plain) continue;
      static constexpr std::string_view kShort = "\"\\\b\f\n\r\t", kLetter = "\"\\bfnrt";
      const size_t place = kShort.find(static_cast<char>(c));
      if (place != std::string_view::npos) {
        Byte(escaped(), static_cast<uint8_t>(kLetter[place]), static_cast<uint8_t>(kLetter[place]), to);
        continue;
      }
      const int32_t digit = AddNode();
      Text(escaped(), c < 0x10 ? "u000" : "u001", digit);
      const int low = c & 15;
      if (low < 10) {
        Byte(digit, static_cast<uint8_t>('0' + low), static_cast<uint8_t>('0' + low), to);
      } else {
        Byte(digit, static_cast<uint8_t>('a' + low - 10), static_cast<uint8_t>('a' + low - 10), to);
        Byte(digit, static_cast<uint8_t>('A' + low - 10), static_cast<uint8_t>('A' + low - 10), to);
      }
    }
  }
  if (!wide.empty()) Wide(from, wide, to);
}

void NetworkBuilder::Token(int32_t from, int32_t id, int32_t to) { Text(from, SpellToken(id), to); }

// Checks and lays out a network.
class NetworkFinisher {
 public:
  NetworkFinisher(const NetworkBuilder& from, const std::array<bool, 256>& usable) : from_(from), usable_(usable) {
    std::fill(usable_.begin() + kTokenDigit, usable_.end(), true);
  }

  Result<Network> Run(int32_t root) {
    if (from_.full_) {
      return InvalidArgument("the form is too large: it needs more than {} nodes and edges", from_.max_size_);
    }
    edges_ = from_.edges_;
    const std::vector<bool> empty = Solve(false);
    const std::vector<bool> ends = Solve(true);
    // What has read nothing counts as often as one likes.
    for (Edge& e : edges_) {
      if (e.kind != Edge::Kind::kRepeat) continue;
      if (empty[At(StartOf(e))]) e.min = 0;
      if (!ends[At(StartOf(e))]) e.max = 0;
    }
    WEIR_RETURN_IF_ERROR(CheckRecursion(empty));
    if (!ends[At(from_.StartOf(root))]) {
      const std::string where = Culprit(root, ends);
      return InvalidArgument("no answer can have this form: its parts contradict each other{}{}",
                             std::all_of(usable_.begin(), usable_.end(), [](bool b) { return b; })
                                 ? ""
                                 : ", or need bytes that the vocabulary has no token for",
                             where.empty() ? where : "; look at " + where);
    }
    return LayOut(root, ends);
  }

 private:
  using Edge = NetworkBuilder::Edge;
  static size_t At(int32_t i) { return static_cast<size_t>(i); }
  int32_t StartOf(const Edge& e) const { return from_.StartOf(e.rule); }
  bool Usable(const Edge& e) const {
    for (int b = e.lo; b <= e.hi; ++b) {
      if (usable_[static_cast<size_t>(b)]) return true;
    }
    return false;
  }

  // The nodes from which their rule's end can be reached: reading bytes, or reading nothing.
  std::vector<bool> Solve(bool reading) const {
    // Horn clauses: a node holds if the one or two nodes of one of its edges do.
    struct Clause {
      int32_t head, a, b;
    };
    std::vector<Clause> clauses;
    std::vector<int32_t> todo;
    const size_t n = At(from_.n_nodes_);
    for (const Edge& e : edges_) {
      switch (e.kind) {
        case Edge::Kind::kEmpty:
          clauses.push_back({e.from, e.to, -1});
          break;
        case Edge::Kind::kByte:
          if (reading && Usable(e)) clauses.push_back({e.from, e.to, -1});
          break;
        case Edge::Kind::kCall:
          clauses.push_back({e.from, e.to, StartOf(e)});
          break;
        case Edge::Kind::kRepeat:
          clauses.push_back({e.from, e.to, e.min == 0 ? -1 : StartOf(e)});
          break;
      }
    }
    std::vector<int32_t> first(n + 1, 0);
    for (const Clause& c : clauses) {
      ++first[At(c.a)];
      if (c.b >= 0) ++first[At(c.b)];
    }
    int32_t sum = 0;
    for (int32_t& f : first) sum += std::exchange(f, sum);
    std::vector<int32_t> mentions(At(sum)), fill(first);
    std::vector<int8_t> missing(clauses.size());
    for (size_t i = 0; i < clauses.size(); ++i) {
      const Clause& c = clauses[i];
      missing[i] = c.b >= 0 ? 2 : 1;
      mentions[At(fill[At(c.a)]++)] = static_cast<int32_t>(i);
      if (c.b >= 0) mentions[At(fill[At(c.b)]++)] = static_cast<int32_t>(i);
    }
    std::vector<bool> holds(n, false);
    const auto add = [&](int32_t node) {
      if (!holds[At(node)]) {
        holds[At(node)] = true;
        todo.push_back(node);
      }
    };
    for (const auto& rule : from_.rules_) add(rule.end);
    while (!todo.empty()) {
      const int32_t node = todo.back();
      todo.pop_back();
      for (int32_t i = first[At(node)]; i < first[At(node) + 1]; ++i) {
        const size_t clause = At(mentions[At(i)]);
        if (--missing[clause] == 0) add(clauses[clause].head);
      }
    }
    return holds;
  }

  // Why nothing can be read: the name of the last rule on a way from the root, each of which would do if the one that
  // it calls did.
  std::string Culprit(int32_t root, const std::vector<bool>& ends) const {
    std::vector<std::vector<const Edge*>> of(At(from_.n_nodes_));
    for (const Edge& e : edges_) of[At(e.from)].push_back(&e);
    std::vector<bool> seen(At(from_.n_nodes_));
    std::string name;
    for (int32_t rule = root; rule >= 0;) {
      if (!from_.rules_[At(rule)].name.empty()) name = from_.rules_[At(rule)].name;
      std::vector<int32_t> todo = {from_.rules_[At(rule)].start};
      if (seen[At(todo[0])]) break;  // it needs itself
      seen[At(todo[0])] = true;
      rule = -1;
      while (!todo.empty() && rule < 0) {
        const int32_t node = todo.back();
        todo.pop_back();
        for (const Edge* e : of[At(node)]) {
          const bool calls = e->kind == Edge::Kind::kCall || (e->kind == Edge::Kind::kRepeat && e->min > 0);
          if (calls && !ends[At(StartOf(*e))]) {
            if (!ends[At(e->to)]) continue;
            rule = e->rule;
            break;
          }
          if (e->kind == Edge::Kind::kByte && !Usable(*e)) continue;
          if (!seen[At(e->to)]) todo.push_back(e->to);
          seen[At(e->to)] = true;
        }
      }
    }
    return name;
  }

  // A rule that reaches itself before a byte was read would be called without end.
  Status CheckRecursion(const std::vector<bool>& empty) const {
    const size_t n = At(from_.n_nodes_);
    std::vector<int32_t> first(n + 1, 0);
    for (const Edge& e : edges_) ++first[At(e.from)];
    int32_t sum = 0;
    for (int32_t& f : first) sum += std::exchange(f, sum);
    std::vector<int32_t> of(edges_.size()), fill(first);
    for (size_t i = 0; i < edges_.size(); ++i) of[At(fill[At(edges_[i].from)]++)] = static_cast<int32_t>(i);

    // Which rules each calls at its beginning.
    std::vector<std::vector<int32_t>> calls(from_.rules_.size());
    std::vector<int32_t> seen(n, -1);
    for (size_t r = 0; r < calls.size(); ++r) {
      std::vector<int32_t> todo = {from_.rules_[r].start};
      seen[At(todo[0])] = static_cast<int32_t>(r);
      const auto visit = [&](int32_t node) {
        if (std::exchange(seen[At(node)], static_cast<int32_t>(r)) != static_cast<int32_t>(r)) todo.push_back(node);
      };
      while (!todo.empty()) {
        const int32_t node = todo.back();
        todo.pop_back();
        for (int32_t i = first[At(node)]; i < first[At(node) + 1]; ++i) {
          const Edge& e = edges_[At(of[At(i)])];
          if (e.kind == Edge::Kind::kByte) continue;
          if (e.kind == Edge::Kind::kEmpty) {
            visit(e.to);
            continue;
          }
          if (e.kind == Edge::Kind::kCall || e.max != 0) calls[r].push_back(e.rule);
          if (empty[At(StartOf(e))] || (e.kind == Edge::Kind::kRepeat && e.min == 0)) visit(e.to);
        }
      }
    }
    // A circle, by depth-first search.
    std::vector<uint8_t> state(calls.size(), 0);  // 0: new, 1: on the way, 2: done
    std::vector<std::pair<size_t, size_t>> way;
    for (size_t r = 0; r < calls.size(); ++r) {
      if (state[r] != 0) continue;
      way.push_back({r, 0});
      state[r] = 1;
      while (!way.empty()) {
        auto& [rule, next] = way.back();
        if (next == calls[rule].size()) {
          state[rule] = 2;
          way.pop_back();
          continue;
        }
        const size_t to = At(calls[rule][next++]);
        if (state[to] == 1) return Circle(way, to);
        if (state[to] == 0) {
          state[to] = 1;
          way.push_back({to, 0});
        }
      }
    }
    return Status();
  }

  Status Circle(const std::vector<std::pair<size_t, size_t>>& way, size_t to) const {
    std::string name = from_.rules_[to].name;
    bool inside = false;
    for (const auto& [rule, next] : way) {
      inside |= rule == to;
      if (inside && name.empty()) name = from_.rules_[rule].name;
    }
    return InvalidArgument("{} refers to itself before anything is read: an answer to it would never begin",
                           name.empty() ? "a part of the form" : name);
  }

  Result<Network> LayOut(int32_t root, const std::vector<bool>& ends) {
    const size_t n = At(from_.n_nodes_);
    Network out;
    // Only what can lead to an end stays.
    std::erase_if(edges_, [&](const Edge& e) {
      if (!ends[At(e.to)]) return true;
      if (e.kind == Edge::Kind::kByte) return !Usable(e);
      if (e.kind == Edge::Kind::kCall) return !ends[At(StartOf(e))];
      return false;
    });
    for (Edge& e : edges_) {
      if (e.kind == Edge::Kind::kRepeat && e.max == 0) e.kind = Edge::Kind::kEmpty;
    }
    out.nodes.resize(n + 1);
    for (const auto& rule : from_.rules_) out.nodes[At(rule.end)].is_end = true;
    std::stable_sort(edges_.begin(), edges_.end(), [](const Edge& a, const Edge& b) { return a.from < b.from; });
    size_t i = 0;
    for (size_t node = 0; node <= n; ++node) {
      out.nodes[node].bytes = static_cast<int32_t>(out.bytes.size());
      out.nodes[node].empties = static_cast<int32_t>(out.empties.size());
      out.nodes[node].calls = static_cast<int32_t>(out.calls.size());
      for (; i < edges_.size() && At(edges_[i].from) == node; ++i) AddEdge(edges_[i], node, &out);
    }
    out.start = from_.StartOf(root);
    Classify(&out);
    out.bytes.shrink_to_fit();
    out.empties.shrink_to_fit();
    out.calls.shrink_to_fit();
    out.counted.shrink_to_fit();
    out.byte_of.shrink_to_fit();
    return out;
  }

  void AddEdge(const Edge& e, size_t node, Network* out) const {
    switch (e.kind) {
      case Edge::Kind::kEmpty:
        out->empties.push_back(e.to);
        break;
      case Edge::Kind::kCall:
        out->calls.push_back({StartOf(e), e.to, out->nodes[At(e.to)].is_end});
        break;
      case Edge::Kind::kRepeat:
        out->nodes[node].counted = static_cast<int32_t>(out->counted.size());
        out->counted.push_back({StartOf(e), e.min, e.max, e.to});
        break;
      case Edge::Kind::kByte:
        for (int b = e.lo; b <= e.hi; ++b) {  // the usable parts of the range
          if (!usable_[At(b)]) continue;
          const int lo = b;
          while (b < e.hi && usable_[At(b + 1)]) ++b;
          out->bytes.push_back({static_cast<uint8_t>(lo), static_cast<uint8_t>(b), e.to});
        }
        break;
    }
  }

  static void Classify(Network* out) {
    std::array<bool, 257> begins{};
    begins[0] = true;
    for (const Network::ByteEdge& e : out->bytes) {
      begins[e.lo] = true;
      begins[At(e.hi) + 1] = true;
    }
    for (size_t b = 0; b < 256; ++b) {
      if (begins[b]) out->byte_of.push_back(static_cast<uint8_t>(b));
      out->class_of[b] = static_cast<uint8_t>(out->byte_of.size() - 1);
    }
  }

  const NetworkBuilder& from_;
  std::array<bool, 256> usable_;
  std::vector<Edge> edges_;
};

Result<Network> NetworkBuilder::Finish(int32_t root, const std::array<bool, 256>& usable) const {
  return NetworkFinisher(*this, usable).Run(root);
}

}  // namespace weir::forms
