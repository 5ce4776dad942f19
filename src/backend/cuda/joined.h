// SPDX-License-Identifier: Apache-2.0
// Several matrices in one launch of a product of few rows, as warps find them: W is a layout's view of a matrix.
#pragma once

#include <cstdint>
#include <span>

#include "backend/cuda/matmul.h"

namespace weir::WEIR_GPU {

// Warps from `begin` on are the part's, FewOuts() of its rows each.
template <typename W>
struct JoinedPart {
  W w;
  int64_t begin = 0, first = 0, n_out = 0;
  ProductOut out;
};

template <typename W>
struct Joined {
  JoinedPart<W> part[kMostJoined];
  int64_t n_warps = 0;
};

// `weights_of` makes the view of a DeviceMatrix.
template <typename W, typename WeightsOf>
Joined<W> Join(std::span<const MatrixPart> parts, int64_t n_rows, const WeightsOf& weights_of) {
  Joined<W> out;
  for (size_t i = 0; i < kMostJoined; ++i) {
    out.part[i].begin = out.n_warps;  // of parts that are not there: after every warp that writes
    if (i >= parts.size()) continue;
    const MatrixPart& part = parts[i];
    out.part[i] = {weights_of(*part.w), out.n_warps, part.first, part.n_out, part.out};
    out.n_warps += Blocks(part.n_out, FewOuts(n_rows));
  }
  return out;
}

template <typename W>
WEIR_DEVICE JoinedPart<W> PartOf(const Joined<W>& joined, int64_t warp) {
  // Without an index, which would put the parameters into local memory.
  JoinedPart<W> part = joined.part[0];
  WEIR_UNROLL
  for (int i = 1; i < kMostJoined; ++i) {
    if (warp >= joined.part[i].begin) part = joined.part[i];
  }
  return part;
}

}  // namespace weir::WEIR_GPU
