// SPDX-License-Identifier: Apache-2.0
// Binding a model file's tensors to an architecture's fields. Every tensor is requested by name and shape; an
// unrequested tensor is an error too, so that a half-understood file never runs. Scales beside a layer's matrices
// (ops/scaled_matrix.h) come with them.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "io/gguf.h"
#include "kv/attend.h"
#include "model/architecture.h"

namespace weir {

// A small F32 vector (norm weight, bias) with its bytes in the ledger. Empty when the file has none.
struct Vector {
  std::vector<float> data;  // the host's copy
  Buffer device;            // a copy for a backend that cannot read the host's
  Reservation reservation;
  // For operations.
  const float* get() const { return device.bytes() > 0 ? device.as<float>() : data.empty() ? nullptr : data.data(); }
};

// Those of a layer norm, and of a linear layer whose bias is optional.
struct LayerNormWeights {
  Vector w, b;
};
struct LinearWeights {
  std::unique_ptr<Matrix> w;
  Vector b;
};

class WeightLoader {
 public:
  WeightLoader(const GgufFile& file, Backend& backend, Ledger& ledger)
      : file_(file), backend_(backend), ledger_(ledger) {}

  const std::string& path() const { return file_.path(); }
  bool Has(const std::string& name) const { return file_.Tensor(name) != nullptr; }
  // [n_out, n_in]; row_order as in MatrixSource, or empty. kNotFound names a missing tensor, kCorrupt a wrong shape.
  Status Load(const std::string& name, int64_t n_out, int64_t n_in, std::unique_ptr<Matrix>* out,
              const std::vector<int32_t>& row_order = {});
  // Rows [first, first + n_out) of a tensor [n_rows, n_in] that holds several matrices in sequence.
  Status LoadRows(const std::string& name, int64_t n_rows, int64_t n_in, int64_t first, int64_t n_out,
                  std::unique_ptr<Matrix>* out);
  // The rows `picked` of a tensor [n_rows, n_in], in that order.
  Status LoadPicked(const std::string& name, int64_t n_rows, int64_t n_in, const std::vector<int32_t>& picked,
                    std::unique_ptr<Matrix>* out);
  // Rows [first, first + n) of a tensor [n_rows, n_taps] of small kernels, one for each channel: [n_taps, n] in `out`.
  Status LoadTaps(const std::string& name, int64_t n_rows, int64_t n_taps, int64_t first, int64_t n, Vector* out);
  // A tensor [n_rows, n] of small vectors, one after the other.
  Status LoadVectors(const std::string& name, int64_t n_rows, int64_t n, Vector* out);
  // A tensor [n, n_out, n_in] of n matrices as one stack (ops/grouped_matmul.h).
  Status LoadStack(const std::string& name, int64_t n, int64_t n_out, int64_t n_in, std::unique_ptr<Matrix>* out);
  // Matrix `at` of a tensor [n, n_out, n_in] of n matrices, or its first n_rows rows alone.
  Status LoadSlice(const std::string& name, int64_t n, int64_t at, int64_t n_out, int64_t n_in,
                   std::unique_ptr<Matrix>* out, int64_t n_rows = -1);
  // Rows [first, first + n_in) of a tensor [n_rows, n_out] as columns: [n_out, n_in]. Block formats, whose blocks lie
  // along the rows, become F16.
  Status LoadTransposed(const std::string& name, int64_t n_rows, int64_t n_out, int64_t first, int64_t n_in,
                        std::unique_ptr<Matrix>* out);
  // Columns of a tensor [n_out, n_in] in another order: column i of `out` is column order[i] of the tensor. Block
  // formats become F16.
  Status LoadColumns(const std::string& name, int64_t n_out, int64_t n_in, const std::vector<int32_t>& order,
                     std::unique_ptr<Matrix>* out);
  // A convolution kernel [n_out, kernel...] as the matrix that multiplies flattened patches.
  Status LoadKernel(const std::string& name, int64_t n_out, const std::vector<int64_t>& kernel,
                    std::unique_ptr<Matrix>* out);
  // Ignores tensors in the file with this prefix.
  void Skip(const std::string& prefix);
  // [n], converted to F32; row_order reorders its elements. NaN or infinity is kCorrupt.
  Status Load(const std::string& name, int64_t n, Vector* out, const std::vector<int32_t>& row_order = {});
  // Elements [first, first + n) of a vector [n_all] that holds several.
  Status LoadPart(const std::string& name, int64_t n_all, int64_t first, int64_t n, Vector* out,
                  const std::vector<int32_t>& row_order = {});
  // As Load(); leaves `out` empty when the file has no such tensor.
  Status LoadOptional(const std::string& name, int64_t n, Vector* out, const std::vector<int32_t>& row_order = {});
  // A vector of n equal numbers that no tensor holds.
  Status Fill(int64_t n, float value, Vector* out);
  // Multiplies a loaded vector.
  Status Scale(float factor, Vector* vector);
  // NAME.weight and NAME.bias.
  Status Load(const std::string& name, int64_t n, LayerNormWeights* out);
  Status Load(const std::string& name, int64_t n_out, int64_t n_in, LinearWeights* out);
  // kCorrupt naming the first tensor that was not loaded.
  Status Finish() const;

