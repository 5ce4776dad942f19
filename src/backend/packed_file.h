// SPDX-License-Identifier: Apache-2.0
// A file of packed weights: what a backend made of a model's matrices, kept for the next start, which maps it in place
// of packing again (docs/decisions/0029-packed-weights-in-a-file.md).
//
//   auto packed = PackedFile::Open(folder, name, key, bytes);  // reads the file if it is this model's, else begins one
//   ... for each matrix, in the model's order, the backend takes a piece, or packs in memory and shows what it made ...
//   packed->Finish(true);
//   while (packed->WriteSome()) {}  // when there is time: after the first token
//
// Such a file is only ever a copy. Whatever is wrong with it or with the folder (another model's or an older version's,
// a full disk, no permission) costs time alone: there are no pieces, and nothing is written. note() says why.
//
// Layout, integers little-endian: a page with the header, pieces at page boundaries, the table.
//   header  "WEIRPACK", version u32, checksum u32 (CRC-32C of the header without it, and of the table), key length u32,
//           number of pieces u32, table offset u64, file bytes u64, key
//   table   for each piece: offset u64, bytes u64, print u64
// A piece's print tells matrices apart. Contents have no checksum: reading it would take as long as packing. The file
// gets its name only after everything is on the disk, and one that others could have written is not read.
//
// Thread-compatible: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace weir {

class Backend;

class PackedFile {
 public:
  // FOLDER/NAME.packed; the folder is made if its parent is there. `key`: the file is used if its key is the same; at
  // most kMaxKey bytes. `bytes_about`: what pieces will need together; none is begun where the disk has less, or while
  // another program writes this file.
  static constexpr size_t kMaxKey = 1024;
  static std::unique_ptr<PackedFile> Open(const std::string& folder, const std::string& name, const std::string& key,
                                          int64_t bytes_about = 0);
  // No file: only matrices().
  static std::unique_ptr<PackedFile> None();
  // A file that is not written to its end is removed. Pieces are no longer mapped.
  ~PackedFile();
  PackedFile(const PackedFile&) = delete;
  PackedFile& operator=(const PackedFile&) = delete;

  // The next matrix as the last start left it, read-only, from a page boundary; nullptr: the file does not have it, and
  // what is packed in memory is shown to Keep().
  const uint8_t* Next(uint64_t print, int64_t bytes);
  // A matrix that was packed in memory, which stays as it is until everything is written or the file is destroyed.
  void Keep(uint64_t print, uint8_t* data, int64_t bytes);
  // Every matrix is there; later ones are not looked at. `ok`: false where one was refused, which leaves no file.
  void Finish(bool ok);
  // Writes some of what was kept, in a few milliseconds; the last step waits for the disk. False: nothing is left.
  bool WriteSome();

  // True while pieces come from a file of an earlier start.
  bool reading() const { return mapped_ != nullptr; }
  // True while something is left to write.
  bool writing() const { return finished_ && fd_ >= 0; }
  const std::string& path() const { return path_; }
  // Why there is no file, or not all of one, in one line; empty if nothing is wrong.
  const std::string& note() const { return note_; }

  struct Kept {
    uint8_t* data;
    int64_t bytes;
  };
  // What was kept.
  const std::vector<Kept>& matrices() const { return kept_; }

 private:
  struct Entry {
    uint64_t offset, bytes, print;
  };
  PackedFile() = default;
  bool Read(const std::string& key);
  void Begin(const std::string& folder, const std::string& key, int64_t bytes_about);
  // Ends reading and writing; pieces that were given stay.
  void GiveUp(std::string why);
  bool Allocate();
  bool WriteNext();
  bool Complete();

  std::string path_, part_, key_, note_;
  int fd_ = -1;                // of a file that is being written
  uint8_t* mapped_ = nullptr;  // of a file that is read, all of it
  uint64_t mapped_bytes_ = 0, end_ = 0;
  size_t next_ = 0;        // of pieces that are read or written
  uint64_t next_at_ = 0;   // in the piece that is written
  uint64_t synced_ = 0;    // up to where the disk was told to begin
  bool over_ = false;      // no further pieces
  bool finished_ = false;  // and all of them are good
  std::vector<Entry> table_;
  std::vector<Kept> kept_;
};

// As MakeCpuBackend() of backend/backend.h, for matrices that come from `packed` or are shown to it; it may be nullptr
// and outlives them.
std::unique_ptr<Backend> MakeCpuBackend(int n_threads, PackedFile* packed);

}  // namespace weir
