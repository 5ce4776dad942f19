// SPDX-License-Identifier: Apache-2.0
#include "text/forms/free_text.h"

#include <deque>

namespace weir::forms {
namespace {

bool IsSpace(uint8_t byte) { return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r'; }
size_t At(int32_t i) { return static_cast<size_t>(i); }

}  // namespace

void FreeText::Grow(Tree* tree, const FormBuilder::Trigger& trigger, int32_t index) {
  int32_t at = 0;
  for (const char c : trigger.start) {
    if (trigger.first && c == ' ') {
      (*tree)[At(at)].spaces = true;
      continue;
    }
    const auto size = static_cast<int32_t>(tree->size());
    const auto [it, is_new] = (*tree)[At(at)].next.try_emplace(static_cast<uint8_t>(c), size);
    at = it->second;
    if (is_new) tree->emplace_back();
  }
  if ((*tree)[At(at)].found < 0) (*tree)[At(at)].found = index;
}

Result<FreeText> FreeText::Of(const std::vector<FormBuilder::Trigger>& triggers) {
  FreeText out;
  out.triggers_ = triggers;
  out.first_[0].spaces = true;
  for (size_t i = 0; i < triggers.size(); ++i) {
    if (triggers[i].start.find_first_not_of(triggers[i].first ? " " : "") == std::string::npos) {
      return InvalidArgument("a form must start after some text");
    }
    out.has_last_ |= triggers[i].last;
    Grow(triggers[i].first ? &out.first_ : &out.anywhere_, triggers[i], static_cast<int32_t>(i));
  }
  std::deque<int32_t> todo = {0};
  while (!todo.empty()) {
    const int32_t at = todo.front();
    todo.pop_front();
    for (const auto& [byte, to] : out.anywhere_[At(at)].next) {
      Node& node = out.anywhere_[At(to)];
      node.back = at == 0 ? 0 : out.Next(out.anywhere_[At(at)].back, byte);
      // A start that ends here within another one.
      if (node.found < 0) node.found = out.anywhere_[At(node.back)].found;
      todo.push_back(to);
    }
  }
  return out;
}

int32_t FreeText::Next(int32_t at, uint8_t byte) const {
  for (;; at = anywhere_[At(at)].back) {
    const auto& next = anywhere_[At(at)].next;
    if (const auto it = next.find(byte); it != next.end()) return it->second;
    if (at == 0) return 0;
  }
}

FreeText::Place FreeText::Next(const Place& from, uint8_t byte) const {
  Place to{-1, Next(from.at, byte)};
  if (from.lead < 0) return to;
  const Node& lead = first_[At(from.lead)];
  if (const auto it = lead.next.find(byte); it != lead.next.end()) {
    to.lead = it->second;
  } else if (lead.spaces && IsSpace(byte)) {
    to.lead = from.lead;
  }
  return to;
}

int32_t FreeText::FoundAt(const Place& place) const {
  if (place.lead >= 0 && first_[At(place.lead)].found >= 0) return first_[At(place.lead)].found;
  return anywhere_[At(place.at)].found;
}

int32_t FreeText::Add(Goes goes, bool at_start, NetworkBuilder* network) const {
  const int32_t rule = network->AddRule("");
  std::map<Place, int32_t> nodes;
  std::vector<Place> todo;
  const auto node_of = [&](const Place& place) {
    const auto [it, is_new] = nodes.try_emplace(place, -1);
    if (is_new) {
      it->second = nodes.size() == 1 ? network->StartOf(rule) : network->AddNode();
      todo.push_back(place);
    }
    return it->second;
  };
  (void)node_of({at_start && first_.size() > 1 ? 0 : -1, 0});
  while (!todo.empty() && !network->full()) {
    const Place place = todo.back();
    todo.pop_back();
    const int32_t from = nodes[place];
    if (const int32_t found = FoundAt(place); found >= 0) {
      // Text that no start may occur in ends before this; text up to another kind of start does, too.
      const FormBuilder::Trigger& trigger = triggers_[At(found)];
      if (goes == (trigger.last ? Goes::kLast : Goes::kOn)) network->Call(from, trigger.then, network->EndOf(rule));
      continue;
    }
    if (goes == Goes::kNowhere) network->Empty(from, network->EndOf(rule));
    for (int byte = 0; byte < 256; ++byte) {
      const Place to = Next(place, static_cast<uint8_t>(byte));
      int last = byte;
      while (last < 255 && last + 1 != kTokenDigit && Next(place, static_cast<uint8_t>(last + 1)) == to) ++last;
      // A control token that is on no way to a start.
      const bool is_token = byte >= kTokenDigit && to.at == 0;
      if (!is_token) {
        network->Byte(from, static_cast<uint8_t>(byte), static_cast<uint8_t>(last), node_of(to));
      }
      byte = last;
    }
  }
  return rule;
}

}  // namespace weir::forms
