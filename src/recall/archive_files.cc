// SPDX-License-Identifier: Apache-2.0
// The life of an archive's files: made, opened, cut, copied, deleted.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/workspace.h"
#include "recall/archive.h"
#include "recall/archive_io.h"

namespace weir {
namespace {

// Says what the folder is, and carries the lock.
constexpr char kMarker[] = "weir-archive";
constexpr char kMarkerText[] = "An archive of Weir: what a session has read. Deleted with the session.\n";
constexpr char kPart[] = ".part";
constexpr char kOwner[] = "Owner: ";
constexpr size_t kMaxMarkerBytes = 1 << 13;
constexpr int64_t kMinSegmentBytes = 256 << 10, kMaxNamedSegmentBytes = 64 << 20;
constexpr int64_t kMaxSegments = 1 << 16;  // of an archive that is opened

// The number in 00000017.seg.
std::optional<int32_t> SegmentNumberOf(std::string_view name) {
  int32_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || number < 1 || name != fmt::format("{:08}.seg", number)) return std::nullopt;
  return number;
}

// The names in a folder.
Result<std::vector<std::string>> NamesIn(const std::string& folder) {
  DIR* const listing = opendir(folder.c_str());
  if (listing == nullptr) return Failed("read", folder);
  std::vector<std::string> out;
  while (const dirent* const entry = readdir(listing)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") out.emplace_back(name);
    if (std::ssize(out) > 2 * kMaxSegments) break;
  }
  closedir(listing);
  if (std::ssize(out) > 2 * kMaxSegments) return Unsupported("{} holds too many files for an archive", folder);
  return out;
}

// The quota's shares: a token has about 5 bytes of text, some 100 of keys and 10,000 of keys and values.
int64_t TextShare(const ArchiveOptions& options) {
  if (options.kv_numbers > 0) return options.disk_bytes / 16;
  return options.key_numbers > 0 ? options.disk_bytes / 8 : options.disk_bytes;
}
int64_t KeyShare(const ArchiveOptions& options) {
  if (options.key_numbers == 0) return 0;
  return options.kv_numbers > 0 ? options.disk_bytes / 16 * 3 : options.disk_bytes - TextShare(options);
}

// Folders inside an archive's own.
constexpr const char* kStores[] = {"keys", "kv"};
constexpr const char* kKeysOff = "no more keys are";
constexpr const char* kKvOff = "no more keys and values are";

// Of a store beside the blocks.
ArchiveOptions StoreOptions(const ArchiveOptions& all, const char* name, int64_t disk_bytes, int32_t n_numbers,
                            int32_t max_rows) {
  ArchiveOptions out = all;
  if (!out.dir.empty()) out.dir += fmt::format("/{}", name);
  out.disk_bytes = disk_bytes;
  out.n_embd = n_numbers;
  out.max_rows = max_rows;
  out.max_text_bytes = 0;
  out.key_numbers = out.kv_numbers = out.kv_tokens = 0;
  return out;
}
ArchiveOptions KeyOptions(const ArchiveOptions& all) {
  return StoreOptions(all, kStores[0], KeyShare(all), all.key_numbers, 1);
}
ArchiveOptions KvOptions(const ArchiveOptions& all) {
  return StoreOptions(all, kStores[1], all.disk_bytes - TextShare(all) - KeyShare(all), all.kv_numbers, all.kv_tokens);
}

// Whether another archive holds the same file.
bool IsLinkedTwice(int fd) {
  struct stat info {};
  return fstat(fd, &info) != 0 || info.st_nlink > 1;
}

}  // namespace

int64_t Archive::Sizes::total() const {
  return AlignedBytes(n_segments * static_cast<int64_t>(sizeof(Segment))) + write + read;
}

