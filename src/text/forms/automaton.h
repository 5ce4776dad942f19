// SPDX-License-Identifier: Apache-2.0
// Reads a network byte by byte. What may follow is one state; states are made as they are reached, and a byte that was
// read in a state once is a look-up the next time.
//
// A state is a set of nodes, each with the set of stacks of callers that it may have. A set of stacks is a list of
// frames: a frame is where to go on, and the set of stacks below it. Equal sets are one number, so that equal states
// are one number too, however deep they are: this is what lets masks be kept by state.
//
// A grammar may be ambiguous: sets of stacks share what they have in common, so that they stay small where single
// stacks would multiply. What grows all the same ends at the limits below.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/forms/form_room.h"
#include "text/forms/network.h"

namespace weir::forms {

inline constexpr int kMaxNesting = 1000;  // of callers; what nests deeper is not written
// Steps, of some tens of nanoseconds: for one mask or one token; for all of a form, and what each token adds to that.
// Where states are known no steps are taken.
inline constexpr int64_t kMaxWork = 5'000'000, kFormWork = 50'000'000, kTokenWork = 50'000;
inline constexpr int64_t kMaxAutomatonBytes = 64 << 20;

// Not thread-safe.
class Automaton {
 public:
  using State = int32_t;
  static constexpr State kDead = 0;
  static constexpr int32_t kNoStacks = 0, kBottom = 1, kUnknown = 2;  // sets of stacks

  // `room`: for all that it keeps; nullptr: kMaxAutomatonBytes.
  explicit Automaton(std::shared_ptr<const Network> network, const FormLimits& limits = {},
                     std::shared_ptr<FormRoom> room = nullptr);

  State start() const { return start_; }
  // Call before a mask or a token.
  void BeginWork(int64_t n_steps) {
    work_ = n_steps;
    failed_ = refused_ = false;
  }
  // Steps that are left; below 0 if they were not enough.
  int64_t work_left() const { return work_; }
  // The work or the memory was not enough: results since BeginWork() mean nothing.
  bool failed() const { return failed_; }
  // It was memory.
  bool refused() const { return refused_; }
  // As if the memory were not enough.
  void Refuse() { failed_ = refused_ = true; }

  State Next(State state, uint8_t byte) {
    const State known = next_[Place(state, network_->class_of[byte])];
    return known >= 0 ? known : Read(state, network_->class_of[byte]);
  }
  // The text so far is whole.
  bool CanEnd(State state) const { return states_[At(state)].can_end; }
  // More may follow. A state that cannot end always has it.
  bool CanGoOn(State state) const { return states_[At(state)].end > states_[At(state)].begin; }
  // The text may have left the rules that are known: only after Outline().
  bool Escaped(State state) const { return states_[At(state)].escaped; }

  // How deep its callers nest, at most, and what of them may be entered to get to it.
  int32_t Reach(State state) const { return states_[At(state)].reach; }

  // A state that reads every text of up to `n_bytes` bytes as this one does. Many states have the same.
  State Within(State state, int n_bytes);
  // The state without its callers, as far as it is in the middle of a rule: what stays within the rule is read alike
  // whoever called it. Escaped() tells when it did not stay.
  State Outline(State state);

  // The state in another automaton of the same network, whose memory may not be enough: other->failed().
  State CopyTo(State state, Automaton* other) const;

  int64_t bytes() const;

 private:
  // A place in a rule: a node, and for a counted node how often its rule was read.
  using Place64 = uint64_t;
  static Place64 PlaceOf(int32_t node, int32_t count) {
    return static_cast<uint64_t>(static_cast<uint32_t>(node)) << 32 | static_cast<uint32_t>(count);
  }
  static int32_t NodeOf(Place64 place) { return static_cast<int32_t>(place >> 32); }
  static int32_t CountOf(Place64 place) { return static_cast<int32_t>(place & 0xFFFFFFFF); }
  static size_t At(int32_t i) { return static_cast<size_t>(i); }

  // A place and the stacks that it has or returns to.
  struct Frame {
    Place64 place;
    int32_t stacks;
    friend bool operator==(const Frame&, const Frame&) = default;
  };
  struct Stacks {
    int32_t begin, end;  // in frames_
    int32_t depth;
    bool bottom, unknown;
  };
  struct StateInfo {
    int32_t begin, end;  // in items_
    int32_t reach;       // the deepest stacks that were met when it was made
    bool can_end, escaped;
  };
  size_t Place(State state, int c) const {
    return At(state) * static_cast<size_t>(n_classes_) + static_cast<size_t>(c);
  }
  bool Spend(int64_t n);
  // Room for n more in a list. Lists grow by half, and both are there for a moment.
  template <typename T>
  bool Grow(std::vector<T>* list, size_t n);
  // Room for what there is, and so much more.
  bool Cover(int64_t more);
  State Read(State state, int c);
  // Adds what follows without reading, and makes it a state.
  State Close();
  void Add(Place64 place, int32_t stacks);
  void Follow(Place64 place, int32_t stacks);
  // Drops counts that allow nothing which another one does not allow too.
  void DropWeaker(std::vector<Frame>* frames);
  const Network::Counted* CountedAt(Place64 place) const;
  int32_t Push(Place64 place, int32_t stacks);
  int32_t Union(int32_t a, int32_t b);
  int32_t Intern(std::vector<Frame> frames, bool bottom, bool unknown);
  State InternState(const std::vector<Frame>& items, bool can_end, bool escaped);
  int32_t WithinStacks(int32_t stacks, int n_bytes, std::unordered_map<int32_t, int32_t>* known);
  int32_t OutlineStacks(int32_t stacks);

  std::shared_ptr<const Network> network_;
  const int n_classes_;
  const FormLimits limits_;
  FormShare share_;
  const bool bounded_;  // by the share
  State start_ = kDead;
  std::vector<Frame> frames_, items_;
  std::vector<Stacks> stacks_;
  std::vector<StateInfo> states_;
  std::vector<State> next_;  // [states][classes]; -1: not yet read
  std::unordered_multimap<uint64_t, int32_t> stacks_by_hash_, states_by_hash_;
  std::unordered_map<uint64_t, int32_t> unions_;
  std::unordered_map<int, std::unordered_map<int32_t, int32_t>> within_;  // by bytes, then of sets of stacks
  std::unordered_map<int32_t, int32_t> outline_;                          // of sets of stacks
  // Of the state that is being made.
  std::unordered_map<Place64, int32_t> reached_;
  std::vector<Place64> todo_;
  bool can_end_ = false, escaped_ = false;
  int64_t work_ = kMaxWork;
  bool failed_ = false, refused_ = false;
};

}  // namespace weir::forms
