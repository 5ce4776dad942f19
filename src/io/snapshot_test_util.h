// SPDX-License-Identifier: Apache-2.0
// Snapshots held in memory as a whole, for tests that compare or damage them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/snapshot.h"

namespace weir {

struct Snapshot {
  std::string text;
  std::vector<uint8_t> state;
};

inline Status WriteSnapshot(const std::string& path, std::string_view text, std::span<const uint8_t> state) {
  WEIR_ASSIGN_OR_RETURN(const auto file, SnapshotWriter::Begin(path, text, std::ssize(state)));
  WEIR_RETURN_IF_ERROR(file->Write(state));
  return file->Finish();
}

inline Result<Snapshot> ReadSnapshot(const std::string& path, int64_t max_bytes) {
  WEIR_ASSIGN_OR_RETURN(const auto file, SnapshotReader::Open(path, max_bytes));
  Snapshot out{file->text(), std::vector<uint8_t>(static_cast<size_t>(file->n_left()))};
  WEIR_RETURN_IF_ERROR(file->Read(out.state));
  return out;
}

}  // namespace weir