Result<Archive::Sizes> Archive::SizesOf(const ArchiveOptions& options) {
  if (options.n_embd < 0 || options.n_embd > 1 << 20 || options.max_rows < 0 || options.max_rows > kMaxBlockTokens ||
      options.max_text_bytes < 0 || options.max_text_bytes > 1 << 20) {
    return InvalidArgument(
        "an archive for rows of {} numbers, pictures of {} rows and {} bytes of text is out of range", options.n_embd,
        options.max_rows, options.max_text_bytes);
  }
  const int64_t body = std::max<int64_t>(options.max_text_bytes, int64_t{options.max_rows} * options.n_embd * 2);
  const int64_t record = AlignedBytes(kRecordHeadBytes + body);
  // Files without names stay open: few of them.
  const int64_t most = options.dir.empty() ? kMaxSegmentBytes : kMaxNamedSegmentBytes;
  Sizes out;
  out.disk = TextShare(options);
  out.segment = std::max(std::clamp(out.disk / 16, kMinSegmentBytes, most), kSegmentHeadBytes + record);
  if (out.segment > kMaxSegmentBytes)
    return InvalidArgument("pictures of {} rows are too large for an archive", options.max_rows);
  if (out.disk < 2 * out.segment) {
    return InvalidArgument("an archive of {} bytes is too small: give it {} bytes of disk at least", options.disk_bytes,
                           2 * out.segment * (options.disk_bytes / std::max<int64_t>(out.disk, 1)));
  }
  // Some may be shorter than that.
  out.n_segments = 2 * (out.disk / out.segment) + 4;
  out.write = 64 << 10;
  out.read = std::max<int64_t>(256 << 10, record);
  return out;
}

Result<int64_t> Archive::MemoryBytes(const ArchiveOptions& options) {
  WEIR_ASSIGN_OR_RETURN(const Sizes sizes, SizesOf(options));
  int64_t bytes = PageRound(sizes.total());
  if (options.key_numbers > 0) {
    WEIR_ASSIGN_OR_RETURN(const int64_t keys, MemoryBytes(KeyOptions(options)));
    bytes += keys;
  }
  if (options.kv_numbers > 0) {
    WEIR_ASSIGN_OR_RETURN(const int64_t kv, MemoryBytes(KvOptions(options)));
    bytes += kv;
  }
  return bytes;
}

Status Archive::MakeStores(Ledger& ledger) {
  const auto make = [&](const ArchiveOptions& options) {
    return !options.dir.empty() && Exists(options.dir) ? Open(options, ledger) : Make(options, ledger);
  };
  if (options_.key_numbers > 0) {
    WEIR_ASSIGN_OR_RETURN(keys_, make(KeyOptions(options_)));
    keys_->what_ = kKeysOff;
  }
  if (options_.kv_numbers > 0) {
    WEIR_ASSIGN_OR_RETURN(kv_, make(KvOptions(options_)));
    kv_->what_ = kKvOff;
  }
  return Status();
}

// Keys and values have no place of their own in a saved session: the tokens tell.
Status Archive::CutStores(int64_t seq_end) {
  const ArchivePoint point = {.seq_end = seq_end, .segment = std::numeric_limits<int32_t>::max()};
  for (Archive* store : {keys_.get(), kv_.get()}) {
    if (store != nullptr) WEIR_RETURN_IF_ERROR(store->CutTo(point));
  }
  return Status();
}

Status Archive::DeleteUnusedStores() const {
  if (!named()) return Status();
  if (keys_ == nullptr) WEIR_RETURN_IF_ERROR(Delete(fmt::format("{}/{}", options_.dir, kStores[0])));
  return kv_ == nullptr ? Delete(fmt::format("{}/{}", options_.dir, kStores[1])) : Status();
}

Status Archive::Allocate(Ledger& ledger, const Sizes& sizes) {
  sizes_ = sizes;
  WEIR_ASSIGN_OR_RETURN(memory_, HostBuffer::Allocate(ledger, MemTag::kOther, sizes.total()));
  segments_ = memory_.as<Segment>();
  for (int64_t i = 0; i < sizes.n_segments; ++i) new (segments_ + i) Segment;
  const auto write = static_cast<size_t>(sizes.write), read = static_cast<size_t>(sizes.read);
  uint8_t* const buffers = memory_.data() + (sizes.total() - sizes.write - sizes.read);
  write_ = {buffers, write};
  read_ = {buffers + write, read};
  return Status();
}

