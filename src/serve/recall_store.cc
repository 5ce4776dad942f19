// SPDX-License-Identifier: Apache-2.0
#include "serve/recall_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "recall/own_archive.h"

namespace weir {
namespace {

constexpr size_t kMaxSpecBytes = 1 << 12;
constexpr size_t kNumberDigits = 16;
constexpr int64_t kSettledSeconds = 600;

// "" where there is none: relative paths mean something else to the next server.
std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path out = std::filesystem::absolute(path, error).lexically_normal();
  return error ? "" : out.string();
}

std::vector<std::string> FoldersIn(const std::string& dir) {
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    if (entry.symlink_status(error).type() == std::filesystem::file_type::directory) {
      out.push_back(entry.path().filename().string());
    }
  }
  return out;
}

std::string CopyName(const std::string& name, int64_t number) { return fmt::format("{}.{:016x}", name, number); }

// The number in NAME.0123456789abcdef.
std::optional<int64_t> NumberOf(std::string_view copy, std::string_view name) {
  if (copy.size() != name.size() + 1 + kNumberDigits || !copy.starts_with(name) || copy[name.size()] != '.') {
    return std::nullopt;
  }
  const std::string_view digits = copy.substr(name.size() + 1);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

// Whether a snapshot may name this folder: that of a copy, nothing outside, and no session's own.
bool IsCopyName(std::string_view text) {
  const size_t dot = text.rfind('.');
  if (dot == text.npos || dot == 0 || text[0] == '.' || text.find('/') != text.npos || text.size() > 256) return false;
  return text.find('\0') == text.npos && NumberOf(text, text.substr(0, dot)).has_value();
}

}  // namespace

Result<int64_t> RecallStore::MemoryBytes(const LoadedModel& model, const RecallOptions& defaults, int64_t disk_total) {
  if (disk_total <= 0) return 0;
  // A larger quota has more memory: no session's is larger than the total.
  int64_t most = 0;
  ArchiveOptions archive = ToArchiveOptions(defaults, model);
  for (const int64_t disk : {defaults.disk_bytes, disk_total}) {
    archive.disk_bytes = disk;
    WEIR_ASSIGN_OR_RETURN(const int64_t bytes, Archive::MemoryBytes(archive));
    most = std::max(most, bytes);
  }
  return most;
}

