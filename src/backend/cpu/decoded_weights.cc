// weir-plugin: weights
// SPDX-License-Identifier: Apache-2.0
// The fallback for any format: rows are stored as in the file, and a product decodes them block by block. Slow for few
// rows of activations, because decoding is scalar; for many, each block is decoded once for all of them.
#include <algorithm>

#include "backend/cpu/pack.h"
#include "quant/format.h"

namespace weir::cpu {
namespace {

// Rows of activations that are summed together: as many as a task has.
constexpr int64_t kMostRows = 96;

Suits Suit(DType type) { return IsBlocked(type) ? Suits::kEverything : Suits::kNot; }

int64_t PanelBytes(DType type, int64_t n_in) { return (kPanel * RowBytes(type, n_in) + 63) / 64 * 64; }

void Pack(DType type, const uint8_t* row, int64_t n_in, int col, uint8_t* panel) {
  const int64_t row_bytes = RowBytes(type, n_in);
  std::copy_n(row, row_bytes, panel + col * row_bytes);
}

void Decode(DType type, const uint8_t* panel, int64_t n_in, int col, float* out) {
  DecodeRow(type, panel + col * RowBytes(type, n_in), n_in, out);
}

// sum[c] += x . w[.][c] of up to kMaxBlockElements weights per column.
void AddBlock(const float (*w)[kPanel], int n, const ActBlock* act, float* sum) {
  for (int from = 0; from < n; from += kQ8Block, ++act) {
    float dot[kPanel] = {};
    for (int k = 0; k < kQ8Block; ++k) {
      for (int c = 0; c < kPanel; ++c) dot[c] += w[from + k][c] * static_cast<float>(act->q[k]);
    }
    for (int c = 0; c < kPanel; ++c) sum[c] += dot[c] * act->d;
  }
}

void PanelProduct(const ProductArgs& args, int64_t panel, int64_t first_row, int64_t n_rows) {
  const PackedMatrix& w = *args.w;
  const QuantFormat& format = FormatOf(w.type());
  const int n_block = format.info.block_elements;
  const int64_t row_bytes = RowBytes(w.type(), w.n_in());
  const uint8_t* bytes = w.panel(args.first_panel + panel);
  const auto n_cols = static_cast<int>(std::min<int64_t>(kPanel, w.n_out() - (args.first_panel + panel) * kPanel));
  float sum[kMostRows][kPanel] = {};
  float decoded[kMaxBlockElements];
  float columns[kMaxBlockElements][kPanel] = {};
  for (int64_t b = 0; b < w.n_in() / n_block; ++b) {
    for (int c = 0; c < n_cols; ++c) {
      format.decode(bytes + c * row_bytes + b * format.info.block_bytes, decoded);
      for (int k = 0; k < n_block; ++k) columns[k][c] = decoded[k];
    }
    for (int64_t r = 0; r < n_rows; ++r) {
      AddBlock(columns, n_block, args.act + (first_row + r) * w.n_blocks() + b * (n_block / kQ8Block), sum[r]);
    }
  }
  for (int64_t r = 0; r < n_rows; ++r) {
    float* y = args.y + (first_row + r) * args.y_stride + panel * kPanel;
    for (int c = 0; c < n_cols; ++c) {
      const float value = args.bias == nullptr ? sum[r][c] : sum[r][c] + args.bias[panel * kPanel + c];
      y[c] = args.accumulate ? value + y[c] : value;
    }
  }
}

void Product(const ProductArgs& args) {
  for (int64_t panel = 0; panel < args.n_panels; ++panel) {
    for (int64_t row = 0; row < args.n_rows; row += kMostRows) {
      PanelProduct(args, panel, row, std::min(kMostRows, args.n_rows - row));
    }
  }
}

}  // namespace

extern const WeightsInfo kDecodedWeights;
const WeightsInfo kDecodedWeights = {
    .suits = Suit,
    .panel_bytes = PanelBytes,
    .pack = Pack,
    .decode = Decode,
    .product = Product,
};

}  // namespace weir::cpu
