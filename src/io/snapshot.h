// SPDX-License-Identifier: Apache-2.0
// Snapshot files: a saved session as one file that is always whole.
//
// Layout, little-endian: magic "weirsnap", u32 version, u32 zero, u64 text bytes, u64 state bytes, u64 checksum, then
// the text and the state. The text is what the writer wants to say about the state (JSON, by convention); the state is
// what Session::Save() gave; it passes by in pieces and is never in memory as a whole. The checksum covers everything
// but itself; it finds damage, it is no signature.
//
// A writer fills NAME.part, syncs it, renames it to NAME and syncs the folder. Whenever the process or the machine
// dies, NAME is the old file or the new one; a NAME.part that stayed behind is written over by the next save. Two
// writers of one NAME, in any processes, exclude each other by a lock on the part.
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

// Of bytes that come in pieces of any size.
class Checksum {
 public:
  void Add(std::span<const uint8_t> bytes);
  // What was added since the last End() is a part of its own.
  void End();
  uint64_t value() const { return sum_; }

 private:
  void Step(uint64_t word);
  uint64_t sum_ = 0x77656972u;
  uint8_t rest_[8] = {};
  uint64_t n_ = 0;  // bytes of this part
};

// A longer text is neither written nor read: it is all of a snapshot that is held in memory.
inline constexpr int64_t kMaxSnapshotText = 32 << 20;

// Writes a snapshot as the state comes. Without Finish() its NAME stays what it was, and nothing else stays behind.
class SnapshotWriter final : public ByteSink {
 public:
  // kIo when the file cannot be written; kOverBudget when another save of the same file is under way, or for a text of
  // more than kMaxSnapshotText bytes.
  static Result<std::unique_ptr<SnapshotWriter>> Begin(const std::string& path, std::string_view text,
                                                       int64_t state_bytes);
  ~SnapshotWriter() override;
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;

  // kIo; kInternal for more than state_bytes in all.
  Status Write(std::span<const uint8_t> bytes) override;
  // Waits for the disk and puts the file in its place. kIo; kInternal for fewer than state_bytes.
  Status Finish();

  int64_t state_bytes() const { return state_bytes_; }

 private:
  SnapshotWriter() = default;
  std::string path_, part_;
  int fd_ = -1;
  int64_t state_bytes_ = 0, n_written_ = 0;
  Checksum checksum_;
};

// A snapshot that is whole and undamaged, with its state as a source.
class SnapshotReader final : public ByteSource {
 public:
  // Reads the file once from end to end. kNotFound; kIo for what cannot be read or is no regular file; kUnsupported for
  // another version; kCorrupt for anything that a SnapshotWriter did not write; kOverBudget for a file of more than
  // max_bytes, which bounds how long that takes, or a text of more than kMaxSnapshotText.
  static Result<std::unique_ptr<SnapshotReader>> Open(const std::string& path, int64_t max_bytes);
  ~SnapshotReader() override;
  SnapshotReader(const SnapshotReader&) = delete;
  SnapshotReader& operator=(const SnapshotReader&) = delete;

  const std::string& text() const { return text_; }

  // The state. Errors also kIo, and kCorrupt for a file that was written to after Open(): told by its time of
  // change, with the last byte at the latest.
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