std::string Archive::PathOf(int32_t number) const {
  return named() ? fmt::format("{}/{:08}.seg", options_.dir, number) : "a temporary file in " + options_.temp_dir;
}

bool Archive::Exists(const std::string& dir) {
  struct stat info {};
  return stat((dir + "/" + kMarker).c_str(), &info) == 0;
}

std::string Archive::OwnerOf(const std::string& dir) {
  const OwnedFd file(OpenFile(dir + "/" + kMarker, O_RDONLY));
  std::string text(kMaxMarkerBytes, 0);
  const ssize_t n = file.fd() < 0 ? -1 : pread(file.fd(), text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  const std::string head = std::string(kMarkerText) + kOwner;
  if (!text.starts_with(head) || !text.ends_with('\n')) return "";
  return text.substr(head.size(), text.size() - head.size() - 1);
}

Status Archive::Delete(const std::string& dir) {
  const std::string marker = dir + "/" + kMarker;
  const OwnedFd lock(OpenFile(marker, O_RDWR));
  if (lock.fd() < 0) return errno == ENOENT || errno == ENOTDIR ? Status() : Failed("open", marker);
  if (flock(lock.fd(), LOCK_EX | LOCK_NB) != 0) return Failed("lock", marker);
  for (const char* store : kStores) WEIR_RETURN_IF_ERROR(Delete(dir + "/" + store));
  WEIR_ASSIGN_OR_RETURN(const auto names, NamesIn(dir));
  for (const std::string& name : names) {
    const bool part = name.ends_with(kPart) && SegmentNumberOf(name.substr(0, name.size() - sizeof(kPart) + 1));
    if (!part && !SegmentNumberOf(name)) continue;
    if (unlink((dir + "/" + name).c_str()) != 0 && errno != ENOENT) return Failed("delete", dir + "/" + name);
  }
  if (unlink(marker.c_str()) != 0) return Failed("delete", marker);
  return rmdir(dir.c_str()) != 0 ? Failed("delete", dir) : Status();
}

Status Archive::Sync(const std::string& dir) {
  for (const char* store : kStores) {
    if (Exists(dir + "/" + store)) WEIR_RETURN_IF_ERROR(Sync(dir + "/" + store));
  }
  WEIR_ASSIGN_OR_RETURN(const auto names, NamesIn(dir));
  for (const std::string& name : names) {
    if (!SegmentNumberOf(name)) continue;
    const std::string path = dir + "/" + name;
    const OwnedFd file(OpenFile(path, O_RDONLY));
    if (file.fd() < 0 || fsync(file.fd()) != 0) return Failed("sync", path);
  }
  return SyncFolder(dir);
}

Status Archive::MakeFolder() {
  const std::string& dir = options_.dir;
  if (mkdir(dir.c_str(), 0700) != 0) {
    if (errno != EEXIST) return Failed("make the folder", dir);
    WEIR_ASSIGN_OR_RETURN(const auto names, NamesIn(dir));
    if (!names.empty()) {
      return InvalidArgument("{} holds {}; name a folder that is new or empty", dir,
                             Exists(dir) ? "an archive" : "other files");
    }
  }
  const std::string marker = dir + "/" + kMarker;
  WEIR_ASSIGN_OR_RETURN(lock_, CreateFile(marker));
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) return Failed("lock", marker);
  std::string text = kMarkerText;
  if (!options_.owner.empty()) text += kOwner + options_.owner + "\n";
  const Status status = WriteAt(lock_, 0, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}, marker);
  if (!status.ok()) unlink(marker.c_str());
  return status;
}

