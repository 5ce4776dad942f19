// SPDX-License-Identifier: Apache-2.0
// Snapshot files: a saved session in one file, replaced atomically.
//
// Layout, little-endian: magic "weirsnap", u32 version, u32 zero, u64 text bytes, u64 state bytes, u64 checksum, then
// the text and the state. The text describes the state (JSON, by convention). The state is the output of
// Session::Save(); it is streamed in pieces and never in memory as a whole. The checksum covers everything but itself;
// it detects damage, it is not a signature.
//
// A writer fills NAME.part, syncs it, renames it to NAME and syncs the folder. If the process or the machine crashes,
// NAME is either the old file or the new one; the next save overwrites a leftover NAME.part. A lock on the part file
// excludes concurrent writers of one NAME, across processes.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"

namespace weir {

// Checksum of bytes that arrive in pieces of any size.
class Checksum {
 public:
  void Add(std::span<const uint8_t> bytes);
  // Ends a section: the bytes added since the last End().
  void End();
  uint64_t value() const { return sum_; }

 private:
  void Step(uint64_t word);
  uint64_t sum_ = 0x77656972u;
  uint8_t rest_[8] = {};
  uint64_t n_ = 0;  // bytes of this section
};

// The limit for reading and writing the text, the only part of a snapshot that is held in memory.
inline constexpr int64_t kMaxSnapshotText = 32 << 20;

// Writes a snapshot while the state is streamed. Without Finish(), NAME is unchanged and no other file is left.
class SnapshotWriter final : public ByteSink {
 public:
  // kIo when the file cannot be written; kOverBudget when another save of the same file is in progress, or for a text
  // of more than kMaxSnapshotText bytes.
  static Result<std::unique_ptr<SnapshotWriter>> Begin(const std::string& path, std::string_view text,
                                                       int64_t state_bytes);
  ~SnapshotWriter() override;
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;

  // kIo; kInternal for more than state_bytes in total.
  Status Write(std::span<const uint8_t> bytes) override;
  // Syncs the file and moves it into place. kIo; kInternal for fewer than state_bytes. sync false: for a file that need
  // not survive this machine.
  Status Finish(bool sync = true);

  int64_t state_bytes() const { return state_bytes_; }

 private:
  SnapshotWriter() = default;
  std::string path_, part_;
  int fd_ = -1;
  int64_t state_bytes_ = 0, n_written_ = 0;
  Checksum checksum_;
};

// A complete, undamaged snapshot, with its state as a source.
class SnapshotReader final : public ByteSource {
 public:
  // Reads the whole file once. kNotFound; kIo when the file cannot be read or is not a regular file; kUnsupported for
  // another version; kCorrupt for anything that a SnapshotWriter did not write; kOverBudget for a file of more than
  // max_bytes, which bounds the reading time, or a text of more than kMaxSnapshotText.
  static Result<std::unique_ptr<SnapshotReader>> Open(const std::string& path, int64_t max_bytes);
  ~SnapshotReader() override;
  SnapshotReader(const SnapshotReader&) = delete;
  SnapshotReader& operator=(const SnapshotReader&) = delete;

  const std::string& text() const { return text_; }

  // The state. Errors also kIo, and kCorrupt for a file modified after Open(), which its modification time reveals, at
  // the last byte at the latest.
  Status Read(std::span<uint8_t> to) override;
  Status Skip(int64_t n) override;
  int64_t n_left() const override { return state_bytes_ - at_; }
  void Rewind() override { at_ = 0; }

 private:
  SnapshotReader() = default;
  std::string path_, text_;
  int fd_ = -1;
  timespec changed_ = {};
  int64_t state_begin_ = 0, state_bytes_ = 0, at_ = 0;
};

}  // namespace weir
