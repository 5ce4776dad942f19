// SPDX-License-Identifier: Apache-2.0
// Free text that ends where one of some texts occurs in it, as rules of a network.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/forms/form.h"
#include "text/forms/network.h"

namespace weir::forms {

// Where a text is on its way to one of the starts: for those that may come anywhere by Aho and Corasick 1975, for those
// that may only come first by the tree of their letters.
class FreeText {
 public:
  // kInvalidArgument: a start is empty.
  static Result<FreeText> Of(const std::vector<FormBuilder::Trigger>& triggers);

  enum class Goes {
    kOn,       // up to a start that is not the last one, and its part
    kLast,     // up to one that is, and its part
    kNowhere,  // no start occurs
  };
  // Some start is the last.
  bool has_last() const { return has_last_; }
  // A new rule. `at_start`: nothing came before.
  int32_t Add(Goes goes, bool at_start, NetworkBuilder* network) const;

 private:
  struct Node {
    std::map<uint8_t, int32_t> next;
    int32_t back = 0;     // for starts anywhere: the longest end of this text that begins a start, too
    int32_t found = -1;   // the trigger whose start ends here
    bool spaces = false;  // for first ones: white space changes nothing here
  };
  using Tree = std::vector<Node>;
  // Where a text is in both trees.
  struct Place {
    int32_t lead;  // -1: none of the first ones can follow
    int32_t at;
    bool operator==(const Place& other) const { return lead == other.lead && at == other.at; }
    bool operator<(const Place& other) const { return lead != other.lead ? lead < other.lead : at < other.at; }
  };

  static void Grow(Tree* tree, const FormBuilder::Trigger& trigger, int32_t index);
  int32_t Next(int32_t at, uint8_t byte) const;
  Place Next(const Place& from, uint8_t byte) const;
  int32_t FoundAt(const Place& place) const;

  std::vector<FormBuilder::Trigger> triggers_;
  bool has_last_ = false;
  Tree anywhere_ = Tree(1), first_ = Tree(1);
};

}  // namespace weir::forms
