// SPDX-License-Identifier: Apache-2.0
// The states and masks of a form that were computed so far.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/forms/automaton.h"
#include "text/forms/form.h"

namespace weir::forms {

// Thread-safe by its mutex, which the caller holds for every call.
class FormCache {
 public:
  // `room`: for all that it keeps; nullptr: no end to it.
  FormCache(std::shared_ptr<const Network> network, std::shared_ptr<const FormVocab> vocab,
            const FormLimits& limits = {}, const std::shared_ptr<FormRoom>& room = nullptr)
      : automaton(std::move(network), limits, room), vocab_(std::move(vocab)), share_(room) {}

  std::mutex mutex;
  Automaton automaton;

  // Steps that the form's answers may still take: a form that takes many for every token would keep others waiting.
  int64_t credit = kFormWork;

  // The state after the bytes; kDead, too, if the automaton failed.
  Automaton::State Read(Automaton::State state, std::string_view bytes);
  // nullptr: the automaton failed.
  std::shared_ptr<const TokenMask> MaskAt(Automaton::State state, bool drop_space);
  int64_t bytes() const { return automaton.bytes() + mask_bytes_; }

 private:
  // What a state's callers do not change, and the places of the tree where they do.
  struct Outline {
    TokenMask mask;
    struct Escape {
      int32_t node, path;  // its bytes begin at `path` of paths
    };
    std::vector<Escape> escapes;
    std::string paths;
    int32_t reach = 0;  // how deep its tokens nest, above the callers
  };
  // nullptr: the automaton failed.
  const Outline* OutlineOf(Automaton::State state);
  // Marks the tokens at the nodes [begin, end) that may follow `state`, which is at depth `depth` of the tree.
  void Walk(Automaton::State state, int32_t begin, int32_t end, int depth, TokenMask* mask, Outline* outline);
  void Mark(int32_t token, TokenMask* mask) const;
  // The tokens with at most FormVocab::kShortBytes bytes.
  TokenMask ShortMask(Automaton::State state);
  // `skip`: bytes at the token's beginning that are not read.
  void AddLong(Automaton::State state, size_t skip, TokenMask* mask);
  void AddAfterSpace(Automaton::State state, TokenMask* mask);
  TokenMask Empty() const;
  int64_t MaskBytes() const { return (vocab_->n_tokens() + 63) / 64 * 8; }
  // Room for the masks that are kept, and so much more; otherwise the automaton fails.
  bool Cover(int64_t more);
  // The same for one more place where a token leaves the rule.
  bool CoverEscape(const Outline& outline, size_t n_path);
  // Grants the automaton what the credit allows; takes away what was used.
  void BeginWork();
  void EndWork();

  std::shared_ptr<const FormVocab> vocab_;
  FormShare share_;  // of masks and outlines
  std::unordered_map<int64_t, std::shared_ptr<const TokenMask>> masks_;
  std::unordered_map<Automaton::State, Outline> outlines_;
  int64_t mask_bytes_ = 0, granted_ = 0;
};

}  // namespace weir::forms
