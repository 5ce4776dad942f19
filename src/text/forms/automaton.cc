// SPDX-License-Identifier: Apache-2.0
#include "text/forms/automaton.h"

#include <algorithm>

namespace weir::forms {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 29;
}

}  // namespace

Automaton::Automaton(std::shared_ptr<const Network> network, const FormLimits& limits, std::shared_ptr<FormRoom> room)
    : network_(std::move(network)),
      n_classes_(network_->n_classes()),
      limits_(limits),
      share_(room),
      bounded_(room != nullptr) {
  // These there are in any case, but without memory for them nothing is read.
  constexpr size_t kFirst = 64;
  frames_.reserve(kFirst), items_.reserve(kFirst), stacks_.reserve(kFirst), states_.reserve(4);
  next_.reserve(4 * static_cast<size_t>(n_classes_));
  Cover(0);
  (void)Intern({}, false, false);       // kNoStacks
  (void)Intern({}, true, false);        // kBottom
  (void)Intern({}, false, true);        // kUnknown
  (void)InternState({}, false, false);  // kDead
  std::fill(next_.begin(), next_.end(), kDead);
  if (failed_) return;
  Add(PlaceOf(network_->start, 0), kBottom);
  start_ = Close();
}

int64_t Automaton::bytes() const {
  constexpr int64_t kMapEntry = 64;  // and the table of its map, also while that grows
  auto n_maps = static_cast<int64_t>(stacks_by_hash_.size() + states_by_hash_.size() + unions_.size() +
                                     outline_.size() + reached_.size());
  for (const auto& [n_bytes, known] : within_) n_maps += static_cast<int64_t>(known.size());
  return static_cast<int64_t>((frames_.capacity() + items_.capacity()) * sizeof(Frame) +
                              stacks_.capacity() * sizeof(Stacks) + states_.capacity() * sizeof(StateInfo) +
                              next_.capacity() * sizeof(State) + todo_.capacity() * sizeof(Place64)) +
         n_maps * kMapEntry;
}

bool Automaton::Cover(int64_t more) {
  const int64_t want = bytes() + more;
  if (bounded_ ? !share_.Cover(want) : want > kMaxAutomatonBytes) Refuse();
  return !failed_;
}

template <typename T>
bool Automaton::Grow(std::vector<T>* list, size_t n) {
  const size_t need = list->size() + n;
  if (need <= list->capacity()) return true;
  const size_t want = std::max({need, list->capacity() + list->capacity() / 2, size_t{64}});
  if (!Cover(static_cast<int64_t>(want * sizeof(T)))) return false;
  list->reserve(want);
  return true;
}

bool Automaton::Spend(int64_t n) {
  if ((work_ -= n) < 0) failed_ = true;
  return !failed_;
}

const Network::Counted* Automaton::CountedAt(Place64 place) const {
  const int32_t counted = network_->nodes[At(NodeOf(place))].counted;
  return counted < 0 ? nullptr : &network_->counted[At(counted)];
}

Automaton::State Automaton::Read(State state, int c) {
  const StateInfo info = states_[At(state)];
  const uint8_t byte = network_->byte_of[static_cast<size_t>(c)];
  for (int32_t i = info.begin; i < info.end && !failed_; ++i) {
    const Frame item = items_[At(i)];
    const int32_t node = NodeOf(item.place);
    const int32_t last = network_->nodes[At(node) + 1].bytes;
    for (int32_t e = network_->nodes[At(node)].bytes; e < last; ++e) {
      const Network::ByteEdge& edge = network_->bytes[At(e)];
      if (edge.lo <= byte && byte <= edge.hi) Add(PlaceOf(edge.to, 0), item.stacks);
    }
    Spend(1);
  }
  const State out = Close();
  if (!failed_) next_[Place(state, c)] = out;
  return failed_ ? kDead : out;
}

void Automaton::Add(Place64 place, int32_t stacks) {
  if (!Spend(1)) return;
  const auto [it, is_new] = reached_.try_emplace(place, stacks);
  if (!is_new) {
    const int32_t both = Union(it->second, stacks);
    if (both == it->second) return;
    it->second = both;
  } else if (std::ssize(reached_) > limits_.state_nodes) {
    failed_ = true;
  } else if (reached_.size() % 256 == 0) {
    Cover(0);
  }
  if (Grow(&todo_, 1)) todo_.push_back(place);
}