Result<std::unique_ptr<Archive>> Archive::Make(const ArchiveOptions& options, Ledger& ledger) {
  WEIR_ASSIGN_OR_RETURN(const Sizes sizes, SizesOf(options));
  std::unique_ptr<Archive> archive(new Archive);
  archive->options_ = options;
  WEIR_RETURN_IF_ERROR(archive->Allocate(ledger, sizes));
  if (archive->named()) {
    WEIR_RETURN_IF_ERROR(archive->MakeFolder());
  } else {  // Fails now rather than at the first block.
    WEIR_ASSIGN_OR_RETURN(const int fd, CreateUnnamed(options.temp_dir));
    close(fd);
  }
  if (const Status status = archive->MakeStores(ledger); !status.ok()) {
    (void)archive->Remove();
    return status;
  }
  return archive;
}

// Adds a segment that is there. One that cannot be read counts as lost.
Status Archive::OpenSegment(int32_t number) {
  Segment segment;
  segment.header.number = number;
  segment.lost = true;
  segment.bytes = kSegmentHeadBytes;  // of a file that cannot be opened: no sign that it was only begun
  const std::string path = PathOf(number);
  const OwnedFd file(OpenFile(path, O_RDONLY));
  struct stat info {};
  if (file.fd() >= 0 && fstat(file.fd(), &info) == 0) {
    segment.bytes = std::min<int64_t>(info.st_size, kMaxSegmentBytes);
    uint8_t head[kSegmentHeadBytes];
    if (segment.bytes >= kSegmentHeadBytes && ReadFrom(file.fd(), 0, head, path).ok()) {
      const auto header = ReadSegmentHead(head);
      if (!header.ok() && header.status().code() == StatusCode::kUnsupported) {
        return Unsupported("{}: {}", path, header.status().message());
      }
      if (header.ok() && header->number == number) {
        segment.header = *header;
        segment.lost = false;
      }
    }
  }
  segments_[n_segments_++] = segment;
  return Status();
}

// Where the tokens of the newest whole record end; 0: there is none. `good_end` gets where that record itself ends.
Result<int64_t> Archive::SeqHeld(int64_t* segment, int64_t* good_end) {
  sum_ = 0;
  for (*segment = n_segments_ - 1; *segment >= 0; --*segment) {
    Segment& here = segments_[*segment];
    *good_end = kSegmentHeadBytes;
    if (here.lost) continue;
    const auto walked = WalkSegment(here, kSegmentHeadBytes, here.bytes, [&](auto&, int64_t, const RecordWalk& walk) {
      *good_end = walk.good_end();
      sum_ = walk.sum();
      return true;
    });
    buffered_sum_ = sum_;
    if (!walked.ok()) {
      here.lost = true;
    } else if (*good_end > kSegmentHeadBytes) {
      return std::max(*walked, here.header.first_seq);
    } else if (*segment == n_segments_ - 1) {
      return here.header.first_seq;
    }
  }
  return 0;
}

// Finds where the stream ends: behind the last whole record. What follows it was not finished and is cut off. Records
// behind damage are kept: one bad bit must not cost all that came after it.
Status Archive::FindEnd() {
  if (n_segments_ > 0 && newest().lost && newest().bytes < kSegmentHeadBytes) {  // begun, no more
    notes_.cut_bytes += newest().bytes;
    if (!read_only_) WEIR_RETURN_IF_ERROR(RemoveNewest());
  }
  int64_t i = 0, good_end = 0;
  WEIR_ASSIGN_OR_RETURN(seq_end_, SeqHeld(&i, &good_end));
  if (i < 0 || i != n_segments_ - 1 || good_end == newest().bytes) return Status();
  notes_.cut_bytes += newest().bytes - good_end;
  newest().n_damaged -= 1;  // what is cut off
  if (!read_only_) return CutNewest(good_end);
  newest().bytes = good_end;
  return Status();
}

