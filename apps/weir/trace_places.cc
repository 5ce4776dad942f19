// SPDX-License-Identifier: Apache-2.0
#include "trace_places.h"

#include <algorithm>

#include "recall/archive.h"

namespace weir::app {

void SeqSet::Add(SeqRun run) {
  if (runs_.empty() || run.first > runs_.back().first + runs_.back().count) {
    runs_.push_back(run);
  } else {
    SeqRun& last = runs_.back();
    last.count = std::max(last.count, run.first + run.count - last.first);
  }
}

bool SeqSet::Has(int64_t seq) const {
  const auto after = std::ranges::upper_bound(runs_, seq, {}, &SeqRun::first);
  return after != runs_.begin() && seq < (after - 1)->first + (after - 1)->count;
}

Result<SeqSet> SeqsOnDisk(const std::string& dir) {
  Ledger ledger;
  ArchiveOptions options;
  options.dir = dir;
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Archive> archive, Archive::OpenReadOnly(options, ledger));
  SeqSet out;
  WEIR_RETURN_IF_ERROR(archive->ScanText(archive->begin(), [&](BlockPlace, const Block& block) {
    out.Add({block.seq, block.n_tokens});
    return true;
  }));
  return out;
}

void TakenBack::Note(const TraceStep& step) {
  if (step.group != 0 || step.reason != "excerpt taken back") return;
  // Slots to seqs: an excerpt is one run of them, the newest of its group when it was read.
  size_t at = 0;
  int64_t slot_of_run = 0;  // of step.before[at]
  for (const SeqRun& run : step.dropped) {
    for (int64_t slot = run.first; slot < run.first + run.count;) {
      while (slot >= slot_of_run + step.before[at].count) slot_of_run += step.before[at++].count;
      const int64_t n = std::min(run.first + run.count, slot_of_run + step.before[at].count) - slot;
      seqs_.Add({step.before[at].first + (slot - slot_of_run), n});
      slot += n;
    }
  }
}

}  // namespace weir::app