void Automaton::Follow(Place64 place, int32_t stacks) {
  const int32_t node = NodeOf(place);
  const Network::Node& here = network_->nodes[At(node)];
  const Network::Node& after = network_->nodes[At(node) + 1];
  for (int32_t e = here.empties; e < after.empties; ++e) Add(PlaceOf(network_->empties[At(e)], 0), stacks);
  for (int32_t e = here.calls; e < after.calls && !failed_; ++e) {
    const Network::CallEdge& call = network_->calls[At(e)];
    const int32_t of_callee = call.tail ? stacks : Push(PlaceOf(call.back, 0), stacks);
    if (of_callee != kNoStacks) Add(PlaceOf(call.start, 0), of_callee);
  }
  if (here.counted >= 0) {
    const Network::Counted& counted = network_->counted[At(here.counted)];
    const int32_t count = CountOf(place);
    if (count >= counted.min) Add(PlaceOf(counted.next, 0), stacks);
    if (counted.max == kNoMax || count < counted.max) {
      const int32_t next = counted.max == kNoMax ? std::min(count + 1, counted.min) : count + 1;
      const int32_t of_callee = Push(PlaceOf(node, next), stacks);
      if (of_callee != kNoStacks) Add(PlaceOf(counted.body, 0), of_callee);
    }
  }
  if (here.is_end) {
    const Stacks set = stacks_[At(stacks)];
    can_end_ |= set.bottom;
    escaped_ |= set.unknown;
    for (int32_t f = set.begin; f < set.end; ++f) Add(frames_[At(f)].place, frames_[At(f)].stacks);
  }
}

Automaton::State Automaton::Close() {
  while (!todo_.empty() && !failed_) {
    const Place64 place = todo_.back();
    todo_.pop_back();
    const int32_t stacks = reached_.find(place)->second;
    // A count that another count of the same node covers leads nowhere new; repeated nothing would count for ever.
    if (const Network::Counted* counted = CountedAt(place); counted != nullptr && CountOf(place) > 0) {
      const int32_t count = CountOf(place);
      const int32_t better = counted->min;
      const auto it = count == better || (counted->max != kNoMax && count < counted->min)
                          ? reached_.end()
                          : reached_.find(PlaceOf(NodeOf(place), better));
      if (it != reached_.end() && Union(it->second, stacks) == it->second) continue;
    }
    Follow(place, stacks);
  }
  std::vector<Frame> items;
  if (!failed_ && Cover(3 * static_cast<int64_t>(reached_.size() * sizeof(Frame)))) {
    for (const auto& [place, stacks] : reached_) {
      const int32_t node = NodeOf(place);
      const bool reads = network_->nodes[At(node)].bytes < network_->nodes[At(node) + 1].bytes;
      if (reads) items.push_back({place, stacks});
    }
    std::sort(items.begin(), items.end(), [](const Frame& a, const Frame& b) { return a.place < b.place; });
  }
  const bool dead = failed_ || (items.empty() && !can_end_ && !escaped_);
  const State out = dead ? kDead : InternState(items, can_end_, escaped_);
  if (out != kDead) {
    int32_t& reach = states_[At(out)].reach;
    for (const auto& [place, stacks] : reached_) reach = std::max(reach, stacks_[At(stacks)].depth);
  }
  if (reached_.bucket_count() > 4096) {  // clearing looks at every bucket
    reached_ = {};
    todo_ = {};
  }
  reached_.clear();
  todo_.clear();
  can_end_ = escaped_ = false;
  return out;
}

void Automaton::DropWeaker(std::vector<Frame>* frames) {
  // With a maximum, fewer readings allow more, once the minimum is reached; without one, more readings allow more.
  std::vector<Frame> out;
  for (size_t i = 0; i < frames->size();) {
    size_t end = i + 1;
    while (end < frames->size() && NodeOf((*frames)[end].place) == NodeOf((*frames)[i].place)) ++end;
    const Network::Counted* counted = end - i == 1 ? nullptr : CountedAt((*frames)[i].place);
    if (counted == nullptr) {
      out.insert(out.end(), frames->begin() + static_cast<ptrdiff_t>(i), frames->begin() + static_cast<ptrdiff_t>(end));
    } else if (counted->max == kNoMax) {
      const size_t first = out.size();
      for (size_t j = end; j-- > i;) {
        const Frame frame = (*frames)[j];
        if (out.size() == first || Union(out.back().stacks, frame.stacks) != out.back().stacks) out.push_back(frame);
      }
      std::reverse(out.begin() + static_cast<ptrdiff_t>(first), out.end());
    } else {
      int32_t kept = -1;
      for (size_t j = i; j < end; ++j) {
        const Frame frame = (*frames)[j];
        const bool may_stop = CountOf(frame.place) >= counted->min;
        if (may_stop && kept >= 0 && Union(kept, frame.stacks) == kept) continue;
        out.push_back(frame);
        if (may_stop) kept = frame.stacks;
      }
    }
    i = end;
  }
  *frames = std::move(out);
}

