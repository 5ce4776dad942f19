// SPDX-License-Identifier: Apache-2.0
// Archive: everything a session has read, on disk, in the order of the stream.
//
// A folder of segments, files of bounded size (00000017.seg, recall/segment.h) that only grow, each readable by itself;
// or the same in files without names, which disappear with the process. Blocks are written on arrival, through a
// buffer: what Flush() has written survives the death of the process, closed segments and what a SavePoint() covers
// that of the machine. Blocks in the buffer are found like all others. When the quota is reached, the oldest segment is
// deleted.
//
// Damage costs the damaged blocks: they are left out and counted (notes()), never read as something else. A disk that
// fails while the archive is written turns it off (state()): the stream goes on, what was written stays readable.
// Memory is fixed at the start (MemoryBytes()). Files are 0600, folders 0700. Not thread-safe.
//
// Beside the blocks there may be keys and values of their tokens (recall/block_vectors.h), in archives of their own
// inside the same folder, `keys` and `kv`, which are cut, copied and deleted with it. Each has a share of the quota and
// loses its own oldest segments, so that text stays longest. They have nothing that the blocks have not reached: what a
// killed process had written of them alone is deleted by Open().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "recall/block.h"
#include "recall/segment.h"

namespace weir {

struct ArchiveOptions {
  std::string dir;                        // "": files without names, in temp_dir
  std::string temp_dir = "/var/tmp";      // on a disk: what lies in a tmpfs takes memory
  int64_t disk_bytes = int64_t{2} << 30;  // quota
  uint64_t model_hash = 0, tokenizer_hash = 0;
  int32_t n_embd = 0;                 // width of a picture's rows
  int32_t max_rows = 0;               // of the largest picture; 0: no pictures
  int32_t max_text_bytes = 16 << 10;  // of a block
  // 16-bit numbers of the keys of a block, and of a token's keys and values; 0: not kept.
  int32_t key_numbers = 0, kv_numbers = 0;
  int32_t kv_tokens = 0;  // of the largest block of keys and values
  std::string owner;      // one line for who finds the folder of a new archive later: OwnerOf()
};

// What could not be read or kept, since the archive was made or opened.
struct ArchiveNotes {
  int64_t n_damaged = 0;           // places in the segments where bytes are no records
  int64_t n_lost_segments = 0;     // without a whole header, or unreadable
  int64_t n_foreign_pictures = 0;  // of another model: left out of the last scan
  int64_t n_too_large = 0;         // blocks larger than the buffers: left out
  int64_t cut_bytes = 0;           // an unfinished end: left out, and removed by Open()
  int64_t removed_to_seq = 0;      // nothing before it is left: removed for the quota
  int64_t missing_tokens = 0;      // CutTo(): the session has read them, the archive does not have them
  int64_t n_not_kept = 0;          // blocks that came after the archive was turned off
  // One line, without a full stop; "" when there is nothing to say.
  std::string Text() const;
};

// What a saved session remembers of its archive.
struct ArchivePoint {
  int64_t seq_end = 0;  // behind the newest token
  int32_t segment = 0;
  int64_t offset = 0;  // behind the newest record
  // What no other archive has there: the segment's salt, and the checksum of that record (0: the segment has none).
  uint32_t salt = 0, sum = 0;
};

class Archive final : public BlockSource {
 public:
  // A new archive. kInvalidArgument for a folder that holds anything (nothing of it is touched) or a quota below two
  // segments; kIo for a folder that cannot be made or written; kOverBudget. The parent folder must exist.
  static Result<std::unique_ptr<Archive>> Make(const ArchiveOptions& options, Ledger& ledger);
  // The archive of an existing folder, to go on with it. Segments of another model or tokenizer stay readable: their
  // text, not their pictures. kNotFound when there is none; kUnsupported for another version; kIo when another process
  // has it open. With a quota that is smaller than the archive, its oldest segments are deleted by the first CutTo() or
  // Append(). Read-only: takes no lock, changes nothing, sees what is on disk at the time; hashes are ignored.
  static Result<std::unique_ptr<Archive>> Open(const ArchiveOptions& options, Ledger& ledger);
  static Result<std::unique_ptr<Archive>> OpenReadOnly(const ArchiveOptions& options, Ledger& ledger);
  // Whether Open() would find an archive there.
  static bool Exists(const std::string& dir);
  // What ArchiveOptions::owner said when the folder's archive was made; "": nothing, or there is none.
  static std::string OwnerOf(const std::string& dir);
  // Deletes a folder's archive, readable or not, and the folder, if nothing else is in it. Ok where there is none; kIo
  // while anybody has it open.
  static Status Delete(const std::string& dir);
  // Syncs a folder's files: what Point() covers then survives the death of the machine.
  static Status Sync(const std::string& dir);
  ~Archive() override;
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  // What Make() reserves in its ledger, as MemTag::kOther. kInvalidArgument as Make().
  static Result<int64_t> MemoryBytes(const ArchiveOptions& options);
  int64_t memory_bytes() const { return memory_.bytes(); }

