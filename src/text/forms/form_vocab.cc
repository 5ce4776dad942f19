// SPDX-License-Identifier: Apache-2.0
#include "text/forms/form_vocab.h"

#include <algorithm>

#include "text/forms/network.h"

namespace weir {

std::shared_ptr<const FormVocab> FormVocab::Make(const Tokenizer& tokenizer) {
  std::shared_ptr<FormVocab> out(new FormVocab);
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < tokenizer.n_tokens(); ++id) {
    out->begins_.push_back(out->pool_.size());
    std::string bytes;
    const TokenType type = tokenizer.Type(id);
    // A token that ends an answer is no text of it, whatever the file says of its type.
    if (type == TokenType::kControl || tokenizer.IsEndOfGeneration(id)) {
      bytes = forms::SpellToken(id);
      out->controls_.emplace_back(tokenizer.TokenText(id), id);
    } else if (type != TokenType::kUnknown) {
      bytes = tokenizer.TokenBytes(id);
      // No text has these bytes, and the spelling of control tokens does.
      const auto strange = [](char c) { return static_cast<uint8_t>(c) >= forms::kTokenDigit; };
      if (std::any_of(bytes.begin(), bytes.end(), strange)) bytes.clear();
      if (bytes.size() == 1) out->usable_[static_cast<uint8_t>(bytes[0])] = true;
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
  std::vector<int32_t> open;  // the nodes of the last token's bytes
  std::string_view last;
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
}

int32_t FormVocab::FindControl(std::string_view text) const {
  const auto it = std::lower_bound(controls_.begin(), controls_.end(), text,
                                   [](const auto& entry, std::string_view want) { return entry.first < want; });
  return it != controls_.end() && it->first == text ? it->second : -1;
}

}  // namespace weir
