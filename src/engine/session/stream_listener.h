// SPDX-License-Identifier: Apache-2.0
// Learns of everything that a session reads, as it is read: an archive of the stream.
#pragma once

#include <cstdint>
#include <span>

#include "kv/types.h"

namespace weir {

// Rows that were read together: tokens, or rows of a picture or frame.
struct Arrival {
  int64_t seq = 0;                         // of the first row
  std::span<const int32_t> tokens = {};    // empty for a picture
  std::span<const float> embeddings = {};  // [n, row_width] of a picture
  int64_t n = 0;
  Modality modality = Modality::kText;
  int32_t columns = 1;
  int64_t row = 0, n_rows = 0;  // of a picture: the first of these rows, and how many it has in all
  int64_t t_src_ms = 0;
  bool generated = false;  // part of an answer
  bool question = false;   // part of a round's question (Session::BeginRound)
};

class StreamListener {
 public:
  virtual ~StreamListener() = default;
  // Excerpts (Session::AppendOptions::excerpt) are not announced: they were read before. Cannot fail: the stream goes
  // on whatever becomes of its archive.
  virtual void Arrived(const Arrival& arrival) = 0;
};

}  // namespace weir