  // Adds a block. kInvalidArgument for one that is larger than the options allow or begins before seq_end(). An
  // archive that is off ignores it; a disk that fails is no error here.
  Status Append(const Block& block);
  // Hands what was appended to the operating system. The owner calls it at the end of each of its own calls.
  void Flush();
  // Ok while blocks are kept. Otherwise the reason, one line; it never becomes ok again.
  const Status& state() const { return state_; }
  // The same of the stores beside the blocks, which may be off while blocks are kept.
  Status stores_state() const;

  // Stores beside the blocks; nullptr: not kept.
  Archive* keys() { return keys_.get(); }
  Archive* kv() { return kv_.get(); }

  BlockPlace begin() const override;
  // `visit` must not change the archive. kIo when no segment can be read.
  Status Scan(BlockPlace from, const Visit& visit) override { return ScanBlocks(from, visit, Bodies::kAll); }
  Status ScanText(BlockPlace from, const Visit& visit) override { return ScanBlocks(from, visit, Bodies::kText); }
  // Scan() of the blocks that have tokens of `seqs`, without reading the others.
  Status ScanRange(SeqRange seqs, const Visit& visit);
  // Of the block that was appended last.
  BlockPlace newest_place() const { return newest_place_; }

  int64_t seq_begin() const;                    // of the oldest block; seq_end() when there is none
  int64_t seq_end() const { return seq_end_; }  // behind the newest
  int64_t disk_bytes() const;                   // of all segments, with what is in the buffer; of keys and values too
  int64_t n_segments() const { return n_segments_; }
  int64_t bytes_written() const { return bytes_written_; }
  const std::string& dir() const { return options_.dir; }
  ArchiveNotes notes() const;

  // Writes everything, and says how far it goes; SavePoint() syncs it, too.
  ArchivePoint Point();
  ArchivePoint SavePoint();
  // Whether the point is one of this archive, or of the one that it is a copy of: that record is there. One that is
  // damaged, or behind the end of what a disk has kept, counts as there; a segment that is gone does not. Errors of
  // reading.
  Result<bool> Has(const ArchivePoint& point);
  // Takes the archive back to a point: newer blocks are deleted, seq_end() is the point's. An archive that does not
  // reach so far keeps what it has, and notes() tells. Stores in the folder that the options do not name cannot be cut:
  // where anything is deleted, they are, too. kIo when the files cannot be changed.
  Status CutTo(const ArchivePoint& point);
  // A copy that is independent from now on; "" makes one without names. Closed segments are shared on disk where the
  // file system can. `owner` as ArchiveOptions::owner. Errors of Make().
  Result<std::unique_ptr<Archive>> Fork(const std::string& dir, Ledger& ledger, const std::string& owner = "");
  // Deletes the files and the folder; the archive is off afterwards. kIo when something cannot be deleted.
  Status Remove();

