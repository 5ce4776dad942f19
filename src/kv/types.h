// SPDX-License-Identifier: Apache-2.0
// Plain data shared by the store, the policies and the engine. Four numbers that are never mixed:
//   pos    what RoPE sees           slot   index of an entry in storage, 0 = oldest of its head
//   idx    place in a list          t_src  time in the source stream, milliseconds
// and seq, the running number of a token in its stream (0 = the first token ever read).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "quant/dtype.h"

namespace weir {

// How positions relate to slots (methods of the papers in docs/decisions/0002-unrotated-keys.md).
enum class Positions {
  kAbs,    // keys rotated once at seq; the query uses its own seq. Leaves the trained window on long streams.
  kCache,  // pos of an entry = its slot, always. Bounded by the pot. StreamingLLM, H2O (streaming), SirLLM, Inf-MLLM.
  kReset,  // as kCache, but entries are only removed by whole distillations (InfiniPot's CR-RoPE).
};
const char* PositionsName(Positions positions);

// Which layers and heads share one keep-set; metadata is stored once per group.
enum class Granularity { kGlobal, kPerLayer, kPerHead };

enum class Modality : uint8_t { kText, kImage, kVideo };
inline constexpr int kNumModalities = 3;
const char* ModalityName(Modality modality);  // "text", "image", "video"

// Most columns of a picture, and most steps on the time axis from a frame to the next one of its video.
inline constexpr int32_t kMaxColumns = 1 << 16, kMaxSteps = (1 << 13) - 1;

// Metadata of one stored token, kept per slot of each metadata group.
struct SlotMeta {
  int64_t seq = 0;
  int64_t t_src_ms = 0;
  int32_t token_id = -1;  // below 0: a visual embedding, as VisualId() says
  Modality modality = Modality::kText;
  bool pinned = false;  // must survive every selection
  uint16_t row = 0;     // a visual token's place in its picture or frame, 0 for text
  // Equal for visual tokens of the same picture or frame.
  int64_t frame() const { return seq - row; }
};

// SlotMeta::token_id of a visual token: the columns of its picture and, if that is a frame that continues a video
// (kv/axes.h), its steps from the frame before it. steps < 0: a picture, or a video's first frame; the result is then
// -columns.
inline constexpr int32_t kStepUnit = 2 * kMaxColumns;
constexpr int32_t VisualId(int32_t columns, int32_t steps = -1) { return -(columns + (steps + 1) * kStepUnit); }
constexpr int32_t ColumnsOf(const SlotMeta& m) { return m.token_id < -1 ? -m.token_id % kStepUnit : 1; }
constexpr int32_t StepsOf(const SlotMeta& m) { return m.token_id < 0 ? -m.token_id / kStepUnit - 1 : -1; }

// Tokens of a stream from seq `begin` to before `end`.
struct SeqRange {
  int64_t begin = 0, end = 0;
};

// The slots of one metadata group to keep, strictly ascending.
using KeepSet = std::vector<int32_t>;

// Floats that a pot may keep beside every slot of every group. They move with the slots and are saved with them, in
// this order.
enum class SlotFloat : uint32_t {
  kScore,  // the statistic that a policy ranks by, of attention, keys or values
  kNll,    // -log P of the token when it was read
};
inline constexpr SlotFloat kSlotFloats[] = {SlotFloat::kScore, SlotFloat::kNll};

// A set of SlotFloats.
class SlotFloats {
 public:
  constexpr SlotFloats() = default;
  constexpr SlotFloats(std::initializer_list<SlotFloat> all) {
    for (const SlotFloat one : all) bits_ |= 1u << static_cast<uint32_t>(one);
  }
  constexpr bool has(SlotFloat one) const { return (bits_ >> static_cast<uint32_t>(one) & 1u) != 0; }
  constexpr void Add(SlotFloats others) { bits_ |= others.bits_; }
  constexpr uint32_t bits() const { return bits_; }  // bit i: the i-th of the enum

