// SPDX-License-Identifier: Apache-2.0
#include "text/forms/form_vocab.h"

#include <algorithm>

#include "text/forms/network.h"

namespace weir {

namespace {

// A token that ends an answer is no text of it, whatever the file says of its type.
bool IsControl(const Tokenizer& tokenizer, int32_t id) {
  return tokenizer.Type(id) == TokenType::kControl || tokenizer.IsEndOfGeneration(id);
}

// As FormVocab::Bytes().
std::string Spelling(const Tokenizer& tokenizer, int32_t id) {
  if (IsControl(tokenizer, id)) return forms::SpellToken(id);
  if (tokenizer.Type(id) == TokenType::kUnknown) return {};
  std::string bytes = tokenizer.TokenBytes(id);
  // No text has these bytes, and the spelling of control tokens does.
  const auto strange = [](char c) { return static_cast<uint8_t>(c) >= forms::kTokenDigit; };
  if (std::any_of(bytes.begin(), bytes.end(), strange)) bytes.clear();
  return bytes;
}

size_t PoolBytes(const Tokenizer& tokenizer) {
  size_t out = 0;
  for (int32_t id = 0; id < tokenizer.n_tokens(); ++id) out += Spelling(tokenizer, id).size();
  return out;
}

constexpr int64_t kControlBytes = 128, kGroupBytes = 64;  // of one, and what memory of its own takes beside it

}  // namespace

int64_t FormVocab::MostBytes(const Tokenizer& tokenizer) {
  int64_t out = sizeof(FormVocab);
  for (int32_t id = 0; id < tokenizer.n_tokens(); ++id) {
    const auto n = static_cast<int64_t>(Spelling(tokenizer, id).size());
    // Its bytes, a node for each, a place in the lists, and perhaps in a group.
    out += n + std::min<int64_t>(n, kShortBytes) * static_cast<int64_t>(sizeof(Node)) + 24 + kGroupBytes;
    if (IsControl(tokenizer, id)) out += 3 * kControlBytes + 2 * static_cast<int64_t>(tokenizer.TokenText(id).size());
  }
  return out;
}

int64_t FormVocab::n_bytes() const {
  const auto of = [](const auto& list) { return static_cast<int64_t>(list.capacity() * sizeof(list[0])); };
  int64_t out = static_cast<int64_t>(sizeof(*this)) + of(pool_) + of(begins_) + of(nodes_) + of(groups_) +
                of(long_tokens_) + of(controls_);
  for (const auto& group : groups_) out += of(group) + kGroupBytes;
  for (const auto& [text, id] : controls_) out += static_cast<int64_t>(text.capacity());
  return out;
}

std::shared_ptr<const FormVocab> FormVocab::Make(const Tokenizer& tokenizer) {
  std::shared_ptr<FormVocab> out(new FormVocab);
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(tokenizer.n_tokens()));
  out->begins_.reserve(static_cast<size_t>(tokenizer.n_tokens()) + 1);
  out->pool_.reserve(PoolBytes(tokenizer));
  for (int32_t id = 0; id < tokenizer.n_tokens(); ++id) {
    out->begins_.push_back(out->pool_.size());
    const std::string bytes = Spelling(tokenizer, id);
    if (IsControl(tokenizer, id)) {
      out->controls_.emplace_back(tokenizer.TokenText(id), id);
    } else if (bytes.size() == 1) {
      out->usable_[static_cast<uint8_t>(bytes[0])] = true;
    }
    out->pool_ += bytes;
    if (bytes.size() > static_cast<size_t>(kShortBytes)) {
      out->long_tokens_.push_back(id);
      out->max_bytes_ = std::max(out->max_bytes_, static_cast<int>(bytes.size()));
    } else if (!bytes.empty()) {
      ids.push_back(id);
    }
  }
  out->begins_.push_back(out->pool_.size());
  std::sort(out->controls_.begin(), out->controls_.end());
  out->Build(std::move(ids));
  return out;
}

void FormVocab::Build(std::vector<int32_t> ids) {
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    const std::string_view x = Bytes(a), y = Bytes(b);
    return x != y ? x < y : a < b;
  });
  std::string_view last;
  size_t n_nodes = 0;
  for (const int32_t id : ids) {
    const std::string_view bytes = Bytes(id);
    n_nodes +=
        bytes.size() -
        static_cast<size_t>(std::mismatch(last.begin(), last.end(), bytes.begin(), bytes.end()).first - last.begin());
    last = bytes;
  }
  nodes_.reserve(n_nodes);
  last = {};
  std::vector<int32_t> open;  // the nodes of the last token's bytes
  const auto close = [&](size_t n) {
    for (; open.size() > n; open.pop_back())
      nodes_[static_cast<size_t>(open.back())].end = static_cast<int32_t>(nodes_.size());
  };
  for (const int32_t id : ids) {
    const std::string_view bytes = Bytes(id);
    const size_t same =
        static_cast<size_t>(std::mismatch(last.begin(), last.end(), bytes.begin(), bytes.end()).first - last.begin());
    close(same);
    for (size_t i = same; i < bytes.size(); ++i) {
      open.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back({0, kNone, static_cast<uint16_t>(i + 1), static_cast<uint8_t>(bytes[i])});
    }
    int32_t& token = nodes_[static_cast<size_t>(open.back())].token;
    if (token == kNone) {
      token = id;
    } else if (token >= 0) {
      groups_.push_back({token, id});
      token = kGroup - (static_cast<int32_t>(groups_.size()) - 1);
    } else {
      groups_[static_cast<size_t>(kGroup - token)].push_back(id);
    }
    last = bytes;
  }
  close(0);
  groups_.shrink_to_fit();
  long_tokens_.shrink_to_fit();
  controls_.shrink_to_fit();
}

int32_t FormVocab::FindControl(std::string_view text) const {
  const auto it = std::lower_bound(controls_.begin(), controls_.end(), text,
                                   [](const auto& entry, std::string_view want) { return entry.first < want; });
  return it != controls_.end() && it->first == text ? it->second : -1;
}

}  // namespace weir
