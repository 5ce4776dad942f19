// SPDX-License-Identifier: Apache-2.0
#include "saved.h"

#include <fmt/core.h>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <system_error>

#include "print.h"
#include "recall_flags.h"

namespace weir::app {
namespace {

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// The folder of an archive, as a file remembers it; "": none.
std::string FolderOf(const Archive& archive) {
  if (archive.dir().empty()) return "";
  std::error_code error;
  const std::filesystem::path path = std::filesystem::weakly_canonical(archive.dir(), error);
  return error ? archive.dir() : path.string();
}

// Takes the archive back to where the session was saved. What another session has read is never its past.
Status GoOnWithArchive(const SessionNote& note, StreamRecall& recall, int64_t n_seen) {
  Archive& archive = recall.archive();
  const std::string folder = FolderOf(archive);
  if (note.recall && !folder.empty() && note.recall->archive == folder && archive.n_segments() > 0) {
    ArchivePoint point = note.recall->point;
    point.seq_end = std::min(point.seq_end, n_seen);
    WEIR_RETURN_IF_ERROR(recall.CutTo(point));
    PrintArchiveNotes(recall);
    return Status();
  }
  if (!folder.empty() && archive.n_segments() > 0) {
    return InvalidArgument("{} holds the archive of another session; name a new folder in --recall-dir", archive.dir());
  }
  if (n_seen > 0) Print(stderr, "recall   {}\n", kArchiveGone);
  WEIR_RETURN_IF_ERROR(recall.CutTo({}));
  return recall.CutTo({.seq_end = n_seen});
}

}  // namespace

Result<std::optional<SavedSession>> ReadSaved(const std::string& path) {
  auto snapshot = SnapshotReader::Open(path, std::numeric_limits<int64_t>::max());
  if (snapshot.status().code() == StatusCode::kNotFound) return std::optional<SavedSession>();
  if (!snapshot.ok()) return snapshot.status();
  WEIR_ASSIGN_OR_RETURN(SessionNote note, SessionNote::Parse((*snapshot)->text()));
  return std::optional<SavedSession>({std::move(note), *std::move(snapshot)});
}

void AddSessionFlag(CLI::App& sub, std::string* path) {
  sub.add_option("--session", *path,
                 "go on from the session in FILE and leave it there again; without such a file, begin one. Policy, pot "
                 "and cache types are the file's")
      ->check(NotEmpty())
      ->type_name("FILE");
}

Status CheckGoesOn(const CLI::App& sub, const std::string& path) {
  for (const char* name : {"--system", "--pin", "--no-pin-system"}) {
    if (sub.get_option(name)->count() > 0) {
      return InvalidArgument("{} says how a session begins; the one in {} began already", name, path);
    }
  }
  return Status();
}

void Adopt(const CLI::App& sub, const SessionNote& note, PotFlags* flags) {
  const auto given = [&sub](const char* name) { return sub.get_option(name)->count() > 0; };
  if (!given("--policy")) flags->policy = note.policy;
  if (flags->pot == 0 && flags->ctx <= 0) flags->pot = note.pot_slots;
  if (!given("--chunk")) flags->chunk = note.chunk_rows;
  if (!given("--cache-type-k")) flags->k_type = Lower(InfoOf(note.k_type).name);
  if (!given("--cache-type-v")) flags->v_type = Lower(InfoOf(note.v_type).name);
  if (note.recall && !given("--recall")) {
    flags->recall.spec = note.recall->selector;
    if (!given("--recall-disk")) flags->recall.disk = fmt::format("{}", note.recall->disk_bytes);
    if (!given("--recall-tokens")) flags->recall.tokens = note.excerpt_slots;
  }
  if (!given("--on-overflow")) flags->on_overflow = note.on_overflow == OnOverflow::kError ? "error" : "evict";
}

Status RestoreSaved(SavedSession& saved, const std::string& path, bool own_seed, const Setup& setup, Sampler* sampler) {
  Session& session = *setup.session;
  Sampler goes_on = *sampler;
  goes_on.Restore({sampler->Save().draws, {}});  // a server's file has no history, and ours is another conversation's
  Status status = saved.note.CheckFits(session, ModelFingerprint(setup.model->file()));
  if (status.ok() && !saved.note.sampler.is_null()) {
    status = RestoreSampler(saved.note.sampler, &goes_on);
    if (own_seed) goes_on.Restore({sampler->Save().draws, goes_on.Save().recent});
  }
  const GgufFile* const encoder = setup.encoder == nullptr ? nullptr : &setup.encoder->file();
  FrameStore* const frames = setup.reader == nullptr ? nullptr : &setup.reader->frames();
  if (status.ok()) status = RestoreState(saved.note, *saved.file, encoder, &session, frames);
  if (status.ok()) *sampler = std::move(goes_on);
  if (status.ok() && setup.recall != nullptr) status = GoOnWithArchive(saved.note, *setup.recall, session.n_seen());
  saved.file.reset();
  if (status.ok() && setup.trace != nullptr && session.counters().selections > 0) {
    status = InvalidArgument(
        "tokens of it were forgotten before, and a trace tells a stream from its beginning; leave --trace away");
  }
  if (!status.ok()) return Status(status.code(), path + ": " + status.message());
  Print(stderr, "session  {}: {}\n", Printable(path), KeptText(session));
  return Status();
}

Status WriteSaved(const std::string& path, const Setup& setup, const PotFlags& flags, Json conversation,
                  const Sampler& sampler) {
  const Session& session = *setup.session;
  SessionNote note = SessionNote::Of(session, flags.on_overflow == "error" ? OnOverflow::kError : OnOverflow::kEvict,
                                     ModelName(*setup.model), ModelFingerprint(setup.model->file()));
  note.conversation = std::move(conversation);
  WEIR_ASSIGN_OR_RETURN(note.sampler, SaveSampler(sampler));
  if (setup.recall != nullptr) {
    const Archive& archive = setup.recall->archive();
    WEIR_ASSIGN_OR_RETURN(const int64_t disk_bytes, ParseBytes(flags.recall.disk));
    note.recall = {setup.recall->recaller().spec().text, disk_bytes, FolderOf(archive), setup.recall->SavePoint()};
  }
  const FrameStore* const frames = setup.reader == nullptr ? nullptr : &setup.reader->frames();
  if (frames != nullptr) note.Describe(*frames, setup.encoder->file());
  WEIR_ASSIGN_OR_RETURN(const auto file, SnapshotWriter::Begin(path, note.ToText(), StateBytes(session, frames)));
  WEIR_RETURN_IF_ERROR(SaveState(session, frames, *file));
  return file->Finish();
}

}  // namespace weir::app
