// SPDX-License-Identifier: Apache-2.0
// What became of the tokens of a trace: the pot holds them, the archive of --recall-dir has them on disk, or they are
// gone.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "kv/trace_reader.h"

namespace weir::app {

// kTakenBack: a copy that was read again for one answer (an excerpt); the passage itself has its own place.
enum class TokenPlace : uint8_t { kHeld, kOnDisk, kGone, kTakenBack };
inline constexpr int kNumTokenPlaces = 4;
using PlaceCounts = std::array<int64_t, kNumTokenPlaces>;

// Ascending runs of seqs, none of which touch.
class SeqSet {
 public:
  // REQUIRES: runs are added in ascending order of their first seqs.
  void Add(SeqRun run);
  bool Has(int64_t seq) const;
  const std::vector<SeqRun>& runs() const { return runs_; }

 private:
  std::vector<SeqRun> runs_;
};

// The seqs of the text that the archive in a folder has. Errors of Archive::OpenReadOnly() and Scan().
Result<SeqSet> SeqsOnDisk(const std::string& dir);

// `on_disk` may be nullptr: no archive is known.
inline TokenPlace PlaceOf(int64_t seq, bool held, const SeqSet& taken_back, const SeqSet* on_disk) {
  return held                                      ? TokenPlace::kHeld
         : taken_back.Has(seq)                     ? TokenPlace::kTakenBack
         : on_disk != nullptr && on_disk->Has(seq) ? TokenPlace::kOnDisk
                                                   : TokenPlace::kGone;
}

// Collects the excerpts of a stream from the steps of its trace.
class TakenBack {
 public:
  // Call it for every step of the last stream.
  void Note(const TraceStep& step);
  void Restart() { seqs_ = {}; }
  const SeqSet& seqs() const { return seqs_; }

 private:
  SeqSet seqs_;
};

}  // namespace weir::app
