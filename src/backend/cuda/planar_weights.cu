// weir-plugin: weights
// SPDX-License-Identifier: Apache-2.0
// Weights made of codes, in planes (planar.h). Products: one warp per row of weights for few activations, tiles on the
// int8 matrix units for many.
#include <array>
#include <utility>

#include "backend/cuda/joined.h"
#include "backend/cuda/matmul.h"
#include "backend/cuda/planar.h"
#include "backend/cuda/weights.h"

namespace weir::WEIR_GPU {
namespace {

struct Rounded {
  const int8_t* codes;
  const float* scales;
  const int32_t* sums;
};

WEIR_DEVICE void Store(const ProductOut& out, int64_t r, int64_t o, float value) {
  float* y = out.y + r * out.y_stride + o;
  if (out.bias != nullptr) value += out.bias[o];
  if (out.accumulate) value += *y;
  *y = value;
}

// Several rows of a format with two scales a block need so many registers that those for finding its part among others
// leave fewer warps to a multiprocessor: Q6_K lost 14 % on an H100, where other formats gained 5 to 12 %.
template <DType kType, int kRows>
constexpr bool kAlone = kRows > 1 && kPlanarFormat<kType>.two_scales;

// Few rows: every lane takes one block of the warp's rows of weights, neighbouring lanes neighbouring blocks. One row
// of activations is bound by the weights' way to the multiprocessors: the loads of several blocks are in flight. Of
// more rows, each loaded block serves two rows of weights.
template <DType kType, int kRows>
WEIR_KERNEL void Few(Joined<Planar> joined, Rounded x, int64_t n_rows) {
  constexpr PlanarFormat kFormat = kPlanarFormat<kType>;
  constexpr int kOuts = FewOuts(kRows);
  const JoinedPart<Planar> part = kAlone<kType, kRows> ? joined.part[0] : PartOf(joined, GlobalThread() / kWarp);
  const Planar& w = part.w;
  const int64_t o = (GlobalThread() / kWarp - part.begin) * kOuts, n_out = part.n_out;
  if (o >= n_out) return;
  float sum[kRows][kOuts];
  WEIR_UNROLL
  for (int i = 0; i < kRows * kOuts; ++i) sum[i / kOuts][i % kOuts] = 0;
  WEIR_UNROLL_BY(kRows == 1 ? 4 : 1)
  for (int64_t b = Lane(); b < w.n_blocks; b += kWarp) {
    uint32_t words[kOuts][kPlanarWords];
    BlockScale scale[kOuts];
    WEIR_UNROLL
    for (int i = 0; i < kOuts; ++i) {
      const int64_t row = o + i < n_out ? o + i : o, block = (part.first + row) * w.n_blocks + b;
      LoadWords<kType>(w, block, words[i]);
      scale[i] = ScaleOf<kType>(w, block);
    }
    WEIR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (r >= n_rows) continue;
      const int64_t at = r * w.n_blocks + b;
      const uint4* codes = reinterpret_cast<const uint4*>(x.codes + at * kPlanarBlock);
      const uint4 low = codes[0], high = codes[1];
      const float x_scale = x.scales[at], x_sum = kFormat.minimum ? static_cast<float>(x.sums[at]) : 0.0f;
      WEIR_UNROLL
      for (int i = 0; i < kOuts; ++i) {
        const uint32_t* word = words[i];
        const int dot0 = Dot4(word[0], low.x, Dot4(word[1], low.y, Dot4(word[2], low.z, Dot4(word[3], low.w, 0))));
        const int dot1 = Dot4(word[4], high.x, Dot4(word[5], high.y, Dot4(word[6], high.z, Dot4(word[7], high.w, 0))));
        float value = kFormat.two_scales
                          ? fmaf(scale[i].a[0], static_cast<float>(dot0), scale[i].a[1] * static_cast<float>(dot1))
                          : scale[i].a[0] * static_cast<float>(dot0 + dot1);
        if (kFormat.minimum) value = fmaf(scale[i].m, x_sum, value);
        sum[r][i] = fmaf(x_scale, value, sum[r][i]);
      }
    }
  }
  WEIR_UNROLL
  for (int i = 0; i < kRows * kOuts; ++i) {
    const float total = WarpSum(sum[i / kOuts][i % kOuts]);
    if (Lane() == 0 && i / kOuts < n_rows && o + i % kOuts < n_out) Store(part.out, i / kOuts, o + i % kOuts, total);
  }
}

constexpr int kTile = 64;  // weight rows, and activation rows, of a block of threads
constexpr int kTileThreads = 128;
constexpr int kStep = 2;    // blocks of 32 between barriers
constexpr int kPitch = 80;  // bytes: eight rows' words are then in 32 different banks

// Shared memory of a tile.
struct TileMemory {
  uint8_t w[kTile * kPitch];
  uint8_t x[kTile * kPitch];
  float a[2][kStep][kTile];  // [half]
  float m[kStep][kTile];
  float d[kStep][kTile];
  float s[kStep][kTile];  // d times the sum of the codes
};

// Thread t loads block t % kStep of row t / kStep: weights decoded to words, activations unchanged.
template <DType kType>
WEIR_DEVICE void LoadTile(const Planar& w, int64_t first, int64_t o0, int64_t n_out, const Rounded& x, int64_t r0,
                          int64_t n_rows, int64_t b0, TileMemory& tile) {
  constexpr PlanarFormat kFormat = kPlanarFormat<kType>;
  const int row = ThreadIdx() / kStep, which = ThreadIdx() % kStep;
  const int64_t b = b0 + which;
  uint32_t words[kPlanarWords];
  BlockScale scale = {{0, 0}, 0};
  WEIR_UNROLL
  for (int i = 0; i < kPlanarWords; ++i) words[i] = 0;
  if (o0 + row < n_out && b < w.n_blocks) {
    const int64_t block = (first + o0 + row) * w.n_blocks + b;
    LoadWords<kType>(w, block, words);
    scale = ScaleOf<kType>(w, block);
  }
  uint4* to = reinterpret_cast<uint4*>(tile.w + row * kPitch + which * kPlanarBlock);
  to[0] = {words[0], words[1], words[2], words[3]};
  to[1] = {words[4], words[5], words[6], words[7]};
  tile.a[0][which][row] = scale.a[0];
  tile.a[1][which][row] = scale.a[1];
  if (kFormat.minimum) tile.m[which][row] = scale.m;

  uint4 low = {0, 0, 0, 0}, high = {0, 0, 0, 0};
  float d = 0, s = 0;
  if (r0 + row < n_rows && b < w.n_blocks) {
    const int64_t at = (r0 + row) * w.n_blocks + b;
    const uint4* codes = reinterpret_cast<const uint4*>(x.codes + at * kPlanarBlock);
    low = codes[0];
    high = codes[1];
    d = x.scales[at];
    s = d * static_cast<float>(x.sums[at]);
  }
  to = reinterpret_cast<uint4*>(tile.x + row * kPitch + which * kPlanarBlock);
  to[0] = low;
  to[1] = high;
  tile.d[which][row] = d;
  if (kFormat.minimum) tile.s[which][row] = s;
}

WEIR_DEVICE uint32_t Word(const uint8_t* bytes) { return *reinterpret_cast<const uint32_t*>(bytes); }

// Many rows. A warp has 32 weight rows x 32 activation rows: 2 x 4 products of the matrix units, each over one block of
// 32, so that the block's scales apply to whole integers.
template <DType kType>
WEIR_KERNEL void Many(Planar w, int64_t first, int64_t n_out, Rounded x, int64_t n_rows, ProductOut out) {
  constexpr PlanarFormat kFormat = kPlanarFormat<kType>;
  auto& tile = *reinterpret_cast<TileMemory*>(SharedMemory());
  const int64_t o0 = static_cast<int64_t>(BlockIdx()) * kTile, r0 = static_cast<int64_t>(BlockIdxY()) * kTile;
  const int g = Lane() / 4, t = Lane() % 4;
  const int w0 = WarpIdx() / 2 * 32, x0 = WarpIdx() % 2 * 32;
  float acc[2][4][4];
  WEIR_UNROLL
  for (int i = 0; i < 32; ++i) acc[i / 16][i / 4 % 4][i % 4] = 0;
  for (int64_t b0 = 0; b0 < w.n_blocks; b0 += kStep) {
    Barrier();
    LoadTile<kType>(w, first, o0, n_out, x, r0, n_rows, b0, tile);
    Barrier();
    WEIR_UNROLL
    for (int which = 0; which < kStep; ++which) {
      uint32_t right[4][2];
      float d[4][2], s[4][2];
      WEIR_UNROLL
      for (int n = 0; n < 4; ++n) {
        const uint8_t* from = tile.x + (x0 + n * 8 + g) * kPitch + which * kPlanarBlock + 4 * t;
        right[n][0] = Word(from);
        right[n][1] = Word(from + 16);
        WEIR_UNROLL
        for (int i = 0; i < 2; ++i) {
          d[n][i] = tile.d[which][x0 + n * 8 + 2 * t + i];
          s[n][i] = kFormat.minimum ? tile.s[which][x0 + n * 8 + 2 * t + i] : 0.0f;
        }
      }
      WEIR_UNROLL
      for (int m = 0; m < 2; ++m) {
        const int row = w0 + m * 16 + g;
        const uint8_t* from = tile.w + row * kPitch + which * kPlanarBlock + 4 * t;
        const uint32_t left[4] = {Word(from), Word(from + 8 * kPitch), Word(from + 16), Word(from + 8 * kPitch + 16)};
        const float a0[2] = {tile.a[0][which][row], tile.a[0][which][row + 8]};
        const float a1[2] = {tile.a[1][which][row], tile.a[1][which][row + 8]};
        const float add[2] = {kFormat.minimum ? tile.m[which][row] : 0.0f,
                              kFormat.minimum ? tile.m[which][row + 8] : 0.0f};
        WEIR_UNROLL
        for (int n = 0; n < 4; ++n) {
          float value[4];
          if (kFormat.two_scales) {
            // The halves of a block have their own scales: each is multiplied with zeros in the other half.
            const uint32_t low[4] = {left[0], left[1], 0, 0}, high[4] = {0, 0, left[2], left[3]};
            int c0[4] = {0, 0, 0, 0}, c1[4] = {0, 0, 0, 0};
            MmaS8(c0, low, right[n]);
            MmaS8(c1, high, right[n]);
            WEIR_UNROLL
            for (int i = 0; i < 4; ++i) {
              value[i] = fmaf(a0[i / 2], static_cast<float>(c0[i]), a1[i / 2] * static_cast<float>(c1[i]));
            }
          } else {
            int c[4] = {0, 0, 0, 0};
            MmaS8(c, left, right[n]);
            WEIR_UNROLL
            for (int i = 0; i < 4; ++i) value[i] = a0[i / 2] * static_cast<float>(c[i]);
          }
          WEIR_UNROLL
          for (int i = 0; i < 4; ++i) {
            acc[m][n][i] = fmaf(d[n][i % 2], value[i], acc[m][n][i]);
            if (kFormat.minimum) acc[m][n][i] = fmaf(add[i / 2], s[n][i % 2], acc[m][n][i]);
          }
        }
      }
    }
  }
  WEIR_UNROLL
  for (int i = 0; i < 32; ++i) {
    const int64_t o = o0 + w0 + i / 16 * 16 + g + i % 4 / 2 * 8, r = r0 + x0 + i / 4 % 4 * 8 + 2 * t + i % 2;
    if (o < n_out && r < n_rows) Store(out, r, o, acc[i / 16][i / 4 % 4][i % 4]);
  }
}

constexpr int kFewThreads = 128;
constexpr int kEmbedThreads = 256;

Planar PlanesOf(const DeviceMatrix& w) {
  return PlanarAt(w.data(), PlanarLayoutOf(w.type(), w.n_out(), w.n_in()), w.type(), w.n_in());
}

template <DType kType>
void RunFew(Device& device, const Activations& x, std::span<const MatrixPart> parts) {
  if (kAlone<kType, kFewRows> && x.n_rows > 1 && parts.size() > 1) {
    for (const MatrixPart& part : parts) RunFew<kType>(device, x, {&part, 1});
    return;
  }
  const Joined<Planar> joined = Join<Planar>(parts, x.n_rows, PlanesOf);
  const Rounded rounded = {x.codes, x.scales, x.sums};
  device.Launch(x.n_rows == 1 ? Few<kType, 1> : Few<kType, kFewRows>, Grid{Blocks(joined.n_warps, kFewThreads / kWarp)},
                kFewThreads, 0, joined, rounded, x.n_rows);
}

template <DType kType>
void RunMany(Device& device, const Activations& x, const MatrixPart& part) {
  const Rounded rounded = {x.codes, x.scales, x.sums};
  device.Launch(Many<kType>, Grid{Blocks(part.n_out, kTile), Blocks(x.n_rows, kTile)}, kTileThreads, sizeof(TileMemory),
                PlanesOf(*part.w), part.first, part.n_out, rounded, x.n_rows, part.out);
}

template <DType kType>
WEIR_KERNEL void EmbedPlanar(Planar w, const int32_t* ids, float* out) {
  const int64_t row = ids[BlockIdx()];
  for (int64_t i = ThreadIdx(); i < w.n_blocks * kPlanarWords; i += NumThreads()) {
    const int64_t b = i / kPlanarWords, block = row * w.n_blocks + b;
    uint32_t words[kPlanarWords];
    LoadWords<kType>(w, block, words);
    const BlockScale scale = ScaleOf<kType>(w, block);
    float* to = out + (BlockIdx() * w.n_blocks + b) * kPlanarBlock;
    WEIR_UNROLL
    for (int e = 0; e < kPlanarBlock; ++e) {
      if (e / 4 == i % kPlanarWords) to[e] = ElementOf(scale, words, e);
    }
  }
}

template <DType kType>
void Embed(Device& device, const Planar& w, const int32_t* rows, int64_t n, float* out) {
  device.Launch(EmbedPlanar<kType>, Grid{n}, kEmbedThreads, 0, w, rows, out);
}

// The functions compiled for a format.
struct Compiled {
  void (*few)(Device&, const Activations&, std::span<const MatrixPart>) = nullptr;
  void (*many)(Device&, const Activations&, const MatrixPart&) = nullptr;
  void (*embed)(Device&, const Planar&, const int32_t* rows, int64_t n, float* out) = nullptr;
};
template <DType kType>
constexpr Compiled CompiledFor() {
  if constexpr (IsPlanar(kType)) {
    return {RunFew<kType>, RunMany<kType>, Embed<kType>};
  } else {
    return {};
  }
}
template <size_t... kTypes>
constexpr std::array<Compiled, kNumDTypes> AllCompiled(std::index_sequence<kTypes...>) {
  return {CompiledFor<static_cast<DType>(kTypes)>()...};
}
constexpr std::array<Compiled, kNumDTypes> kCompiled = AllCompiled(std::make_index_sequence<kNumDTypes>());

Suits Suit(DType type) { return IsPlanar(type) ? Suits::kFamily : Suits::kNot; }

int64_t Bytes(DType type, int64_t n_out, int64_t n_in) { return PlanarLayoutOf(type, n_out, n_in).bytes; }

void Pack(const MatrixSource& source, const uint8_t* row, int64_t o, uint8_t* base) {
  PackPlanarRow(source.type, row, source.n_in, o, PlanarLayoutOf(source.type, source.n_out, source.n_in), base);
}

void PlanarJoin(Device& device, Activations& x, std::span<const MatrixPart> parts) {
  RoundActivations(device, x);
  kCompiled[static_cast<size_t>(parts[0].w->type())].few(device, x, parts);
}

void PlanarProduct(Device& device, Library&, Activations& x, const DeviceMatrix& w, int64_t first, int64_t n_out,
                   const ProductOut& out) {
  const MatrixPart part = {&w, first, n_out, out};
  if (x.n_rows <= kFewRows) return PlanarJoin(device, x, {&part, 1});
  RoundActivations(device, x);
  kCompiled[static_cast<size_t>(w.type())].many(device, x, part);
}

void EmbedPlanarRows(Device& device, const DeviceMatrix& w, const int32_t* rows, int64_t n, float* out) {
  kCompiled[static_cast<size_t>(w.type())].embed(device, PlanesOf(w), rows, n, out);
}

}  // namespace

extern const WeightsInfo kPlanarWeights;
const WeightsInfo kPlanarWeights = {
    .suits = Suit,
    .bytes = Bytes,
    .pack = Pack,
    .product = PlanarProduct,
    .join = PlanarJoin,
    .embed = EmbedPlanarRows,
};

}  // namespace weir::WEIR_GPU