Result<std::unique_ptr<Archive>> Archive::OpenFolder(const ArchiveOptions& options, Ledger& ledger, bool read_only) {
  const std::string& dir = options.dir;
  const std::string marker = dir + "/" + kMarker;
  WEIR_ASSIGN_OR_RETURN(Sizes sizes, SizesOf(options));
  std::unique_ptr<Archive> archive(new Archive);
  archive->options_ = options;
  archive->read_only_ = read_only;
  const OwnedFd file(OpenFile(marker, read_only ? O_RDONLY : O_RDWR));
  if (file.fd() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return NotFound("there is no archive in {}", dir);
    return Failed("open", marker);
  }
  if (!read_only) {
    archive->lock_ = fcntl(file.fd(), F_DUPFD_CLOEXEC, 0);
    if (archive->lock_ < 0 || flock(archive->lock_, LOCK_EX | LOCK_NB) != 0) {
      return IoError("another process, or session, has the archive in {} open; end it first", dir);
    }
  }
  WEIR_ASSIGN_OR_RETURN(const auto names, NamesIn(dir));
  std::vector<int32_t> numbers;
  for (const std::string& name : names) {
    if (const auto number = SegmentNumberOf(name)) {
      numbers.push_back(*number);
    } else if (!read_only && name.ends_with(".seg.part") && SegmentNumberOf(name.substr(0, name.size() - 5))) {
      unlink((dir + "/" + name).c_str());  // a cut that did not end
    }
  }
  std::sort(numbers.begin(), numbers.end());
  const int64_t n = std::ssize(numbers);
  if (n > kMaxSegments) return Unsupported("{} holds too many files for an archive", dir);
  // The quota may be smaller than it was: memory is planned for it.
  if (read_only) sizes.n_segments = std::max(sizes.n_segments, n);
  const auto surplus = static_cast<ptrdiff_t>(std::max<int64_t>(0, n - sizes.n_segments));
  if (surplus > 0) archive->surplus_end_ = numbers[static_cast<size_t>(surplus)];
  WEIR_RETURN_IF_ERROR(archive->Allocate(ledger, sizes));
  for (auto it = numbers.begin() + surplus; it != numbers.end(); ++it) WEIR_RETURN_IF_ERROR(archive->OpenSegment(*it));
  if (n > 0) archive->next_number_ = numbers.back() + 1;
  if (n > 0 && (numbers.front() > 1 || surplus > 0)) archive->notes_.removed_to_seq = archive->seq_begin();
  WEIR_RETURN_IF_ERROR(archive->FindEnd());
  if (read_only) {
    archive->state_ = InvalidArgument("the archive in {} was opened to be read only", dir);
    return archive;
  }
  archive->untrimmed_ = true;
  WEIR_RETURN_IF_ERROR(archive->MakeStores(ledger));
  // The words of what a process that was killed had written there were not on disk yet.
  for (Archive* store : {archive->keys(), archive->kv()}) {
    const bool ahead = store != nullptr && store->seq_end() > archive->seq_end_;
    if (ahead) WEIR_RETURN_IF_ERROR(archive->CutStores(archive->seq_end_));
  }
  WEIR_RETURN_IF_ERROR(archive->GoOn());
  return archive;
}

Status Archive::RemoveSurplus() {
  if (surplus_end_ == 0) return Status();
  WEIR_ASSIGN_OR_RETURN(const auto names, NamesIn(options_.dir));
  for (const std::string& name : names) {
    const auto number = SegmentNumberOf(name);
    if (!number || *number >= surplus_end_) continue;
    const std::string path = PathOf(*number);
    if (unlink(path.c_str()) != 0 && errno != ENOENT) return Failed("delete", path);
  }
  surplus_end_ = 0;
  return Status();
}

// Deletes the oldest segments until the quota is kept, which may be smaller than when they were written.
Status Archive::Trim() {
  WEIR_RETURN_IF_ERROR(RemoveSurplus());
  while (n_segments_ > 0 && OwnDiskBytes() > sizes_.disk) WEIR_RETURN_IF_ERROR(RemoveOldest());
  untrimmed_ = false;
  return Status();
}