 private:
  // Which of the n matrices of a tensor a matrix is made of; at -1: all.
  struct InStack {
    int64_t n = 1, at = -1;
  };
  // The matrix whose rows begin at `data`.
  Status Prepare(const GgufTensor& tensor, const uint8_t* data, int64_t n_out, int64_t n_in,
                 std::unique_ptr<Matrix>* out, const std::vector<int32_t>& row_order, int64_t n_rows = 0,
                 InStack place = {1, -1});
  // Gives a matrix the scale that the file has beside it: blk.L.NAME.scale, [1] or [n].
  Status AddScale(const GgufTensor& tensor, InStack place, std::unique_ptr<Matrix>* out);
  // Keeps `values` of a tensor; NaN or infinity is kCorrupt.
  Status Keep(const std::string& name, std::vector<float> values, Vector* out);
  Result<const GgufTensor*> Take(const std::string& name, const std::vector<int64_t>& shape);

  const GgufFile& file_;
  Backend& backend_;
  Ledger& ledger_;
  std::set<std::string> taken_;
};

// A metadata integer, limited to [min, max]: sizes are multiplied later, so they are bounded when they are read.
// kNotFound when the file has no such key, kCorrupt when it is out of bounds.
Result<int64_t> BoundedInt(const GgufFile& file, const std::string& key, int64_t min, int64_t max);

// As BoundedInt(), `fallback` when the file has no such key.
Result<int64_t> BoundedIntOr(const GgufFile& file, const std::string& key, int64_t min, int64_t max, int64_t fallback);

// Metadata every decoder shares, read with the architecture's prefix ("llama.block_count" ...) and checked to be
// within sane bounds before any arithmetic uses it.
struct DecoderMetadata {
  int32_t n_layers = 0, n_embd = 0, n_ff = 0, n_vocab = 0, n_ctx_train = 0;
  int32_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  float norm_eps = 0;
  // [n_layers], of a file that gives KV heads, or the width of the feed-forward part, layer by layer: those that have
  // some.
  std::vector<bool> attends, feeds_forward;
};
// What an architecture may have.
struct DecoderTraits {
  bool experts = false;  // otherwise kUnsupported for a file with some
  // KV heads and widths may differ from layer to layer; the largest are returned, and the family reads the lists.
  bool layers_differ = false;
  // The sizes of keys and values are the family's to read; head_dim is not set.
  bool own_head_sizes = false;
};
Result<DecoderMetadata> ReadDecoderMetadata(const GgufFile& file, const std::string& arch, DecoderTraits traits = {});
// The properties of every architecture, from its metadata; attention.scale is 1 / sqrt(head_dim), the rotary embedding
// is not set.
Status FillConfig(const GgufFile& file, const char* arch, const DecoderMetadata& meta, ModelConfig* config);

// The last layers, `arch`.nextn_predict_layers, predict further tokens at once: so many of m.n_layers are not part of
// the decoder. Their tensors are skipped, and m.n_layers no longer counts them.
Status SkipNextLayers(const GgufFile& file, const std::string& arch, WeightLoader& loader, DecoderMetadata* m);

// Rotary settings under `arch`.rope.*, every scaling kind that files use; frequency factors are loaded through `loader`
// (rope_freqs.weight, rope_factors_short/long.weight).
Result<RopeConfig> ReadRopeConfig(const GgufFile& file, const std::string& arch, const DecoderMetadata& meta,
                                  WeightLoader& loader);

// The bound of soft-capped scores or logits, `fallback` if the file has none; 0: no cap.
Result<float> ReadSoftCap(const GgufFile& file, const std::string& key, double fallback);
// A positive factor on attention scores, 1 / sqrt(scaled_by) if the file has none.
Result<float> ReadScale(const GgufFile& file, const std::string& key, int32_t scaled_by);
// A positive number, or 0, which is also what a file without one means: none.
Result<float> ReadFactorOr0(const GgufFile& file, const std::string& key);
// Another positive factor; kNotFound if the file has none.
Result<float> ReadFactor(const GgufFile& file, const std::string& key);
// A rotary base, 10000 if the file has none.
Result<double> ReadFreqBase(const GgufFile& file, const std::string& key);

// The sliding window `arch`.attention.sliding_window (`fallback` if the file has none; 0 is no window). Layers l with
// (l + 1) % global_every == 0 have no window; global_every is overridden by `arch`.attention.sliding_window_pattern, 0
// means no such layer. Where that is an array, its entry for a layer says whether the layer has a window.
Status ReadWindows(const GgufFile& file, const std::string& arch, int32_t fallback, int32_t global_every,
                   AttentionLayout* layout);

// Positions with three axes: rotary pairs of each, `arch`.rope.dimension_sections, and how they are divided
// (AxisPairs::alternate). On a device, which does not compute them, positions keep one axis, as of text, and pictures
// are refused. Call after FillConfig() and ReadRopeConfig().
Status ReadAxes(const GgufFile& file, const std::string& arch, bool alternate, const Backend& backend,
                ModelConfig* config);

// The row order that turns interleaved rotary pairs (GGUF `llama`) into half-split ones, for n_heads heads.
std::vector<int32_t> HalfSplitOrder(int32_t n_heads, int32_t head_dim, int32_t n_rot);

}  // namespace weir
