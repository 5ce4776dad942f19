// The inner loops of products, dispatched at run time to the widest instructions of the machine.
//
// An output element is always formed by the same chain of operations, along k from the first block to the last,
// whatever rows and panels are computed beside it: results do not depend on batch size, split or thread count.
#pragma once

#include <cstdint>

#include "backend/cpu/pack.h"

namespace weir::cpu {

// One block of 32 rounded activations, as QuantizeRowQ8 rounds them, with the sums that weights with an offset or a
// minimum need. Integers are exact; the sums are negated because offsets are subtracted.
struct ActBlock {
  int8_t q[kQ8Block];
  float d;             // scale; NaN for a block that was not finite
  float d_sum;         // d * sum of q
  int32_t neg_sum;     // -(sum of q)
  int32_t neg_sum_lo;  // -(sum of the first 16)
};
static_assert(sizeof(ActBlock) == 48);

struct ProductArgs {
  const PackedMatrix* w = nullptr;
  int64_t first_panel = 0, n_panels = 0;
  int64_t n_rows = 0;
  const ActBlock* act = nullptr;  // block formats: [n_rows, n_blocks]
  const float* x = nullptr;       // plain types: [n_rows, n_in], rows x_stride floats apart
  int64_t x_stride = 0;
  float* y = nullptr;  // row 0, first column of first_panel; columns past w->n_out() are not touched
  int64_t y_stride = 0;
  const float* bias = nullptr;  // at the first column of first_panel, or nullptr
  bool accumulate = false;
};

// y = x w^T for the given rows and panels.
void Product(const ProductArgs& args);

// Rounds n_blocks * 32 floats.
void RoundActivations(const float* x, int64_t n_blocks, ActBlock* out);

}  // namespace weir::cpu
