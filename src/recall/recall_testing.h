// SPDX-License-Identifier: Apache-2.0
// Blocks in memory, for tests.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "recall/block.h"

namespace weir::testing {

// Its places are indices.
class ListedBlocks final : public BlockSource {
 public:
  // A block behind the others, `n_tokens` long.
  void Add(std::string text, int32_t n_tokens = 32, Role role = Role::kInput) {
    texts_.push_back(std::move(text));
    blocks_.push_back({.seq = seq_end_, .n_tokens = n_tokens, .t_ms = 1000 * seq_end_, .role = role});
    seq_end_ += n_tokens;
  }
  void AddPicture(int32_t n_tokens) {
    Add("", n_tokens);
    blocks_.back().modality = Modality::kImage;
  }
  int64_t seq_end() const { return seq_end_; }
  const std::vector<Block>& blocks() const { return blocks_; }

  BlockPlace begin() const override { return 0; }
  Status Scan(BlockPlace from, const Visit& visit) override {
    for (auto i = static_cast<size_t>(std::max(from, first)); i < blocks_.size(); ++i) {
      if (static_cast<BlockPlace>(i) == damaged) continue;
      Block block = blocks_[i];
      block.text = texts_[i];
      if (!visit(static_cast<BlockPlace>(i), block)) break;
    }
    return fails ? IoError("the disk is gone") : Status();
  }

  bool fails = false;
  BlockPlace first = 0;     // older blocks were deleted
  BlockPlace damaged = -1;  // a block that cannot be read

 private:
  std::vector<Block> blocks_;
  std::vector<std::string> texts_;
  int64_t seq_end_ = 0;
};

}  // namespace weir::testing