int32_t Automaton::Push(Place64 place, int32_t stacks) {
  if (stacks_[At(stacks)].depth >= kMaxNesting) return kNoStacks;
  return Intern({{place, stacks}}, false, false);
}

int32_t Automaton::Union(int32_t a, int32_t b) {
  if (a == b || b == kNoStacks) return a;
  if (a == kNoStacks) return b;
  if (a > b) std::swap(a, b);
  const uint64_t pair = PlaceOf(a, b);
  if (const auto it = unions_.find(pair); it != unions_.end()) return it->second;
  const Stacks x = stacks_[At(a)], y = stacks_[At(b)];
  if (!Spend(1 + (x.end - x.begin) + (y.end - y.begin))) return a;
  std::vector<Frame> merged;
  int32_t i = x.begin, j = y.begin;
  while (i < x.end || j < y.end) {
    if (j == y.end || (i < x.end && frames_[At(i)].place < frames_[At(j)].place)) {
      merged.push_back(frames_[At(i++)]);
    } else if (i == x.end || frames_[At(j)].place < frames_[At(i)].place) {
      merged.push_back(frames_[At(j++)]);
    } else {
      const Frame one = frames_[At(i++)], other = frames_[At(j++)];
      merged.push_back({one.place, Union(one.stacks, other.stacks)});
    }
  }
  DropWeaker(&merged);
  const int32_t out = Intern(std::move(merged), x.bottom || y.bottom, x.unknown || y.unknown);
  if (!failed_) unions_.emplace(pair, out);
  return out;
}

int32_t Automaton::Intern(std::vector<Frame> frames, bool bottom, bool unknown) {
  uint64_t hash = Mix(frames.size(), static_cast<uint64_t>(bottom) * 2 + static_cast<uint64_t>(unknown));
  for (const Frame& frame : frames) hash = Mix(Mix(hash, frame.place), static_cast<uint64_t>(frame.stacks));
  const auto [first, last] = stacks_by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const Stacks& set = stacks_[At(it->second)];
    if (set.bottom == bottom && set.unknown == unknown && set.end - set.begin == std::ssize(frames) &&
        std::equal(frames.begin(), frames.end(), frames_.begin() + set.begin)) {
      return it->second;
    }
  }
  Spend(1 + std::ssize(frames));
  const bool first_ones = stacks_.size() < 3;
  if (!first_ones && (!Grow(&frames_, frames.size()) || !Grow(&stacks_, 1) || !Cover(0))) return kNoStacks;
  Stacks set{static_cast<int32_t>(frames_.size()), 0, 0, bottom, unknown};
  for (const Frame& frame : frames) set.depth = std::max(set.depth, stacks_[At(frame.stacks)].depth + 1);
  frames_.insert(frames_.end(), frames.begin(), frames.end());
  set.end = static_cast<int32_t>(frames_.size());
  stacks_.push_back(set);
  const auto id = static_cast<int32_t>(stacks_.size()) - 1;
  stacks_by_hash_.emplace(hash, id);
  return id;
}

Automaton::State Automaton::InternState(const std::vector<Frame>& items, bool can_end, bool escaped) {
  uint64_t hash = Mix(items.size(), static_cast<uint64_t>(can_end) * 2 + static_cast<uint64_t>(escaped));
  for (const Frame& item : items) hash = Mix(Mix(hash, item.place), static_cast<uint64_t>(item.stacks));
  const auto [first, last] = states_by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const StateInfo& info = states_[At(it->second)];
    if (info.can_end == can_end && info.escaped == escaped && info.end - info.begin == std::ssize(items) &&
        std::equal(items.begin(), items.end(), items_.begin() + info.begin)) {
      return it->second;
    }
  }
  Spend(n_classes_ / 4 + std::ssize(items));
  const auto n_next = static_cast<size_t>(n_classes_);
  if (!states_.empty() && (!Grow(&items_, items.size()) || !Grow(&states_, 1) || !Grow(&next_, n_next) || !Cover(0))) {
    return kDead;
  }
  StateInfo info{static_cast<int32_t>(items_.size()), 0, 0, can_end, escaped};
  for (const Frame& item : items) info.reach = std::max(info.reach, stacks_[At(item.stacks)].depth);
  items_.insert(items_.end(), items.begin(), items.end());
  info.end = static_cast<int32_t>(items_.size());
  states_.push_back(info);
  next_.resize(states_.size() * static_cast<size_t>(n_classes_), -1);
  const auto id = static_cast<int32_t>(states_.size()) - 1;
  states_by_hash_.emplace(hash, id);
  return id;
}