Result<std::unique_ptr<Archive>> Archive::Open(const ArchiveOptions& options, Ledger& ledger) {
  return OpenFolder(options, ledger, false);
}

Result<std::unique_ptr<Archive>> Archive::OpenReadOnly(const ArchiveOptions& options, Ledger& ledger) {
  return OpenFolder(options, ledger, true);
}

Status Archive::GoOn() {
  writing_ = false;
  if (!state_.ok() || n_segments_ == 0) return Status();
  Segment& segment = newest();
  if (segment.lost || segment.shared || Foreign(segment)) return Status();
  if (segment.header.tokenizer_hash != options_.tokenizer_hash || segment.bytes >= sizes_.segment) return Status();
  if (named() && segment.fd < 0) {
    const std::string path = PathOf(segment.header.number);
    const int fd = OpenFile(path, O_RDWR);
    if (fd < 0) return Failed("open", path);
    if (IsLinkedTwice(fd)) {
      close(fd);
      return Status();
    }
    segment.fd = fd;
  }
  writing_ = true;
  return Status();
}

Status Archive::RemoveNewest() {
  Segment& segment = newest();
  if (segment.fd >= 0) close(std::exchange(segment.fd, -1));
  const std::string path = PathOf(segment.header.number);
  if (named() && unlink(path.c_str()) != 0 && errno != ENOENT) return Failed("delete", path);
  --n_segments_;
  n_buffered_ = 0;
  writing_ = false;
  return Status();
}

Status Archive::CopyBytes(const Segment& segment, int64_t bytes, int to, const std::string& path) {
  const OwnedFd own(segment.fd >= 0 ? -1 : OpenFile(PathOf(segment.header.number), O_RDONLY));
  const int fd = segment.fd >= 0 ? segment.fd : own.fd();
  if (fd < 0) return Failed("read", PathOf(segment.header.number));
  for (int64_t at = 0; at < bytes;) {
    const auto piece = read_.first(static_cast<size_t>(std::min(std::ssize(read_), bytes - at)));
    WEIR_RETURN_IF_ERROR(ReadAt(segment, fd, at, piece));
    WEIR_RETURN_IF_ERROR(WriteAt(to, at, piece, path));
    at += std::ssize(piece);
  }
  return Status();
}

// REQUIRES: the buffer is empty.
Status Archive::CutNewest(int64_t bytes) {
  Segment& segment = newest();
  const std::string path = PathOf(segment.header.number);
  writing_ = false;
  if (named() && segment.fd < 0) {
    segment.fd = OpenFile(path, O_RDWR);
    if (segment.fd < 0) return Failed("open", path);
  }
  if (!segment.shared && !(named() && IsLinkedTwice(segment.fd))) {
    if (ftruncate(segment.fd, bytes) != 0) return Failed("cut", path);
    segment.bytes = bytes;
    return Status();
  }
  // A fork has the same file: it keeps it.
  const std::string part = path + ".part";
  WEIR_ASSIGN_OR_RETURN(const int fd, named() ? CreateFile(part) : CreateUnnamed(options_.temp_dir));
  Status status = CopyBytes(segment, bytes, fd, part);
  if (status.ok() && named() && (fsync(fd) != 0 || rename(part.c_str(), path.c_str()) != 0)) {
    status = Failed("write", path);
  }
  if (!status.ok()) {
    close(fd);
    if (named()) unlink(part.c_str());
    return status;
  }
  close(std::exchange(segment.fd, fd));
  segment.bytes = bytes;
  segment.shared = false;
  return Status();
}

ArchivePoint Archive::SavePoint() {
  Flush();
  if (keys_ != nullptr) (void)keys_->SavePoint();
  if (kv_ != nullptr) (void)kv_->SavePoint();
  if (state_.ok() && named() && n_segments_ > 0) {
    const Segment& segment = newest();
    if (segment.fd >= 0 && fdatasync(segment.fd) != 0) TurnOff(Failed("write", PathOf(segment.header.number)));
    if (const Status status = SyncFolder(options_.dir); !status.ok()) TurnOff(status);
  }
  return Point();
}

