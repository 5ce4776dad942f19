// SPDX-License-Identifier: Apache-2.0
#include "serve/recall_store.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "recall/own_archive.h"

namespace weir {
namespace {

constexpr size_t kMaxSpecBytes = 1 << 12;
constexpr size_t kNumberDigits = 16;

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

Result<int64_t> RecallStore::MemoryBytes(const RecallOptions& defaults, int64_t disk_total) {
  if (disk_total <= 0) return 0;
  // The quota has few bytes of memory, but a larger one has more: no session's is larger than the total.
  int64_t most = 0;
  for (const int64_t disk : {defaults.disk_bytes, disk_total}) {
    WEIR_ASSIGN_OR_RETURN(const int64_t bytes, Archive::MemoryBytes({.dir = defaults.dir, .disk_bytes = disk}));
    most = std::max(most, bytes);
  }
  return most;
}

Result<std::unique_ptr<RecallStore>> RecallStore::Make(LoadedModel& model, const RecallOptions& defaults,
                                                       int64_t disk_total, Ledger& ledger) {
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
  WEIR_ASSIGN_OR_RETURN(const int64_t spare_bytes, MemoryBytes(defaults, disk_total));
  std::unique_ptr<RecallStore> out(new RecallStore(model, defaults, disk_total, spare_bytes));
  WEIR_ASSIGN_OR_RETURN(out->spare_bytes_, ledger.Reserve(MemTag::kOther, spare_bytes));
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
  if (const auto bytes = Archive::MemoryBytes({.dir = out.dir, .disk_bytes = out.disk_bytes}); !bytes.ok()) {
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
  recall->options.dir = PathOf(stream->id);
  stream->recall = std::move(recall);
  return Status();
}

Status RecallStore::Begin(const RecallOptions& options, StreamSession* stream) {
  WEIR_RETURN_IF_ERROR(Reserve(options, stream));
  if (stream->recall == nullptr) return Status();
  SessionRecall& recall = *stream->recall;
  const ArchiveOptions archive = ToArchiveOptions(recall.options, model_);
  WEIR_ASSIGN_OR_RETURN(auto made, Archive::Make(archive, stream->session->ledger()));
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
  WEIR_ASSIGN_OR_RETURN(auto copy, its.stream->archive().Fork(recall.options.dir, to->session->ledger()));
  recall.note = its.note;
  WEIR_ASSIGN_OR_RETURN(recall.stream, StreamRecall::Around(std::move(copy), recall.options, model_, *to->session));
  return Status();
}

Status RecallStore::OpenFor(const SessionNote::Recall& saved, bool moved, StreamSession* stream) {
  SessionRecall& recall = *stream->recall;
  Ledger& ledger = stream->session->ledger();
  const bool named = moved ? saved.archive == stream->id : IsCopyName(saved.archive);
  if (!named || defaults_.dir.empty() || !Archive::Exists(PathOf(saved.archive))) return NotFound("{}", kArchiveGone);
  ArchiveOptions options = ToArchiveOptions(recall.options, model_);
  std::unique_ptr<Archive> archive;
  if (moved) {
    WEIR_ASSIGN_OR_RETURN(archive, Archive::Open(options, ledger));
  } else {
    options.dir = PathOf(saved.archive);
    WEIR_ASSIGN_OR_RETURN(const auto of_snapshot, Archive::Open(options, spare_));
    WEIR_ASSIGN_OR_RETURN(archive, of_snapshot->Fork(recall.options.dir, ledger));
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
  // An archive that cannot be read is left where it is.
  ArchiveOptions options = ToArchiveOptions(recall.options, model_);
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
  SessionNote::Recall& note = out.note.emplace();
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
  WEIR_ASSIGN_OR_RETURN(const auto copy, recall.stream->archive().Fork(PathOf(note.archive), spare_));
  note.point = copy->SavePoint();
  if (copy->state().ok()) return out;
  const Status failed = copy->state();
  (void)copy->Remove();
  return failed;
}

Status RecallStore::RemoveCopy(const std::string& name) {
  WEIR_ASSIGN_OR_RETURN(
      const auto archive,
      Archive::Open({.dir = PathOf(name), .disk_bytes = std::max(defaults_.disk_bytes, disk_total())}, spare_));
  return archive->Remove();
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
  if (stream.recall == nullptr || stream.recall->options.dir.empty()) return;
  stream.recall->stays = true;
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