Result<std::unique_ptr<RecallStore>> RecallStore::Make(LoadedModel& model, const RecallOptions& defaults,
                                                       int64_t disk_total, const std::string& snapshots,
                                                       Ledger& ledger) {
  if (defaults.on() && defaults.disk_bytes > disk_total) {
    return InvalidArgument("a session's archive of {} bytes is larger than what all may have, {} bytes",
                           defaults.disk_bytes, disk_total);
  }
  if (disk_total > 0 && !defaults.dir.empty()) {
    struct stat info {};
    if (mkdir(defaults.dir.c_str(), 0700) != 0 && errno != EEXIST) {
      return IoError("cannot make the folder of the archives, {}: {}", defaults.dir, std::strerror(errno));
    }
    if (stat(defaults.dir.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
      return InvalidArgument("{} is no folder: archives need one", defaults.dir);
    }
  }
  WEIR_ASSIGN_OR_RETURN(const int64_t spare_bytes, MemoryBytes(model, defaults, disk_total));
  std::unique_ptr<RecallStore> out(new RecallStore(model, defaults, disk_total, snapshots, spare_bytes));
  WEIR_ASSIGN_OR_RETURN(out->spare_bytes_, ledger.Reserve(MemTag::kOther, spare_bytes));
  if (disk_total > 0 && !defaults.dir.empty()) {
    out->Sweep();
    out->CountCopies();
  }
  if (disk_total > 0) {  // fails now rather than at the first session
    const auto trial = Archive::Make({.dir = out->PathOf(CopyName("trial", getpid())),
                                      .temp_dir = defaults.temp_dir,
                                      .disk_bytes = std::min(defaults.disk_bytes, disk_total)},
                                     out->spare_);
    WEIR_RETURN_IF_ERROR(trial.status());
    WEIR_RETURN_IF_ERROR((*trial)->Remove());
  }
  return out;
}

Result<RecallOptions> RecallStore::OptionsFor(const std::optional<std::string>& spec, int64_t disk_bytes,
                                              int64_t tokens) const {
  RecallOptions out = defaults_;
  if (spec) {
    if (spec->size() > kMaxSpecBytes) return InvalidArgument("'recall' may have at most {} bytes", kMaxSpecBytes);
    auto parsed = ParseRecallSpec(*spec);
    if (!parsed.ok()) return InvalidArgument("'recall' is not usable: {}", parsed.status().message());
    out.spec = *std::move(parsed);
  }
  if (!out.on()) {
    if (disk_bytes > 0) return InvalidArgument("'recall_disk' needs 'recall', for example \"words\"");
    if (tokens > 0) return InvalidArgument("'recall_tokens' needs 'recall', for example \"words\"");
    return out;
  }
  if (!allowed()) {
    return InvalidArgument("'recall' is for servers that run with --recall or --recall-disk-total");
  }
  out.disk_bytes = disk_bytes > 0 ? disk_bytes : std::min(out.disk_bytes, disk_total());
  if (tokens > 0) out.tokens = static_cast<int32_t>(tokens);
  if (out.disk_bytes > disk_total()) {
    return InvalidArgument("'recall_disk' of {} bytes is more than the archives of all sessions may have, {}",
                           out.disk_bytes, disk_total());
  }
  const ArchiveOptions archive = ToArchiveOptions(out, model_), own = ToArchiveOptions(defaults_, model_);
  // The memory of a copy is that of the server's own kind.
  if (archive.key_numbers > own.key_numbers || archive.kv_numbers > own.kv_numbers) {
    return InvalidArgument(
        "'recall' by keys, or with keys and values, is for servers that run with it, for example "
        "--recall {}",
        out.spec.info->name + std::string(archive.kv_numbers > 0 ? ":restore=kv" : ""));
  }
  if (const auto bytes = Archive::MemoryBytes(archive); !bytes.ok()) {
    return InvalidArgument("'recall_disk' is not usable: {}", bytes.status().message());
  }
  return out;
}

Status RecallStore::Reserve(const RecallOptions& options, StreamSession* stream) {
  if (!options.on()) return Status();
  auto recall = std::make_unique<SessionRecall>();
  auto disk = disk_.Reserve(MemTag::kOther, options.disk_bytes);
  if (!disk.ok()) {
    return OverBudget(
        "this session's archive needs {} bytes of disk; {} of {} are free: delete a session, ask for a smaller "
        "recall_disk, or start the server with a larger --recall-disk-total",
        options.disk_bytes, disk_total() - disk_.used_bytes(), disk_total());
  }
  recall->disk = *std::move(disk);
  recall->options = options;
  recall->options.dir = recall->own_dir = PathOf(stream->id);
  stream->recall = std::move(recall);
  return Status();
}

Status RecallStore::Begin(const RecallOptions& options, StreamSession* stream) {
  WEIR_RETURN_IF_ERROR(Reserve(options, stream));
  if (stream->recall == nullptr) return Status();
  SessionRecall& recall = *stream->recall;
  WEIR_ASSIGN_OR_RETURN(auto made, Archive::Make(ArchiveOf(recall, stream->id), stream->session->ledger()));
  WEIR_ASSIGN_OR_RETURN(recall.stream, StreamRecall::Around(std::move(made), recall.options, model_, *stream->session));
  return Status();
}

Status RecallStore::Fork(StreamSession& from, StreamSession* to) {
  if (from.recall == nullptr) return Status();
  SessionRecall& its = *from.recall;
  if (its.stream == nullptr) {
    WEIR_RETURN_IF_ERROR(Begin(its.options, to));
    to->recall->note = its.note;
    return to->recall->stream->CutTo({.seq_end = to->session->n_seen()});
  }
  WEIR_RETURN_IF_ERROR(Reserve(its.options, to));
  SessionRecall& recall = *to->recall;
  its.stream->Flush();
  WEIR_ASSIGN_OR_RETURN(auto copy,
                        its.stream->archive().Fork(recall.options.dir, to->session->ledger(), OwnerOf(to->id)));
  recall.note = its.note;
  WEIR_ASSIGN_OR_RETURN(recall.stream, StreamRecall::Around(std::move(copy), recall.options, model_, *to->session));
  return Status();
}

Status RecallStore::OpenFor(const SessionNote::Recall& saved, bool moved, StreamSession* stream) {
  SessionRecall& recall = *stream->recall;
  Ledger& ledger = stream->session->ledger();
  const bool named = moved ? saved.archive == stream->id : IsCopyName(saved.archive);
  if (!named || defaults_.dir.empty() || !Archive::Exists(PathOf(saved.archive))) return NotFound("{}", kArchiveGone);
  ArchiveOptions options = ArchiveOf(recall, stream->id);
  std::unique_ptr<Archive> archive;
  if (moved) {
    WEIR_ASSIGN_OR_RETURN(archive, Archive::Open(options, ledger));
  } else {
    options.dir = PathOf(saved.archive);
    WEIR_ASSIGN_OR_RETURN(const auto of_snapshot, Archive::Open(options, spare_));
    WEIR_ASSIGN_OR_RETURN(archive, of_snapshot->Fork(recall.options.dir, ledger, OwnerOf(stream->id)));
  }
  WEIR_ASSIGN_OR_RETURN(recall.stream,
                        StreamRecall::Around(std::move(archive), recall.options, model_, *stream->session));
  ArchivePoint point = saved.point;
  point.seq_end = std::min(point.seq_end, stream->session->n_seen());
  return GoOnFrom(*recall.stream, point);
}

void RecallStore::GoOn(const SessionNote::Recall& saved, bool moved, StreamSession* stream) {
  SessionRecall& recall = *stream->recall;
  const Status status = OpenFor(saved, moved, stream);
  if (status.ok()) return;
  recall.note =
      status.code() == StatusCode::kNotFound ? kArchiveGone : "its archive cannot be used: " + status.message();
  if (recall.stream != nullptr) {  // opened, but not cut: its newest part is not this session's past
    if (!moved) (void)recall.stream->archive().Remove();
    recall.stream.reset();
  }
  // An archive that cannot be read is left where it is until the session ends.
  ArchiveOptions options = ArchiveOf(recall, stream->id);
  if (!options.dir.empty() && Archive::Exists(options.dir)) options.dir = recall.options.dir = "";
  auto made = Archive::Make(options, stream->session->ledger());
  if (!made.ok()) {
    recall.note += "; nothing more is kept for recall: " + made.status().message();
    return;
  }
  auto around = StreamRecall::Around(*std::move(made), recall.options, model_, *stream->session);
  if (!around.ok()) {
    recall.note += "; nothing more is kept for recall: " + around.status().message();
    return;
  }
  recall.stream = *std::move(around);
  (void)recall.stream->CutTo({.seq_end = stream->session->n_seen()});
}

Result<RecallStore::Saved> RecallStore::Save(StreamSession& stream, const std::string& name) {
  Saved out;
  out.name = name;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  out.number = std::max(last_number_ + 1, std::chrono::duration_cast<std::chrono::microseconds>(now).count());
  last_number_ = out.number;
  if (stream.recall == nullptr) return out;
  SessionRecall& recall = *stream.recall;
  SessionNote::Recall& note = out.note.emplace(SessionNote::Recall());
  note.selector = recall.options.spec.text;
  note.disk_bytes = recall.options.disk_bytes;
  note.point.seq_end = stream.session->n_seen();
  if (recall.stream == nullptr) return out;
  if (recall.options.dir.empty()) return out;
  if (name.empty()) {
    note.archive = stream.id;
    note.point = recall.stream->SavePoint();
    return out;
  }
  recall.stream->Flush();
  note.archive = CopyName(name, out.number);
  const int64_t bytes = recall.stream->archive().disk_bytes();
  auto disk = disk_.Reserve(MemTag::kOther, bytes);
  if (!disk.ok()) {
    return OverBudget(
        "the copy of this session's archive needs {} bytes of disk; {} of {} are free: delete a session or a snapshot, "
        "or start the server with a larger --recall-disk-total",
        bytes, disk_total() - disk_.used_bytes(), disk_total());
  }
  WEIR_ASSIGN_OR_RETURN(const auto copy,
                        recall.stream->archive().Fork(PathOf(note.archive), spare_, OwnerOfCopy(name)));
  copies_[note.archive] = *std::move(disk);
  note.point = copy->Point();
  if (copy->state().ok()) return out;
  const Status failed = copy->state();
  copies_.erase(note.archive);
  (void)copy->Remove();
  return failed;
}

Status RecallStore::Sync(const Saved& saved) const {
  const bool copied = saved.note && !saved.note->archive.empty() && !saved.name.empty();
  return copied ? Archive::Sync(PathOf(saved.note->archive)) : Status();
}

std::string RecallStore::OwnerOf(const std::string& session_id) const {
  return Absolute(snapshots_ + "/handover/" + session_id + ".weir");
}

std::string RecallStore::OwnerOfCopy(const std::string& name) const {
  return Absolute(snapshots_ + "/" + name + ".weir");
}

ArchiveOptions RecallStore::ArchiveOf(const SessionRecall& recall, const std::string& session_id) const {
  ArchiveOptions out = ToArchiveOptions(recall.options, model_);
  if (!out.dir.empty()) out.owner = OwnerOf(session_id);
  return out;
}

// Whoever hands a session over, or saves one, has neither the archive open nor the file written for a moment: folders
// that changed lately stay.
void RecallStore::Sweep() const {
  for (const std::string& name : FoldersIn(defaults_.dir)) {
    const std::string owner = Archive::OwnerOf(PathOf(name));
    struct stat info {};
    if (owner.empty() || access(owner.c_str(), F_OK) == 0 || errno != ENOENT) continue;
    // A snapshot folder that is not there at all may come back.
    const std::filesystem::path parent = std::filesystem::path(owner).parent_path();
    if (access((IsCopyName(name) ? parent : parent.parent_path()).c_str(), F_OK) != 0) continue;
    if (stat(PathOf(name).c_str(), &info) != 0 || info.st_mtime + kSettledSeconds > std::time(nullptr)) continue;
    (void)Archive::Delete(PathOf(name));  // one that is open stays
  }
}

void RecallStore::CountCopies() {
  for (const std::string& name : FoldersIn(defaults_.dir)) {
    if (!IsCopyName(name) || Archive::OwnerOf(PathOf(name)).empty()) continue;
    std::error_code error;
    int64_t bytes = 0;
    // Also what lies in folders of its own: keys and values.
    for (std::filesystem::recursive_directory_iterator at(PathOf(name), error), end; !error && at != end;
         at.increment(error)) {
      std::error_code none;
      if (at->is_regular_file(none)) bytes += static_cast<int64_t>(at->file_size(none));
    }
    // What is there may be more than a new limit allows: then nothing is left.
    auto disk = disk_.Reserve(MemTag::kOther, std::min(bytes, disk_total() - disk_.used_bytes()));
    if (disk.ok()) copies_[name] = *std::move(disk);
  }
}

Status RecallStore::RemoveCopy(const std::string& name) {
  WEIR_ASSIGN_OR_RETURN(
      const auto archive,
      Archive::Open({.dir = PathOf(name), .disk_bytes = std::max(defaults_.disk_bytes, disk_total())}, spare_));
  WEIR_RETURN_IF_ERROR(archive->Remove());
  copies_.erase(name);
  return Status();
}

void RecallStore::EndSave(const Saved& saved, bool written) {
  if (defaults_.dir.empty() || saved.name.empty()) return;
  if (!written) {
    if (saved.note && !saved.note->archive.empty()) (void)RemoveCopy(saved.note->archive);
    return;
  }
  DIR* const listing = opendir(defaults_.dir.c_str());
  if (listing == nullptr) return;
  std::vector<std::string> old;
  while (const dirent* const entry = readdir(listing)) {
    const auto number = NumberOf(entry->d_name, saved.name);
    if (number && *number < saved.number) old.emplace_back(entry->d_name);
  }
  closedir(listing);
  for (const std::string& copy : old) (void)RemoveCopy(copy);  // one that cannot be deleted stays
}

void RecallStore::Close(StreamSession& stream) {
  if (stream.recall == nullptr || stream.recall->own_dir.empty()) return;
  stream.recall->stays = true;
  (void)utimensat(AT_FDCWD, stream.recall->own_dir.c_str(), nullptr, 0);  // for Sweep()
  stream.recall->stream.reset();
}

void RecallStore::Open(StreamSession& stream) {
  if (stream.recall == nullptr || !stream.recall->stays) return;
  SessionRecall& recall = *stream.recall;
  recall.stays = false;
  auto opened = StreamRecall::Make(recall.options, model_, *stream.session);
  if (opened.ok()) {
    recall.stream = *std::move(opened);
  } else {
    recall.note = "its archive cannot be used: " + opened.status().message();
  }
}

}  // namespace weir