int32_t Automaton::WithinStacks(int32_t stacks, int n_bytes, std::unordered_map<int32_t, int32_t>* known) {
  if (const auto it = known->find(stacks); it != known->end()) return it->second;
  const Stacks set = stacks_[At(stacks)];
  std::vector<Frame> frames;
  bool changed = false;
  for (int32_t f = set.begin; f < set.end && Spend(1); ++f) {
    Frame frame = frames_[At(f)];
    if (const Network::Counted* counted = CountedAt(frame.place)) {
      // Every reading takes a byte at least.
      int32_t count = CountOf(frame.place);
      if (static_cast<int64_t>(count) + n_bytes < counted->min) {
        count = 0;
      } else if (counted->max != kNoMax && count >= counted->min &&
                 static_cast<int64_t>(count) + n_bytes < counted->max) {
        count = counted->min;
      }
      frame.place = PlaceOf(NodeOf(frame.place), count);
    }
    frame.stacks = WithinStacks(frame.stacks, n_bytes, known);
    changed |= !(frame == frames_[At(f)]);
    frames.push_back(frame);
  }
  int32_t out = stacks;
  if (changed) {  // counts may have become equal
    out = Intern({}, set.bottom, set.unknown);
    for (const Frame& frame : frames) out = Union(out, Intern({frame}, set.bottom, set.unknown));
  }
  if (!failed_) known->emplace(stacks, out);
  return out;
}

Automaton::State Automaton::Within(State state, int n_bytes) {
  const StateInfo info = states_[At(state)];
  std::vector<Frame> items(items_.begin() + info.begin, items_.begin() + info.end);
  for (Frame& item : items) item.stacks = WithinStacks(item.stacks, n_bytes, &within_[n_bytes]);
  return InternState(items, info.can_end, info.escaped);
}

int32_t Automaton::OutlineStacks(int32_t stacks) {
  if (const auto it = outline_.find(stacks); it != outline_.end()) return it->second;
  const Stacks set = stacks_[At(stacks)];
  std::vector<Frame> frames;
  bool all_counted = !set.bottom && set.end > set.begin;
  for (int32_t f = set.begin; f < set.end && all_counted && Spend(1); ++f) {
    frames.push_back(frames_[At(f)]);
    all_counted = CountedAt(frames.back().place) != nullptr;
  }
  int32_t out = kUnknown;
  if (stacks == kBottom) out = kBottom;
  if (all_counted) {
    out = kNoStacks;
    for (const Frame& frame : frames) {
      out = Union(out, Intern({{frame.place, OutlineStacks(frame.stacks)}}, false, false));
    }
  }
  if (!failed_) outline_.emplace(stacks, out);
  return out;
}

Automaton::State Automaton::Outline(State state) {
  const StateInfo info = states_[At(state)];
  std::vector<Frame> items(items_.begin() + info.begin, items_.begin() + info.end);
  for (Frame& item : items) item.stacks = OutlineStacks(item.stacks);
  return InternState(items, info.can_end, info.escaped);
}

Automaton::State Automaton::CopyTo(State state, Automaton* other) const {
  // Children before parents: a set of stacks has a higher number than those below it.
  const StateInfo info = states_[At(state)];
  if (!other->Cover(static_cast<int64_t>(5 * stacks_.size()))) return kDead;
  std::vector<bool> needed(stacks_.size(), false);
  for (int32_t i = info.begin; i < info.end; ++i) needed[At(items_[At(i)].stacks)] = true;
  for (size_t s = stacks_.size(); s-- > 0;) {
    for (int32_t f = stacks_[s].begin; needed[s] && f < stacks_[s].end; ++f) needed[At(frames_[At(f)].stacks)] = true;
  }
  std::vector<int32_t> now(stacks_.size(), kNoStacks);
  for (size_t s = 0; s < stacks_.size(); ++s) {
    if (!needed[s]) continue;
    std::vector<Frame> frames;
    for (int32_t f = stacks_[s].begin; f < stacks_[s].end; ++f) {
      frames.push_back({frames_[At(f)].place, now[At(frames_[At(f)].stacks)]});
    }
    now[s] = other->Intern(std::move(frames), stacks_[s].bottom, stacks_[s].unknown);
  }
  std::vector<Frame> items(items_.begin() + info.begin, items_.begin() + info.end);
  for (Frame& item : items) item.stacks = now[At(item.stacks)];
  return state == kDead ? kDead : other->InternState(items, info.can_end, info.escaped);
}

}  // namespace weir::forms
