// SPDX-License-Identifier: Apache-2.0
// What a stream consisted of, in blocks: a few dozen tokens of one role that arrived one after another, or one picture
// or frame. An archive keeps them (recall/archive.h), a file on disk can be read as if it were one
// (recall/file_blocks.h), selectors search them (recall/selector.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "base/status.h"
#include "kv/types.h"

namespace weir {

// Who said it. kQuestion: what the user says in a round, a question or not.
enum class Role : uint8_t { kInput, kQuestion, kAnswer };

// What a block's record holds.
enum class BlockBody : uint8_t {
  kContent = 1,  // text, or a picture's rows
  kOneRow = 2,   // one row for the whole block, of text or a picture: a summary
  kRowEach = 3,  // a row for each of its tokens, of text or a picture
};

struct Block {
  int64_t seq = 0;       // of its first token
  int32_t n_tokens = 0;  // of a picture: its rows
  int64_t t_ms = 0;      // t_src of its first token
  Role role = Role::kInput;
  Modality modality = Modality::kText;
  std::string_view text = {};  // valid UTF-8, cut between words where there are any; empty for a picture
  // kContent: a picture's rows for the language model, [n_tokens, n_embd] half-precision numbers in line order.
  // Otherwise 16-bit numbers whose meaning the writer knows (recall/block_vectors.h).
  std::span<const uint16_t> rows = {};
  int32_t columns = 1;  // rows per line
  BlockBody body = BlockBody::kContent;

  int64_t seq_end() const { return seq + n_tokens; }
};

// Where a block lies in its source. Places grow along the stream; nothing else follows from the number.
using BlockPlace = int64_t;

// Blocks in the order of the stream.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  // The place of the oldest block that can still be read.
  virtual BlockPlace begin() const = 0;
  // Calls `visit` with every block from the one at `from` on until it returns false. A block is valid during its call.
  // A damaged block is left out. kIo when the source cannot be read. REQUIRES: `from` is begin() or a place that an
  // earlier scan visited; blocks that a quota has removed since are left out.
  using Visit = std::function<bool(BlockPlace, const Block&)>;
  virtual Status Scan(BlockPlace from, const Visit& visit) = 0;
  // The same, but pictures come without their rows, which are not read: a damaged one may come, too.
  virtual Status ScanText(BlockPlace from, const Visit& visit) { return Scan(from, visit); }
};

}  // namespace weir