 private:
  struct Segment {
    SegmentHeader header;
    int64_t bytes = 0;      // the newest: without what is in the buffer
    int64_t n_damaged = 0;  // the most that a walk has met
    int64_t n_too_large = 0;
    int32_t fd = -1;      // kept open: the newest, and all of an archive without names
    bool lost = false;    // nothing in it can be read
    bool shared = false;  // with a fork: must not be changed in place
  };
  struct Sizes {
    int64_t segment = 0, n_segments = 0, write = 0, read = 0;
    int64_t disk = 0;  // the blocks' share of the quota
    int64_t total() const;
  };
  static Result<Sizes> SizesOf(const ArchiveOptions& options);
  static Result<std::unique_ptr<Archive>> OpenFolder(const ArchiveOptions& options, Ledger& ledger, bool read_only);

  Archive() = default;
  Status Allocate(Ledger& ledger, const Sizes& sizes);
  // Makes the stores that the options name, or opens those that are there.
  Status MakeStores(Ledger& ledger);
  Status CutStores(int64_t seq_end);
  Status DeleteUnusedStores() const;
  int64_t OwnDiskBytes() const;
  Status MakeFolder();
  std::string PathOf(int32_t number) const;
  bool named() const { return !options_.dir.empty(); }
  std::span<Segment> segments() const { return {segments_, static_cast<size_t>(n_segments_)}; }
  Segment& newest() const { return segments_[n_segments_ - 1]; }
  bool Foreign(const Segment& segment) const;

  // Behind the last byte of a segment, with what is in the buffer.
  int64_t EndOf(const Segment& segment) const;

  void TurnOff(const Status& why);
  Status Take(const Block& block);
  Status Add(const Block& block);
  Status MakeRoom();
  Status RemoveSurplus();
  Status Trim();
  Status BeginSegment(int64_t first_seq);
  Status CloseSegment();
  Status RemoveOldest();
  Status RemoveNewest();
  Status WriteOut();
  Status Put(std::span<const uint8_t> bytes);
  // Lets the newest segment take more records, if it is of this model and nobody else's.
  Status GoOn();
  Status ReadAt(const Segment& segment, int fd, int64_t at, std::span<uint8_t> to) const;
  Status ScanBlocks(BlockPlace from, const Visit& visit, Bodies bodies, int64_t pass_to = 0);
  // Walks over the records from `at` to `end` until `visit` returns false. Returns where the last one's tokens end, 0
  // when there was none.
  Result<int64_t> WalkSegment(Segment& segment, int64_t at, int64_t end,
                              const std::function<bool(const Block&, int64_t at, const RecordWalk&)>& visit,
                              Bodies bodies = Bodies::kAll, int64_t pass_to = 0);
  Status OpenSegment(int32_t number);
  Result<int64_t> SeqHeld(int64_t* segment, int64_t* good_end);
  Status FindEnd();
  Status CutNewest(int64_t bytes);
  // Copies the first `bytes` of a segment.
  Status CopyBytes(const Segment& segment, int64_t bytes, int to, const std::string& path);
  Status ForkSegment(Segment& segment, Archive& to);

  ArchiveOptions options_;
  bool read_only_ = false;
  Sizes sizes_;
  Status state_;
  HostBuffer memory_;
  Segment* segments_ = nullptr;  // [sizes_.n_segments], oldest first; in memory_, as are the buffers
  int64_t n_segments_ = 0;
  bool writing_ = false;  // the newest segment takes more records
  std::span<uint8_t> write_, read_;
  int64_t n_buffered_ = 0;  // bytes in write_, which follow those of the newest segment
  // Checksums of its last record, on disk and with the buffer; 0: it has none.
  uint32_t sum_ = 0, buffered_sum_ = 0;
  int lock_ = -1;
  int32_t next_number_ = 1;
  bool untrimmed_ = false;   // opened, and the quota not looked at yet
  int32_t surplus_end_ = 0;  // segments before this number are on disk, but too many for the quota: not in segments_
  int64_t seq_end_ = 0, bytes_written_ = 0;
  BlockPlace newest_place_ = 0;
  // In the last scan: segments; blocks that begin before the one that precedes them ends.
  int64_t n_unreadable_ = 0, n_unordered_ = 0;
  ArchiveNotes notes_;                    // but for what segments count
  const char* what_ = "nothing more is";  // kept once it is off
  std::unique_ptr<Archive> keys_, kv_;
};

}  // namespace weir
