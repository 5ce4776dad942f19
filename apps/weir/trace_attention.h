// SPDX-License-Identifier: Apache-2.0
// What rows of attention in a trace say of pictures and text: the observations that A-VL is built on ("A-VL: Adaptive
// Attention for Large Vision-Language Models", 2409.14846, section 3).
//
// A row is where one token attended: the end of a prompt, or a token of an answer. s is the mean over a layer's query
// heads. The top of a layer at a row: the round(p N) visual tokens of largest s, at least one, of the N it holds; the
// newer one among equals.
//
//   sparsity       share of the visual tokens' attention that their best x % receive
//   PPCI(p)        |T1 intersect T2| / |T|: how much of one top is in another. Where layers or moments hold different
//                  tokens, |T| is the larger of the two tops, so that what was forgotten counts as missed.
//     of layers    at the same row, mean over rows
//     of rows      in the same layer, mean over layers
//   decay          attention per token of text, by distance to the row's token: 0 (itself), 1, 2-3, 4-7, ...
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "trace_figure.h"
#include "trace_maps.h"

namespace weir::app {

struct AttentionStudy {
  TraceHead head;
  double top = 0;                               // p
  std::vector<int32_t> layers;                  // those looked at
  std::vector<int64_t> rows;                    // tokens (seq) whose attention is in the trace
  int64_t n_visual_rows = 0;                    // of them, rows that saw visual tokens
  std::vector<double> visual_attention;         // [layers]: share of all attention that visual tokens receive
  std::vector<double> visual_tokens;            // [layers]: their share of the tokens
  std::vector<std::vector<double>> sparsity;    // [layers][kSparsityParts + 1]
  std::vector<std::vector<double>> layer_ppci;  // [layers][layers]
  std::vector<std::vector<double>> row_ppci;    // [rows][rows]; NaN where one of them saw no visual token
  std::vector<std::vector<double>> decay;       // [rows][bins]; NaN where there is no token
  std::vector<double> decay_share;              // [bins]: share of the attention on text, mean over rows
};
inline constexpr int kSparsityParts = 100;

// Of the last stream in the file. kInvalidArgument when it holds no attention, or the filter names a layer it lacks.
Result<AttentionStudy> StudyAttention(const std::string& path, const TraceFilter& filter, double top);

// The figures as text, and as maps: sparsity, PPCI of layers, PPCI of rows, decay. Maps of pictures are left out where
// there were none.
void PrintAttention(const AttentionStudy& study);
std::vector<Panel> AttentionPanels(const AttentionStudy& study);

}  // namespace weir::app
