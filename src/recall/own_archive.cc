// SPDX-License-Identifier: Apache-2.0
#include "recall/own_archive.h"

namespace weir {

Status CheckOwnArchive(StreamRecall& recall, const std::optional<ArchivePoint>& saved) {
  recall.Flush();
  Archive& archive = recall.archive();
  // One that cannot be read today may hold anything.
  if (archive.seq_end() == 0 && archive.notes().n_lost_segments == 0) return Status();
  if (!saved) {
    return InvalidArgument("{} holds the archive of another session; name a new folder, or go on with that session",
                           archive.dir());
  }
  if (archive.n_segments() == 0) return Status();
  WEIR_ASSIGN_OR_RETURN(const bool own, archive.Has(*saved));
  if (own) return Status();
  return InvalidArgument(
      "{} is not the archive that this session was saved with, or has lost that part of it; name another folder",
      archive.dir());
}

Status GoOnFrom(StreamRecall& recall, const std::optional<ArchivePoint>& saved) {
  WEIR_RETURN_IF_ERROR(CheckOwnArchive(recall, saved));
  return saved ? recall.CutTo(*saved) : Status();
}

}  // namespace weir
