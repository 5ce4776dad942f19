// SPDX-License-Identifier: Apache-2.0
// The blocks of a vision transformer, as in most encoders ("An Image is Worth 16x16 Words", 2010.11929, section 3.1):
// x' = x + attn(norm1(x)); x'' = x' + ffn(norm2(x')), attention of every row to every row, or within windows.
//
// Tensors are v.blk.L.ln1, ln2, attn_q, attn_k, attn_v (or all three as attn_qkv), attn_out, ffn_up and ffn_down,
// weights and biases, and those of VitStyle.
#pragma once

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "base/workspace.h"
#include "model/weights.h"
#include "vision/encoder.h"

namespace weir {

struct VitShape {
  int64_t n_layers = 0, n_embd = 0, n_ff = 0, n_heads = 0;
  float eps = 0;
  int64_t head_dim() const { return n_embd / n_heads; }
};

// clip.vision.block_count, embedding_length, feed_forward_length and attention.*; kCorrupt when they contradict each
// other.
Status ReadVitShape(const GgufFile& file, VitShape* shape);
// kCorrupt when `n_cols` columns cannot be split into `n_heads` heads that the kernels support.
Status CheckHeads(const GgufFile& file, int64_t n_cols, int64_t n_heads);
// A layer norm's epsilon.
Result<float> ReadNormEps(const GgufFile& file, const std::string& key);

// How many numbers a projection makes: rows of its tensor [n_out, n_in] (`side` 0), or columns where it is stored the
// other way round (1). kCorrupt beyond sane bounds; 1 where there is no such tensor, which loading it will say.
Result<int32_t> ProjectedWidth(const GgufFile& file, const std::string& tensor, size_t side = 0);

// out = in w^T + b over n_rows rows; `scratch` is large enough for them.
void LinearRows(Backend& backend, const float* in, int64_t n_rows, int64_t n_in, const LinearWeights& w, bool add,
                float* out, void* scratch);

// Angles of every row's position, if the blocks rotate queries and keys: pairs are half-split (ops/rope.h).
struct VitRotation {
  const RopeTable* table = nullptr;            // n_rot = head_dim, or half of it where there are columns
  const float *cos = nullptr, *sin = nullptr;  // [n, n_rot / 2]
  // Of the second half of each head, if it is rotated by angles of its own: [n, n_rot / 2].
  const float *column_cos = nullptr, *column_sin = nullptr;
};

// What families' blocks differ in.
struct VitStyle {
  GeluKind act = GeluKind::kErf;
  bool rms_norms = false;     // norms without mean and bias
  bool gated = false;         // silu(ffn_gate(x)) * ffn_up(x) in place of the GELU
  bool gelu_gate = false;     // with `act` of the gate in place of silu
  bool layer_scales = false;  // what attention and feed-forward part add is multiplied by ls1 and ls2
  bool qk_norms = false;      // attn_q_norm and attn_k_norm, RMS norms over all heads together
  // attn_q_norm and attn_k_norm, RMS norms of each head; values have one without weights, scores no scale (Gemma 4).
  bool head_norms = false;
  bool post_norms = false;  // what attention and feed-forward part add is normalised: attn_post_norm, ffn_post_norm
  // Numbers that go into a matrix NAME and come out of it are bounded by NAME.input_min, input_max, output_min and
  // output_max, [1], where the file has them.
  bool bounds = false;
  // Rows of attn_q and attn_k in the file have interleaved pairs, separately in each half of a head; they are brought
  // into half-split order there.
  bool interleaved_halves = false;
};
// Whether any block has a tensor v.blk.L.NAME.
bool AnyBlockHas(const GgufFile& file, const VitShape& shape, const std::string& name);

// Attention within windows of a picture of n_x by n_y squares, each of `rows` rows, in all blocks but those L where (L
// + 1) is a multiple of full_every. A window has side x side squares, fewer at the right and at the bottom; its rows
// are adjacent, windows are in line order.
struct VitWindows {
  int64_t n_x = 0, n_y = 0, side = 1, rows = 1;
  int64_t full_every = 1;
};

class VitBlocks {
 public:
  Status Load(const VitShape& shape, const VitStyle& style, const GgufFile& file, WeightLoader& loader);
  Status Load(const VitShape& shape, GeluKind act, const GgufFile& file, WeightLoader& loader) {
    return Load(shape, VitStyle{.act = act}, file, loader);
  }

  // Working arrays of Run(), for up to n rows.
  struct Buffers {
    float *norm = nullptr, *q = nullptr, *k = nullptr, *v = nullptr, *mix = nullptr;  // [n, n_embd]
    float* wide = nullptr;                                                            // [n, max(n_ff, n_wide)]
    float* gate = nullptr;                                                            // [n, n_ff], if gated
    void *scratch = nullptr, *attention_scratch = nullptr;
  };
  // Lays them out; `scratch` serves products of up to n rows of n_embd, n_ff or widest_in numbers, rows of `wide` have
  // room for n_wide numbers.
  Buffers LayOut(const Backend& backend, int64_t n, int64_t widest_in, Workspace* space, int64_t n_wide = 0) const;

  // All blocks over x, [n, n_embd], in place. Each intermediate is offered as v.blk.L.NAME: ln1, q, k (both before any
  // rotation and norm), v, mix, mid, ln2, out. `after`, if set, is called with each block's number and result.
  void Run(Backend& backend, const Buffers& buffers, int64_t n, const VitRotation* rotation,
           const VisionObserver* observer, float* x, const VitWindows* windows = nullptr,
           const std::function<void(int64_t block, const float* x)>& after = nullptr) const;

 private:
  struct Bounds {
    float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();
    bool any() const { return low > -std::numeric_limits<float>::infinity() || std::isfinite(high); }
  };
  struct Layer : LinearWeights {
    Bounds in, out;
  };
  struct Block {
    LayerNormWeights ln1, ln2;
    Layer q, k, v, out, up, down, gate;  // gate: if gated
    std::array<const Layer*, 7> Layers() const { return {&q, &k, &v, &out, &up, &down, &gate}; }
    Vector ls1, ls2, q_norm, k_norm, attn_post_norm, ffn_post_norm;
  };
  Status LoadBlock(const GgufFile& file, const std::string& name, WeightLoader& loader, Block* block) const;
  Status LoadBounds(const std::string& name, WeightLoader& loader, Layer* layer) const;
  void Norm(Backend& backend, const float* x, const LayerNormWeights& w, int64_t n, float* y) const;
  // Results of up to three layers over the same rows. With bounds, `free` holds bounded rows: `in` itself, or other
  // memory.
  struct Product {
    const Layer* layer = nullptr;
    float* out = nullptr;
    bool adds = false;  // to `out`; not with bounds
  };
  void Multiply(Backend& backend, const float* in, int64_t n, int64_t n_in, std::span<const Product> products,
                float* free, void* scratch) const;
  // x += what the layer makes of `in`, with norm and scale where the style has them; `free` for that, and with bounds
  // `in` is changed.
  void AddLinear(Backend& backend, float* in, int64_t n, int64_t n_in, const Layer& layer, const Vector& post_norm,
                 const Vector& scale, float* free, void* scratch, float* x) const;

  VitShape shape_;
  VitStyle style_;
  bool rounds_ = false;  // MatMulArgs::rounds_halfs: other matrices of the file are quantised, and round more
  Vector ones_;          // [head_dim]: the weights of norms without, with head_norms
  std::vector<Block> blocks_;
};

}  // namespace weir
