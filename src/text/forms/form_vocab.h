// SPDX-License-Identifier: Apache-2.0
// A vocabulary as forms see it: the bytes of every token, as one tree in which tokens share their beginnings.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace weir {

// Immutable; about 6 MiB for 150,000 tokens.
class FormVocab {
 public:
  // Keeps no reference to the tokenizer.
  static std::shared_ptr<const FormVocab> Make(const Tokenizer& tokenizer);
  // The memory that it takes, and as much as it may take while it is made.
  int64_t n_bytes() const;
  static int64_t MostBytes(const Tokenizer& tokenizer);

  int32_t n_tokens() const { return static_cast<int32_t>(begins_.size()) - 1; }
  // What the token adds to a text. A control token is spelled as in forms/network.h; empty: forms never allow it.
  std::string_view Bytes(int32_t id) const {
    const auto at = static_cast<size_t>(id);
    return std::string_view(pool_).substr(begins_[at], begins_[at + 1] - begins_[at]);
  }
  // The control token of this text; -1: none.
  int32_t FindControl(std::string_view text) const;
  // Bytes that a token of their own stands for: whatever is written with them can be written.
  const std::array<bool, 256>& usable() const { return usable_; }

  // The tree of tokens with at most kShortBytes bytes, in the order of a walk that visits a node before those below it.
  static constexpr int kShortBytes = 32;
  struct Node {
    int32_t end;     // the first node that is not below this one
    int32_t token;   // kNone; or one token; or kGroup - i: all tokens of group i, which have the same bytes
    uint16_t depth;  // 1 at the top
    uint8_t byte;
  };
  static constexpr int32_t kNone = -1, kGroup = -2;
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<int32_t>& group(int32_t token) const { return groups_[static_cast<size_t>(kGroup - token)]; }
  const std::vector<int32_t>& long_tokens() const { return long_tokens_; }
  int max_bytes() const { return max_bytes_; }  // of a token

 private:
  FormVocab() = default;
  void Build(std::vector<int32_t> ids);

  std::string pool_;
  std::vector<size_t> begins_;
  std::array<bool, 256> usable_{};
  std::vector<Node> nodes_;
  std::vector<std::vector<int32_t>> groups_;
  std::vector<int32_t> long_tokens_;
  int max_bytes_ = kShortBytes;
  std::vector<std::pair<std::string, int32_t>> controls_;  // sorted
};

}  // namespace weir
