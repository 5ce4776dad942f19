// SPDX-License-Identifier: Apache-2.0
// Layouts of weights on the CPU: plug-ins, found by the build in this folder (cmake/weir.cmake). A file whose first
// line is `// weir-plugin: weights`, coded_weights.cc for example, defines one, `kCodedWeights`. For every element type
// the best suited layout is used, so that a file for a single type replaces that type's previous layout.
//
// Output rows are grouped into panels of kPanel = 16, one SIMD lane per row. Each layout defines the contents of a
// panel, with two constraints: all panels of a matrix have the same size, and a column can be read back exactly.
#pragma once

#include <cstdint>
#include <span>

#include "backend/suits.h"
#include "ops/matmul.h"
#include "quant/dtype.h"

namespace weir::cpu {

inline constexpr int kPanel = 16;

class PackedMatrix;

// One block of 32 rounded activations, rounded as by QuantizeRowQ8, with the sums needed for weights with an offset or
// an addend. Integers are exact; the sums are negated because offsets are subtracted.
struct ActBlock {
  int8_t q[kQ8Block];
  float d;             // scale; NaN for a block that was not finite
  float d_sum;         // d * sum of q
  int32_t neg_sum;     // -(sum of q)
  int32_t neg_sum_lo;  // -(sum of the first 16)
};
static_assert(sizeof(ActBlock) == 48);

// Rounds n_blocks * 32 floats (activations.cc).
void RoundActivations(const float* x, int64_t n_blocks, ActBlock* out);

// One block of 32 activations rounded to 14 bits, for plain weights of 16 bits (MatMulArgs::rounds_halfs).
inline constexpr int kHalfsMax = 8191;
struct HalfsBlock {
  int16_t q[kQ8Block];  // zero past the row's end
  float d;              // scale; NaN for a block that was not finite
};
static_assert(sizeof(HalfsBlock) == 68);
constexpr int64_t HalfsBlocks(int64_t n_in) { return (n_in + kQ8Block - 1) / kQ8Block; }

// Rounds a row of n_in floats to HalfsBlocks(n_in) blocks (activations.cc).
void RoundHalfs(const float* x, int64_t n_in, HalfsBlock* out);

// Whether the instructions in use multiply 16-bit integers faster than floats (plain_weights.cc).
bool HalfsPay();

// y = x w^T for some rows and panels. An output element is always formed by the same chain of operations, along k from
// the first block to the last, whichever rows and panels are computed with it: results do not depend on batch size,
// split or thread count.
struct ProductArgs {
  const PackedMatrix* w = nullptr;
  int64_t first_panel = 0, n_panels = 0;
  int64_t n_rows = 0;
  const ActBlock* act = nullptr;  // block formats: [n_rows, n_blocks]
  const float* x = nullptr;       // plain types: [n_rows, n_in], rows x_stride floats apart
  // Plain types of 16 bits whose x is rounded, in place of x: [n_rows, HalfsBlocks(n_in)].
  const HalfsBlock* halfs = nullptr;
  int64_t x_stride = 0;
  float* y = nullptr;  // row 0, first column of first_panel; columns past w->n_out() are not written
  int64_t y_stride = 0;
  const float* bias = nullptr;  // at the first column of first_panel, or nullptr
  bool accumulate = false;
};

struct WeightsInfo {
  Suits (*suits)(DType type);
  // Bytes of a panel, a multiple of 64.
  int64_t (*panel_bytes)(DType type, int64_t n_in);
  // Writes a row of the file into column `col` of a panel. REQUIRES: the column's bytes were zero.
  void (*pack)(DType type, const uint8_t* row, int64_t n_in, int col, uint8_t* panel);
  // Column `col` of a panel as floats: the same bits as DecodeRow() of the file's row.
  void (*decode)(DType type, const uint8_t* panel, int64_t n_in, int col, float* out);
  void (*product)(const ProductArgs& args);
};

// All layouts of the folder, in order of their names; generated.
std::span<const WeightsInfo* const> AllWeightsInfos();

// Never fails: one layout suits every type. Between two equally suited layouts, the first by name wins.
const WeightsInfo& WeightsFor(DType type);

}  // namespace weir::cpu
