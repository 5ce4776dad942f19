// SPDX-License-Identifier: Apache-2.0
#include "saved.h"
#include "base/ascii.h"
#include "recall/own_archive.h"

#include <fmt/core.h>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <system_error>

#include "print.h"
#include "recall_flags.h"

namespace weir::app {
namespace {

// The folder of an archive, as a file remembers it; "": none.
std::string FolderOf(const Archive& archive) {
  if (archive.dir().empty()) return "";
  std::error_code error;
  const std::filesystem::path path = std::filesystem::weakly_canonical(archive.dir(), error);
  return error ? archive.dir() : path.string();
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
                 "continue the session in FILE and save it there again; if there is no such file, start a new one. "
                 "Policy, pot and cache types come from the file")
      ->check(NotEmpty())
      ->type_name("FILE");
}

Status CheckGoesOn(const CLI::App& sub, const std::string& path) {
  for (const char* name : {"--system", "--pin", "--no-pin-system"}) {
    if (sub.get_option(name)->count() > 0) {
      return InvalidArgument("{} sets up a new session, but {} holds one that has begun", name, path);
    }
  }
  return Status();
}

void Adopt(const CLI::App& sub, const SessionNote& note, PotFlags* flags) {
  const auto given = [&sub](const char* name) { return sub.get_option(name)->count() > 0; };
  if (!given("--policy")) flags->policy = note.policy;
  if (flags->pot == 0 && flags->ctx <= 0) flags->pot = note.pot_slots;
  if (!given("--chunk")) flags->chunk = note.chunk_rows;
  if (!given("--window-layers")) flags->window_layers = note.window_rows > 0 ? "newest" : "pot";
  const bool typed = given("--cache-type");
  if (!typed && !given("--cache-type-k")) flags->k_type = AsciiLower(InfoOf(note.k_type).name);
  if (!typed && !given("--cache-type-v")) flags->v_type = AsciiLower(InfoOf(note.v_type).name);
  if (note.recall && !given("--recall")) {
    flags->recall.spec = note.recall->selector;
    if (!given("--recall-disk")) flags->recall.disk = fmt::format("{}", note.recall->disk_bytes);
    if (!given("--recall-tokens")) flags->recall.tokens = note.excerpt_slots;
  }
  flags->aside = note.aside_slots;
  flags->pictures = note.pictures;
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
  // A folder that is not this session's is refused before anything is restored or cut.
  const bool archive = setup.recall != nullptr && !setup.recall->archive().dir().empty();
  std::optional<ArchivePoint> point;
  if (saved.note.recall) point = saved.note.recall->point;
  if (status.ok() && saved.note.recall && setup.recall == nullptr) {
    status = InvalidArgument("it was saved with an archive; go on with the same --recall and --recall-dir");
  }
  if (status.ok() && archive) status = CheckOwnArchive(*setup.recall, point);
  if (status.ok()) status = RestoreState(saved.note, *saved.file, encoder, &session, frames);
  if (status.ok() && setup.recall != nullptr) {
    // An archive without a name is never this session's: it begins here.
    status = archive ? GoOnFrom(*setup.recall, point) : setup.recall->CutTo({.seq_end = session.n_seen()});
    if (!archive && session.n_seen() > 0) Print(stderr, "recall   {}\n", kArchiveGone);
    PrintArchiveNotes(*setup.recall);
  }
  if (status.ok()) *sampler = std::move(goes_on);
  saved.file.reset();
  if (status.ok() && setup.trace != nullptr && session.counters().selections > 0) {
    status = InvalidArgument(
        "some of its tokens are already forgotten, and a trace must start with the stream; leave out --trace");
  }
  if (!status.ok()) return Status(status.code(), path + ": " + status.message());
  Print(stderr, "session  {}: {}\n", Printable(path), KeptText(session));
  return Status();
}

Status WriteSaved(const std::string& path, const Setup& setup, const PotFlags& flags, Json conversation,
                  const Sampler& sampler, const SessionNote* before) {
  Session& session = *setup.session;
  SessionNote note = SessionNote::Of(session, flags.on_overflow == "error" ? OnOverflow::kError : OnOverflow::kEvict,
                                     ModelName(*setup.model), ModelFingerprint(setup.model->file()));
  note.conversation = std::move(conversation);
  if (before != nullptr) {
    note.rules = before->rules;
    note.watched = before->watched;
  }
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
