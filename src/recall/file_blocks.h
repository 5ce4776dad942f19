// SPDX-License-Identifier: Apache-2.0
// A text file on disk as the archive of the session that reads it: nothing is copied, blocks are cut from the file when
// they are needed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "recall/block.h"

namespace weir {

class FileBlocks final : public BlockSource {
 public:
  // Keeps the file open. kIo if it cannot be read, kInvalidArgument if it is not a regular file.
  static Result<std::unique_ptr<FileBlocks>> Open(const std::string& path);
  ~FileBlocks() override;
  FileBlocks(const FileBlocks&) = delete;
  FileBlocks& operator=(const FileBlocks&) = delete;

  // The session's next token has this seq when the file was read up to this byte. Between such points, seqs are
  // estimated. Only what was read is scanned.
  void ReadTo(int64_t byte, int64_t seq);
  // What an object takes, its buffers among it; the same for every file.
  static int64_t MemoryBytes();

  BlockPlace begin() const override { return 0; }
  Status Scan(BlockPlace from, const Visit& visit) override;

 private:
  FileBlocks() = default;
  int64_t SeqAt(int64_t byte) const;

  std::string path_;
  int fd_ = -1;
  // Points of (byte, seq): when the table is full, every second one is dropped, so that its size is fixed.
  static constexpr size_t kMaxPoints = 1024;
  std::array<std::pair<int64_t, int64_t>, kMaxPoints> points_;
  size_t n_points_ = 0;
  int64_t every_ = 1;  // bytes between points, at least
  int64_t byte_end_ = 0, seq_end_ = 0;
  std::vector<char> buffer_;  // of the file
  std::string repaired_;      // a block that was not UTF-8
};

}  // namespace weir