 private:
  uint32_t bits_ = 0;
};

// What layers without keys and values keep of a stream (kv/recurrent_state.h).
struct RecurrentStateShape {
  int64_t n_floats = 0;  // 0: the model has no such layers
  int32_t n_marks = 0;   // copies at places to go back to
  bool aside = false;    // one more, for rows that are read and removed again
};

// Keys and values of one layer of a pot whose layers differ.
struct LayerShape {
  int32_t n_kv_heads = 0, head_dim = 0;
  // Set by PotShape::SetLayers(): KV heads of the layers before it, and the first layer of its shape.
  int32_t first_head = 0, pool = 0;
  bool operator==(const LayerShape&) const = default;
};

// Layers with a sliding window that hold the newest rows of the stream, in slots of their own (kv/store.h).
struct WindowLayers {
  int32_t n_slots = 0;  // of each; 0: there are none, and every layer has the pot's slots
  int32_t n_rows = 0;   // rows of the stream that are held at most; the other slots are for rows that are taken back
  int32_t window = 0;   // rows that one of their rows sees, its own included
  int32_t n_marks = 0;  // copies at places to go back to
  std::vector<LayerShape> layers;
};

// Shape of a session's pot: all that determines its size in bytes.
struct PotShape {
  int32_t n_layers = 0;                  // that store keys and values
  int32_t n_kv_heads = 0, head_dim = 0;  // of every layer; the most of any layer where they differ
  int32_t n_slots = 0;                   // capacity |M| of every layer and KV head
  DType k_type = DType::kF16, v_type = DType::kF16;
  // A slot's values are its key (multi-head latent attention): they are stored once, and v_type is k_type.
  bool values_in_keys = false;
  Positions positions = Positions::kCache;
  Granularity granularity = Granularity::kGlobal;
  SlotFloats floats;
  RecurrentStateShape state;
  WindowLayers windows;  // not among the n_layers
  // Largest number of slots that one head may hold, as a multiple of n_slots. 1: every head owns n_slots. More: the
  // heads of all layers of one shape share their slots, and storage follows the number of slots that each of them
  // keeps. kPerHead only.
  int32_t spread = 1;
  std::vector<LayerShape> layers;  // [n_layers] where they differ, by SetLayers(); empty: all are alike

  // Sets the layers and all that follows from them. Layers that are alike are not listed.
  void SetLayers(std::vector<LayerShape> all);

  int32_t n_kv_heads_of(int32_t layer) const { return layers.empty() ? n_kv_heads : layers[layer].n_kv_heads; }
  int32_t head_dim_of(int32_t layer) const { return layers.empty() ? head_dim : layers[layer].head_dim; }
  // The first layer of this layer's shape; 0 where all are alike.
  int32_t pool_of(int32_t layer) const { return layers.empty() ? 0 : layers[layer].pool; }
  // Number of a head, counted over all layers.
  int32_t head_index(int32_t layer, int32_t head) const {
    return (layers.empty() ? layer * n_kv_heads : layers[layer].first_head) + head;
  }
  int64_t n_heads_total() const {
    return layers.empty() ? static_cast<int64_t>(n_layers) * n_kv_heads
                          : layers.back().first_head + layers.back().n_kv_heads;
  }
  // Of `windows` alone, as a pot: one group, positions are slots. REQUIRES: windows.n_slots > 0.
  PotShape window_pot() const;
  int64_t max_head_slots() const { return static_cast<int64_t>(n_slots) * spread; }
  int32_t n_groups() const {
    switch (granularity) {
      case Granularity::kGlobal:
        return 1;
      case Granularity::kPerLayer:
        return n_layers;
      case Granularity::kPerHead:
        return static_cast<int32_t>(n_heads_total());
    }
    return 1;
  }
  // The metadata group that (layer, head) belongs to.
  int32_t group_of(int32_t layer, int32_t head) const {
    switch (granularity) {
      case Granularity::kGlobal:
        return 0;
      case Granularity::kPerLayer:
        return layer;
      case Granularity::kPerHead:
        return head_index(layer, head);
    }
    return 0;
  }
  // A group's layer and head; -1: all of them.
  int32_t layer_of(int32_t group) const;
  int32_t head_of(int32_t group) const {
    return granularity == Granularity::kPerHead ? group - head_index(layer_of(group), 0) : -1;
  }
};

}  // namespace weir
