// SPDX-License-Identifier: Apache-2.0
#include "text/forms/form_cache.h"

#include <algorithm>
#include <array>

namespace weir::forms {
namespace {

// What a mask or an outline takes beside its bits, and how many of them there are while one is made.
constexpr int64_t kKeptBytes = 320, kMasksInWork = 5;

}  // namespace

void FormCache::BeginWork() {
  granted_ = std::min(credit, kMaxWork);
  automaton.BeginWork(granted_);
}

void FormCache::EndWork() { credit -= granted_ - automaton.work_left(); }

Automaton::State FormCache::Read(Automaton::State state, std::string_view bytes) {
  credit = std::min(credit + kTokenWork, kFormWork);
  BeginWork();
  for (const char c : bytes) state = automaton.Next(state, static_cast<uint8_t>(c));
  EndWork();
  return automaton.failed() ? Automaton::kDead : state;
}

bool FormCache::Cover(int64_t more) {
  if (!share_.Cover(mask_bytes_ + more)) automaton.Refuse();
  return !automaton.failed();
}

bool FormCache::CoverEscape(const Outline& outline, size_t n_path) {
  const size_t n_escapes = outline.escapes.capacity(), n_paths = outline.paths.capacity();
  if (outline.escapes.size() < n_escapes && outline.paths.size() + n_path <= n_paths) return true;
  // Twice as much, beside what there is, and the masks in work.
  return Cover(kMasksInWork * MaskBytes() +
               3 * static_cast<int64_t>(n_escapes * sizeof(Outline::Escape) + n_paths + n_path + 64));
}

TokenMask FormCache::Empty() const {
  TokenMask mask;
  mask.bits.assign((static_cast<size_t>(vocab_->n_tokens()) + 63) / 64, 0);
  return mask;
}

void FormCache::Mark(int32_t token, TokenMask* mask) const {
  const auto mark = [&](int32_t id) { mask->bits[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64); };
  if (token >= 0) return mark(token);
  if (token <= FormVocab::kGroup) {
    for (const int32_t id : vocab_->group(token)) mark(id);
  }
}

void FormCache::Walk(Automaton::State state, int32_t begin, int32_t end, int depth, TokenMask* mask, Outline* outline) {
  std::array<Automaton::State, FormVocab::kShortBytes + 1> at;
  std::array<char, FormVocab::kShortBytes + 1> path;
  at[static_cast<size_t>(depth)] = state;
  const std::vector<FormVocab::Node>& nodes = vocab_->nodes();
  for (int32_t i = begin; i < end && !automaton.failed();) {
    const FormVocab::Node& node = nodes[static_cast<size_t>(i)];
    const Automaton::State next = automaton.Next(at[node.depth - 1], node.byte);
    if (next == Automaton::kDead) {
      i = node.end;
      continue;
    }
    if (outline != nullptr) {
      outline->reach = std::max(outline->reach, automaton.Reach(next));
      path[node.depth - 1] = static_cast<char>(node.byte);
      if (automaton.Escaped(next)) {
        if (!CoverEscape(*outline, node.depth)) return;
        outline->escapes.push_back({i, static_cast<int32_t>(outline->paths.size())});
        outline->paths.append(path.data(), node.depth);
        i = node.end;
        continue;
      }
    }
    at[node.depth] = next;
    if (node.token != FormVocab::kNone) Mark(node.token, mask);
    ++i;
  }
}

const FormCache::Outline* FormCache::OutlineOf(Automaton::State state) {
  const auto [it, is_new] = outlines_.try_emplace(state);
  Outline& out = it->second;
  if (is_new) {
    out.mask = Empty();
    Walk(state, 0, static_cast<int32_t>(vocab_->nodes().size()), 0, &out.mask, &out);
    if (automaton.failed()) {  // it is incomplete
      outlines_.erase(it);
      return nullptr;
    }
    out.escapes.shrink_to_fit();
    out.paths.shrink_to_fit();
    mask_bytes_ += MaskBytes() + kKeptBytes +
                   static_cast<int64_t>(out.escapes.capacity() * sizeof(Outline::Escape) + out.paths.capacity());
  }
  return &out;
}

TokenMask FormCache::ShortMask(Automaton::State state) {
  const std::vector<FormVocab::Node>& nodes = vocab_->nodes();
  const Automaton::State outlined = automaton.Outline(state);
  if (automaton.failed()) return {};
  const Outline* known = outlined == state ? nullptr : OutlineOf(outlined);
  if (automaton.failed()) return {};
  // Where callers nest almost as deep as they may, the outline knows too little.
  if (known == nullptr || automaton.Reach(state) + known->reach > kMaxNesting) {
    TokenMask mask = Empty();
    Walk(state, 0, static_cast<int32_t>(nodes.size()), 0, &mask, nullptr);
    return mask;
  }
  const Outline& outline = *known;
  TokenMask mask = outline.mask;
  for (const Outline::Escape& escape : outline.escapes) {
    const FormVocab::Node& node = nodes[static_cast<size_t>(escape.node)];
    Automaton::State at = state;
    for (int i = 0; i < node.depth && at != Automaton::kDead; ++i) {
      at = automaton.Next(at, static_cast<uint8_t>(outline.paths[static_cast<size_t>(escape.path + i)]));
    }
    if (at == Automaton::kDead) continue;
    if (node.token != FormVocab::kNone) Mark(node.token, &mask);
    Walk(at, escape.node + 1, node.end, node.depth, &mask, nullptr);
  }
  return mask;
}

void FormCache::AddLong(Automaton::State state, size_t skip, TokenMask* mask) {
  for (const int32_t id : vocab_->long_tokens()) {
    const std::string_view bytes = vocab_->Bytes(id);
    if (skip > 0 && bytes[0] != ' ') continue;
    Automaton::State at = state;
    for (size_t i = skip; i < bytes.size() && at != Automaton::kDead; ++i) {
      at = automaton.Next(at, static_cast<uint8_t>(bytes[i]));
    }
    if (at != Automaton::kDead) Mark(id, mask);
  }
}

void FormCache::AddAfterSpace(Automaton::State state, TokenMask* mask) {
  const std::vector<FormVocab::Node>& nodes = vocab_->nodes();
  for (int32_t i = 0; i < static_cast<int32_t>(nodes.size()); i = nodes[static_cast<size_t>(i)].end) {
    const FormVocab::Node& node = nodes[static_cast<size_t>(i)];
    if (node.byte != ' ') continue;
    // What was allowed with the space is not what will be read.
    TokenMask with = Empty(), without = Empty();
    Mark(node.token, &without);  // a space alone reads nothing
    Walk(state, i + 1, node.end, 1, &without, nullptr);
    const Automaton::State spaced = automaton.Next(state, ' ');
    if (spaced != Automaton::kDead) {
      Mark(node.token, &with);
      Walk(spaced, i + 1, node.end, 1, &with, nullptr);
    }
    for (size_t w = 0; w < mask->bits.size(); ++w) mask->bits[w] = (mask->bits[w] & ~with.bits[w]) | without.bits[w];
  }
  for (const int32_t id : vocab_->long_tokens()) {
    if (vocab_->Bytes(id)[0] == ' ') mask->bits[static_cast<size_t>(id) / 64] &= ~(uint64_t{1} << (id % 64));
  }
  AddLong(state, 1, mask);
}

std::shared_ptr<const TokenMask> FormCache::MaskAt(Automaton::State state, bool drop_space) {
  BeginWork();
  // Long before a count runs out, every state of it has the same mask.
  state = automaton.Within(state, vocab_->max_bytes());
  const int64_t key = int64_t{state} * 2 + (drop_space ? 1 : 0);
  if (const auto it = masks_.find(key); it != masks_.end() && !automaton.failed()) {
    EndWork();
    return it->second;
  }
  TokenMask mask;
  if (!automaton.failed() && Cover(kMasksInWork * MaskBytes() + 2 * kKeptBytes)) {
    const Automaton::State near = automaton.Within(state, FormVocab::kShortBytes);
    if (!automaton.failed()) mask = ShortMask(near);
  }
  if (!automaton.failed()) AddLong(state, 0, &mask);
  if (!automaton.failed() && drop_space) AddAfterSpace(state, &mask);
  EndWork();
  if (automaton.failed()) return nullptr;
  for (const uint64_t word : mask.bits) mask.n_allowed += __builtin_popcountll(word);
  mask_bytes_ += MaskBytes() + kKeptBytes;
  return masks_.emplace(key, std::make_shared<TokenMask>(std::move(mask))).first->second;
}

}  // namespace weir::forms
