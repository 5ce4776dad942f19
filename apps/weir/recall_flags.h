// SPDX-License-Identifier: Apache-2.0
// --recall and what belongs to it, and what an answer says of what was brought back.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "common.h"
#include "recall/stream_recall.h"

namespace weir::app {

void AddRecallFlags(CLI::App& app, RecallFlags* flags);
// kInvalidArgument for flags that mean nothing without --recall. `exam`: the suite says where its answers are.
Result<RecallOptions> ToRecallOptions(const RecallFlags& flags, bool exam = false);

// The same for a measurement, which begins with an empty archive: kInvalidArgument if the folder has one already.
Result<RecallOptions> ToNewRecallOptions(const RecallFlags& flags, bool exam = false);

// A line per passage to stderr: where it lies, how well it matches, how it begins. `n_seen`: tokens of the stream.
void PrintRecalled(const Recalled& recalled, int64_t n_seen);
// [{"seq":..,"end":..,"t_ms":..,"score":..,"text":..}]; with it `gated` where something was found but not brought back.
void AddRecalled(const Recalled& recalled, nlohmann::ordered_json* json);
// What the user was told of a failing disk.
struct ToldOff {
  bool blocks = false, stores = false;
};
// Says why nothing more is kept, if so, and why no more keys and values are, once each.
void PrintIfOff(StreamRecall& recall, ToldOff* told);
// The same at the end of a program, when the last write and sync have shown it.
void EndRecall(StreamRecall& recall, ToldOff* told);
// What the archive lost or could not keep, if anything, to stderr.
void PrintArchiveNotes(StreamRecall& recall);

}  // namespace weir::app