ArchivePoint Archive::Point() {
  Flush();
  ArchivePoint out;
  out.seq_end = seq_end_;
  if (n_segments_ > 0) {
    out.segment = newest().header.number;
    out.offset = newest().bytes;
    out.salt = newest().header.salt;
    out.sum = sum_;
  }
  return out;
}

Result<bool> Archive::Has(const ArchivePoint& point) {
  const auto segment =
      std::ranges::find_if(segments(), [&](const Segment& s) { return s.header.number == point.segment; });
  if (segment == segments().end() || segment->header.salt != point.salt) return false;
  if (segment->lost) return true;
  const int64_t end = EndOf(*segment);
  if (end < point.offset && &*segment != &newest()) return false;  // a copy that went another way
  int64_t good_end = kSegmentHeadBytes, seq_end = 0;
  uint32_t sum = 0;
  bool inside = false;  // another record lies there
  const auto walked =
      WalkSegment(*segment, kSegmentHeadBytes, end, [&](const Block& block, int64_t at, const RecordWalk& walk) {
        if (at >= point.offset) return false;
        inside = walk.good_end() > point.offset;
        good_end = walk.good_end();
        seq_end = block.seq_end();
        sum = walk.sum();
        return !inside;
      });
  WEIR_RETURN_IF_ERROR(walked.status());
  if (inside || seq_end > point.seq_end) return false;
  return good_end != point.offset || sum == point.sum;
}

Status Archive::CutTo(const ArchivePoint& point) {
  if (read_only_) return state_;
  WEIR_RETURN_IF_ERROR(CutStores(point.seq_end));
  Flush();
  n_buffered_ = 0;  // after a failed write: what is not on disk is given up
  writing_ = false;
  const bool by_tokens = point.segment == std::numeric_limits<int32_t>::max();
  while (n_segments_ > 0) {
    Segment& segment = newest();
    // Nobody knows which tokens one that cannot be read has.
    const bool behind = segment.lost ? by_tokens : segment.header.first_seq > point.seq_end;
    if (segment.header.number > point.segment || behind) {
      WEIR_RETURN_IF_ERROR(DeleteUnusedStores());
      WEIR_RETURN_IF_ERROR(RemoveNewest());
      continue;
    }
    if (segment.lost) break;
    int64_t end = segment.bytes, keep = kSegmentHeadBytes;
    if (segment.header.number == point.segment) end = std::clamp(point.offset, keep, end);
    const auto walked =
        WalkSegment(segment, kSegmentHeadBytes, end, [&](const Block& block, int64_t, const RecordWalk& walk) {
          if (block.seq_end() > point.seq_end) return false;
          keep = walk.good_end();
          return true;
        });
    WEIR_RETURN_IF_ERROR(walked.status());
    if (keep < segment.bytes) {
      WEIR_RETURN_IF_ERROR(DeleteUnusedStores());
      WEIR_RETURN_IF_ERROR(CutNewest(keep));
    }
    break;
  }
  int64_t i = 0, good_end = 0;
  WEIR_ASSIGN_OR_RETURN(const int64_t held, SeqHeld(&i, &good_end));
  notes_.missing_tokens = std::max<int64_t>(0, point.seq_end - held);
  seq_end_ = point.seq_end;
  notes_.removed_to_seq = std::min(notes_.removed_to_seq, point.seq_end);
  WEIR_RETURN_IF_ERROR(Trim());
  if (n_segments_ == 0) next_number_ = 1;
  return GoOn();
}

