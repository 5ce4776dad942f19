// SPDX-License-Identifier: Apache-2.0
// Layouts of weights on a device: plug-ins, found by the build in this folder (cmake/weir.cmake). A file whose first
// line is `// weir-plugin: weights`, planar_weights.cu for example, defines one, `kPlanarWeights`. For every element
// type the best suited layout is used, so that a file for a single type replaces that type's previous layout.
#pragma once

#include <cstdint>
#include <span>

#include "backend/cuda/matmul.h"
#include "backend/suits.h"

namespace weir::WEIR_GPU {

struct WeightsInfo {
  Suits (*suits)(DType type);
  // Bytes of a matrix.
  int64_t (*bytes)(DType type, int64_t n_out, int64_t n_in);
  // On the host: writes row `o` of the matrix, stored at `row` in the file's format, into the matrix at `base`.
  void (*pack)(const MatrixSource& source, const uint8_t* row, int64_t o, uint8_t* base);
  // Rows [first, first + n_out) of `w` times the activations.
  void (*product)(Device& device, Library& library, Activations& x, const DeviceMatrix& w, int64_t first, int64_t n_out,
                  const ProductOut& out);
  // Products of at most kFewRows activations with up to kMostJoined matrices of one type, in one launch. nullptr: there
  // is none.
  void (*join)(Device& device, Activations& x, std::span<const MatrixPart> parts) = nullptr;
  // out[i] = row rows[i], decoded. `rows` and `out` are device memory.
  void (*embed)(Device& device, const DeviceMatrix& w, const int32_t* rows, int64_t n, float* out);
};

// All layouts of the folder, in order of their names; generated.
std::span<const WeightsInfo* const> AllWeightsInfos();

// Never fails for a type that CheckMatrixSource() accepts. Between two equally suited layouts, the first by name wins.
const WeightsInfo& WeightsFor(DType type);

}  // namespace weir::WEIR_GPU
