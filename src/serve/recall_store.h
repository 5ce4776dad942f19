// SPDX-License-Identifier: Apache-2.0
// Recall for the stream sessions of a server: where their archives lie, how much disk they may take together, and what
// becomes of an archive when its session is copied, saved, moved or deleted.
//
// With a folder (--recall-dir) a session's archive is FOLDER/<session id>; without one it has files without names,
// which end with the process. An archive is deleted with its session, unless the session was handed over: then it waits
// where it is. A snapshot gets a copy of its own, FOLDER/<snapshot's name>.<16 digits>, whose closed segments share the
// disk's blocks with the session's: what the session does later, its end included, does not change the snapshot.
//
// The folders say which file they are for (Archive::OwnerOf()): what a server that was killed left behind is deleted
// when the next one starts, and nothing that no server made.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/ledger.h"
#include "chat/session_file.h"
#include "engine/loaded_model.h"
#include "recall/stream_recall.h"
#include "serve/session_table.h"

namespace weir {

class RecallStore {
 public:
  // `defaults`: of sessions whose request does not say; `dir` is the folder of all of them. disk_total: for all
  // archives together; 0: no session may have recall. Reserves memory for one more archive, which copies need.
  // kInvalidArgument for a default quota that is too small or larger than disk_total; kIo for a folder that cannot be
  // made.
  // `snapshots`: the folder of snapshots and handed-over sessions. Archives in `dir` that a server made and none has
  // open are deleted if the snapshot, or the handed-over session, that they are for is not there.
  static Result<std::unique_ptr<RecallStore>> Make(LoadedModel& model, const RecallOptions& defaults,
                                                   int64_t disk_total, const std::string& snapshots, Ledger& ledger);
  static Result<int64_t> MemoryBytes(const LoadedModel& model, const RecallOptions& defaults, int64_t disk_total);

  bool allowed() const { return disk_total() > 0; }
  const RecallOptions& defaults() const { return defaults_; }
  int64_t disk_total() const { return disk_.budget_bytes(); }
  int64_t disk_reserved() const { return disk_.used_bytes(); }

  // The options of one session. `spec`: "words:passages=3", "off"; nullopt, 0 and 0: the defaults. kInvalidArgument
  // names the request's field. Any thread.
  Result<RecallOptions> OptionsFor(const std::optional<std::string>& spec, int64_t disk_bytes, int64_t tokens) const;

  // [engine] for all methods below. Each begins with the quota: kOverBudget if the archives of all sessions have no
  // room left for it. They do nothing for options without recall. REQUIRES: the session was planned with AddRecall().
  // An empty archive. Errors of Archive::Make().
  Status Begin(const RecallOptions& options, StreamSession* stream);
  // A copy of another session's. Errors of Archive::Fork().
  Status Fork(StreamSession& from, StreamSession* to);
  // Before a session is restored: reserves its quota.
  Status Reserve(const RecallOptions& options, StreamSession* stream);
  // After it was restored: its own archive (`moved`) or a copy of the snapshot's, up to where the session was saved.
  // Without one the session goes on with an empty archive, and says so. REQUIRES: Reserve().
  void GoOn(const SessionNote::Recall& saved, bool moved, StreamSession* stream);

  // What a snapshot says of the session's archive. With a name the archive is copied for the snapshot of that name:
  // call Sync() on any thread, and EndSave() once the snapshot was written, or not. A copy takes its size of the disk
  // that all archives may have. Errors of Archive::Fork(); kOverBudget.
  struct Saved {
    std::optional<SessionNote::Recall> note;  // nullopt: no recall
    std::string name;
    int64_t number = 0;  // of the copy: later ones have larger numbers
  };
  Result<Saved> Save(StreamSession& stream, const std::string& name = "");
  Status Sync(const Saved& saved) const;
  // Deletes the copies that no snapshot names any more: older ones of this name or, where it was not written, this one.
  void EndSave(const Saved& saved, bool written);

  // Around the hand-over of a session: another server may open the archive as soon as it finds the session. Open()
  // takes it back where the hand-over failed.
  void Close(StreamSession& stream);
  void Open(StreamSession& stream);

 private:
  RecallStore(LoadedModel& model, const RecallOptions& defaults, int64_t disk_total, std::string snapshots,
              int64_t spare_bytes)
      : model_(model), defaults_(defaults), snapshots_(std::move(snapshots)), disk_(disk_total), spare_(spare_bytes) {}
  // Of a session's archive, or the copy of a snapshot's: the file without which it is of no use.
  std::string OwnerOf(const std::string& session_id) const;
  std::string OwnerOfCopy(const std::string& name) const;
  ArchiveOptions ArchiveOf(const SessionRecall& recall, const std::string& session_id) const;
  void Sweep() const;
  // Counts the copies that are there.
  void CountCopies();
  std::string PathOf(const std::string& name) const { return defaults_.dir.empty() ? "" : defaults_.dir + "/" + name; }
  // The archive of that name for a session that comes back: itself, or a copy.
  Status OpenFor(const SessionNote::Recall& saved, bool moved, StreamSession* stream);
  Status RemoveCopy(const std::string& name);

  LoadedModel& model_;
  const RecallOptions defaults_;
  const std::string snapshots_;
  Ledger disk_;   // of bytes on disk
  Ledger spare_;  // for an archive that is copied, one at a time
  Reservation spare_bytes_;
  std::map<std::string, Reservation> copies_;  // of snapshots, by folder: of disk_
  int64_t last_number_ = 0;
};

}  // namespace weir