Status Archive::ForkSegment(Segment& segment, Archive& to) {
  const int32_t number = segment.header.number;
  const std::string path = to.PathOf(number);
  const bool open = &segment == &newest() && (writing_ || n_buffered_ > 0);
  Segment copy = segment;
  copy.fd = -1;
  copy.shared = false;
  if (segment.lost) return Status();
  if (!open && named() && to.named() && link(PathOf(number).c_str(), path.c_str()) == 0) {
    to.segments_[to.n_segments_++] = copy;
    return Status();
  }
  if (!open && !to.named()) {
    copy.fd = segment.fd >= 0 ? fcntl(segment.fd, F_DUPFD_CLOEXEC, 0) : OpenFile(PathOf(number), O_RDONLY);
    if (copy.fd < 0) return Failed("open", PathOf(number));
    copy.shared = segment.shared = true;
    to.segments_[to.n_segments_++] = copy;
    return Status();
  }
  copy.bytes = EndOf(segment);
  WEIR_ASSIGN_OR_RETURN(copy.fd, to.named() ? CreateFile(path) : CreateUnnamed(to.options_.temp_dir));
  to.segments_[to.n_segments_++] = copy;
  WEIR_RETURN_IF_ERROR(CopyBytes(segment, copy.bytes, copy.fd, path));
  if (open || !to.named()) return Status();
  close(std::exchange(to.newest().fd, -1));
  return Status();
}

Result<std::unique_ptr<Archive>> Archive::Fork(const std::string& dir, Ledger& ledger, const std::string& owner) {
  if (read_only_) return state_;
  Flush();
  ArchiveOptions options = options_;
  options.dir = dir;
  options.owner = owner;
  options.key_numbers = options.kv_numbers = 0;
  options.disk_bytes = sizes_.disk;
  WEIR_ASSIGN_OR_RETURN(auto out, Make(options, ledger));
  Status status;
  for (Segment& segment : segments()) {
    if (status.ok() && out->n_segments_ == out->sizes_.n_segments) status = out->RemoveOldest();
    if (status.ok()) status = ForkSegment(segment, *out);
  }
  out->next_number_ = next_number_;
  out->seq_end_ = seq_end_;
  out->sum_ = out->buffered_sum_ = buffered_sum_;
  out->notes_.removed_to_seq = notes_.removed_to_seq;
  out->options_ = options_;
  out->options_.dir = dir;
  out->options_.owner = owner;
  if (status.ok()) status = out->GoOn();
  const auto copy = [&](Archive* from, const char* name, std::unique_ptr<Archive>* to) {
    if (from == nullptr || !status.ok()) return;
    auto made = from->Fork(dir.empty() ? dir : fmt::format("{}/{}", dir, name), ledger);
    status = made.status();
    if (!made.ok()) return;
    *to = *std::move(made);
    (*to)->what_ = from->what_;
  };
  copy(keys_.get(), kStores[0], &out->keys_);
  copy(kv_.get(), kStores[1], &out->kv_);
  if (status.ok()) return out;
  (void)out->Remove();
  return status;
}

Status Archive::Remove() {
  if (read_only_) return state_;
  Status failed = RemoveSurplus();
  keys_.reset();
  kv_.reset();
  for (const char* name : kStores) {
    const std::string dir = options_.dir + "/" + name;
    if (!named() || !Exists(dir)) continue;
    // Also those that an archive was made with once and that this session does not use.
    const Status status = Delete(dir);
    if (!status.ok()) failed = status;
  }
  while (n_segments_ > 0) {
    if (const Status status = RemoveNewest(); !status.ok()) {
      failed = status;
      --n_segments_;
    }
  }
  writing_ = false;
  n_buffered_ = 0;
  if (state_.ok()) state_ = InvalidArgument("the archive was deleted");
  if (!named() || lock_ < 0) return failed;
  const std::string marker = options_.dir + "/" + kMarker;
  if (unlink(marker.c_str()) != 0) failed = Failed("delete", marker);
  if (rmdir(options_.dir.c_str()) != 0 && failed.ok()) failed = Failed("delete", options_.dir);
  close(std::exchange(lock_, -1));
  return failed;
}

}  // namespace weir
