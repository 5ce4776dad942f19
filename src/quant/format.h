// SPDX-License-Identifier: Apache-2.0
// Everything Weir knows about an element type: how its blocks are decoded to floats and encoded. Every stored tensor,
// quantised or plain, is read through this table, so a new format works everywhere (slowly) before it has a fast
// kernel.
//
// A row of n elements is n / block_elements consecutive blocks. Bytes are laid out exactly as GGUF stores them, little
// endian. No function here needs an aligned pointer, allocates, or fails.
//
// Decoding is exact: values are computed in binary32 in the order stated in the format's header, and equal the
// reference decoder's bit for bit. Encoding aims at a small error; two encoders of one format may choose different
// codes.
//
// A block format is a pair of files in this folder, for example q4_k.h with the block struct BlockQ4_K and q4_k.cc with
// the object kQ4_KFormat. The build finds them there (cmake/formats.cmake); docs/recipes/add-a-quant-format.md has the
// steps.
#pragma once

#include <cstdint>

#include "quant/codes.h"
#include "quant/dtype.h"

namespace weir {

// The largest block of any format, in elements: size of a buffer for one decoded block.
inline constexpr int kMaxBlockElements = 256;

struct QuantFormat {
  DType type;
  DTypeInfo info;
  // Expected round-trip error on normally distributed values: root mean square of the differences over that of the
  // values. A few percent above the encoder's own, so that tests detect a worse encoder.
  double round_trip_error = 0;
  // Decodes one block to block_elements floats.
  void (*decode)(const uint8_t* block, float* out);
  // Encodes block_elements floats as one block. A block with a NaN or an infinity, or with values too large for the
  // format's scale, becomes one that AllFinite() rejects: bad input never silently becomes good-looking codes. nullptr:
  // the format is only read.
  void (*encode)(const float* in, uint8_t* block);
  // False when one of n_blocks consecutive blocks has a value or scale that is NaN or infinite. Integer codes are
  // always finite, so block formats check only their scales.
  bool (*finite)(const uint8_t* blocks, int64_t n_blocks);
  // Block `b` of 32 elements of a row, as codes and scales. nullptr where CodesOf(type) (quant/block_formats.h) says
  // that the format is not made of codes.
  CodeBlock (*read_codes)(const uint8_t* row, int64_t b) = nullptr;
};

// Never fails: every element type has a format (I32 converts to the nearest float and back, saturating).
const QuantFormat& FormatOf(DType type);

// Decodes the first n elements of a row. n need not be at a block boundary. `out` must not overlap `row`.
void DecodeRow(DType type, const uint8_t* row, int64_t n, float* out);

// Encodes n floats to ceil(n / block_elements) blocks; a partial last block is padded with zeros. REQUIRES: the format
// has an encoder.
void EncodeRow(DType type, const float* in, int64_t n, uint8_t* out);

// False when a weight among n elements could decode to NaN or infinity. Reads plain types whole and only the scales of
// block formats. REQUIRES: n is a multiple of the type's block_elements (any run of whole rows is).
bool AllFinite(DType type, const uint8_t* data, int64_t n);

}  // namespace weir
