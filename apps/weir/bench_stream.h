// SPDX-License-Identifier: Apache-2.0
// weir bench --stream: what a token costs after millions of them.
#pragma once

#include <cstdint>
#include <string>

#include "common.h"
#include "recall/stream_recall.h"

namespace weir::app {

struct StreamBenchFlags {
  int64_t n_tokens = 0;   // to read in all
  int64_t every = 50000;  // tokens read between two rows
  int n_gen = 64;         // tokens decoded at the end of every row; part of the stream
  std::string format = "md";
};

// Reads random tokens and prints a row for every `every` tokens: rates, percentiles of the time per chunk and per
// decoded token, bytes of the ledger and of the process.
// With recall also the bytes of the archive.
Status RunStreamBench(LoadedModel& model, SessionOptions options, const RecallOptions& recall,
                      const StreamBenchFlags& flags);

}  // namespace weir::app
