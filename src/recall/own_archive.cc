// SPDX-License-Identifier: Apache-2.0
#include "recall/own_archive.h"

namespace weir {

Status CheckOwnArchive(StreamRecall& recall, const std::optional<ArchivePoint>& saved) {
  recall.Flush();
  Archive& archive = recall.archive();
  if (archive.seq_end() == 0) return Status();
  if (!saved) {
    return InvalidArgument("{} holds the archive of another session; name a new folder, or go on with that session",
                           archive.dir());
  }
  // One that goes on behind the place has a block that ends there.
  if (archive.seq_end() <= saved->seq_end) return Status();
  bool ends_there = false;
  WEIR_RETURN_IF_ERROR(archive.Scan(archive.begin(), [&](BlockPlace, const Block& block) {
    ends_there |= block.seq_end() == saved->seq_end;
    return !ends_there && block.seq_end() < saved->seq_end;
  }));
  if (ends_there) return Status();
  return InvalidArgument("{} is not the archive that this session was saved with; name another folder", archive.dir());
}

Status GoOnFrom(StreamRecall& recall, const std::optional<ArchivePoint>& saved) {
  WEIR_RETURN_IF_ERROR(CheckOwnArchive(recall, saved));
  return saved ? recall.CutTo(*saved) : Status();
}

}  // namespace weir
