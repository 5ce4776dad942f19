// SPDX-License-Identifier: Apache-2.0
// What Weir knows about an element type: how a block of it becomes floats and back. Every stored tensor, quantised or
// plain, is read through this table, so a new format works everywhere (slowly) before anyone writes a fast kernel.
//
// A row of n elements is n / block_elements consecutive blocks. Bytes are laid out exactly as GGUF stores them, little
// endian. No function here needs an aligned pointer, allocates, or fails.
//
// Decoding is exact: the value is computed in binary32 in the order the format's header states, so that it equals the
// reference decoder bit for bit. Encoding aims at a small error; two encoders of one format may choose different codes.
//
// A block format is a file of this folder, q4_k.h with q4_k.cc: the first has the block struct, BlockQ4_K, the second
// the object kQ4_KFormat. The build finds it there (cmake/formats.cmake); docs/recipes/add-a-quant-format.md has the
// steps.
#pragma once

#include <cstdint>

#include "quant/codes.h"
#include "quant/dtype.h"

namespace weir {

// The most elements a block of any format has: size of a buffer that holds one decoded block.
inline constexpr int kMaxBlockElements = 256;

struct QuantFormat {
  DType type;
  DTypeInfo info;
  // What encoding and decoding may change normally distributed values by: root mean square of the differences over that
  // of the values. A few percent above what the encoder reaches, so that tests see a worse one.
  double round_trip_error = 0;
  // One block to block_elements floats.
  void (*decode)(const uint8_t* block, float* out);
  // block_elements floats to one block. A block with a NaN or an infinity in it, or with values too large for the
  // format's scale, becomes one that AllFinite() refuses: bad input is never quietly turned into good-looking codes.
  void (*encode)(const float* in, uint8_t* block);
  // False when one of n_blocks consecutive blocks holds a value or scale that is NaN or infinite. Integer codes
  // cannot be, so block formats look at their scales only.
  bool (*finite)(const uint8_t* blocks, int64_t n_blocks);
  // Block `b` of 32 elements of a row, taken apart. nullptr where CodesOf(type) (quant/block_formats.h) says that the
  // format is not made of codes.
  CodeBlock (*read_codes)(const uint8_t* row, int64_t b) = nullptr;
};

// Never fails: every element type has a format (I32 converts to the nearest float and back, saturating).
const QuantFormat& FormatOf(DType type);

// The first n elements of a row to n floats. n need not end at a block's edge. `out` must not overlap `row`.
void DecodeRow(DType type, const uint8_t* row, int64_t n, float* out);

// n floats to ceil(n / block_elements) blocks; a last block that is not full is filled up with zeros.
void EncodeRow(DType type, const float* in, int64_t n, uint8_t* out);

// False when a weight among n elements could decode to NaN or infinity. Reads plain types whole and only the scales of
// block formats. REQUIRES: n is a multiple of the type's block_elements (any run of whole rows is).
bool AllFinite(DType type, const uint8_t* data, int64_t n);

}  // namespace weir
