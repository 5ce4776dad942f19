// SPDX-License-Identifier: Apache-2.0
// A file of packed weights: what a backend made of a model's matrices, kept for the next start, which maps it in place
// of packing again (docs/decisions/0029-packed-weights-in-a-file.md).
//
//   auto packed = PackedFile::Open(folder, name, key, bytes);  // reads the file if it is this model's, else begins one
//   ... the backend takes a piece for each matrix, in the model's order ...
//   packed->Finish();
//
// Such a file is only ever a copy. Whatever is wrong with it or with the folder (another model's or an older version's,
// a full disk, no permission) costs time alone: the pieces are empty, and matrices are packed in memory. note() says
// why, but for a write that fails in the background, after which there is no file. Blocks of pieces that were given are
// free again when the process ends; so nothing is begun on a disk that has too few.
//
// Layout, integers little-endian: a page with the header, pieces at page boundaries, the table.
//   header  "WEIRPACK", version u32, checksum u32 (CRC-32C of the header without it, and of the table), key length u32,
//           number of pieces u32, table offset u64, file bytes u64, key
//   table   for each piece: offset u64, bytes u64, print u64
// A piece's print tells matrices apart. Contents have no checksum: reading it would take as long as packing. The file
// gets its name only after everything is on the disk, and one that others could have written is not read.
//
// Thread-compatible: one thread calls Next() and Finish().
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace weir {

class Backend;

class PackedFile {
 public:
  // FOLDER/NAME.packed; the folder is made if its parent is there. `key`: the file is used if its key is the same; at
  // most kMaxKey bytes. `bytes_about`: what pieces will need together; none is begun where the disk has less.
  static constexpr size_t kMaxKey = 1024;
  static std::unique_ptr<PackedFile> Open(const std::string& folder, const std::string& name, const std::string& key,
                                          int64_t bytes_about = 0);
  // Waits until what was finished is on the disk. Pieces are no longer mapped.
  ~PackedFile();
  PackedFile(const PackedFile&) = delete;
  PackedFile& operator=(const PackedFile&) = delete;

  // Memory of the next matrix, from a page boundary.
  struct Piece {
    uint8_t* data = nullptr;  // nullptr: the file has none
    bool filled = false;      // as the last start left it, read-only; else zeros to be written before Finish()
  };
  Piece Next(uint64_t print, int64_t bytes);
  // Every matrix is there: what was written becomes the file, in the background. `ok`: false where a matrix was
  // refused, which leaves no file.
  void Finish(bool ok);

  // True while pieces come from a file of an earlier start.
  bool reading() const { return mapped_ != nullptr; }
  const std::string& path() const { return path_; }
  // Why there is no file, or not all of one, in one line; empty if nothing is wrong.
  const std::string& note() const { return note_; }

 private:
  struct Entry {
    uint64_t offset, bytes, print;
  };
  PackedFile() = default;
  bool Read(const std::string& key);
  void Begin(const std::string& folder, const std::string& key, int64_t bytes_about);
  // Ends reading and writing; pieces that were given stay.
  void GiveUp(std::string why);
  void Complete();

  std::string path_, part_, key_, note_;
  int fd_ = -1;                // of a file that is being written
  uint8_t* mapped_ = nullptr;  // of a file that is read, all of it
  uint64_t mapped_bytes_ = 0, end_ = 0;
  size_t next_ = 0;
  bool over_ = false;
  std::vector<Entry> table_;
  std::vector<std::pair<uint8_t*, uint64_t>> pieces_;  // that were written
  std::thread finisher_;
};

// As MakeCpuBackend() of backend/backend.h, for matrices that come from `packed`, which may be nullptr and outlives
// them.
std::unique_ptr<Backend> MakeCpuBackend(int n_threads, PackedFile* packed);

}  // namespace weir
