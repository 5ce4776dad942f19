// Snapshot files: a saved session as one file that is always whole.
//
// Layout, little-endian: magic "weirsnap", u32 version, u32 zero, u64 text bytes, u64 state bytes, u64 checksum, then
// the text and the state. The text is what the writer wants to say about the state (JSON, by convention); the state is
// what Session::Save() gave. The checksum covers everything but itself; it finds damage, it is no signature.
//
// A writer fills NAME.part, syncs it, renames it to NAME and syncs the folder. Whenever the process or the machine
// dies, NAME is the old file or the new one; a NAME.part that stayed behind is written over by the next save. Two
// writers of one NAME, in any processes, exclude each other by a lock on the part.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weir {

struct Snapshot {
  std::string text;
  std::vector<uint8_t> state;
};

// kIo when the file cannot be written; what was there before then stays. kOverBudget when another save of the same file
// is under way.
Status WriteSnapshot(const std::string& path, std::string_view text, std::span<const uint8_t> state);

// kNotFound; kIo for what cannot be read or is no regular file; kUnsupported for another version; kCorrupt for anything
// that WriteSnapshot() did not write; kOverBudget for a file of more than max_bytes, which bounds what is allocated.
Result<Snapshot> ReadSnapshot(const std::string& path, int64_t max_bytes);

}  // namespace weir
