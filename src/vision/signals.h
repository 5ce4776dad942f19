// SPDX-License-Identifier: Apache-2.0
// What may be seen of an encoder while it reads a picture: the evidence of pruners. Plain data between the two: an
// encoder knows no pruner, a pruner no encoder, the engine introduces them.
//
// A map comes one head at a time and lives until the call returns: the encoder holds n_rows x n_cols numbers of a
// single head, and nothing is ever kept of a whole picture's attention.
#pragma once

#include <cstdint>

namespace weir {

enum class SignalKind {
  kImageMass,   // attention that each image token received in the encoder's last block, all rows and heads summed; [1,
                // n]
  kQuerySelf,   // what the learned queries attend to among themselves
  kQueryCross,  // what the learned queries attend to in the picture; columns: image tokens, the class token first
  kOutputs,     // the rows before they are projected to the language model's width
};

// Layers that have this kind and heads of each (kImageMass, kOutputs: one of one), rows and columns of a map. No
// layers: the encoder has nothing of this kind.
struct SignalShape {
  int32_t n_layers = 0, n_heads = 0;
  int64_t n_rows = 0, n_cols = 0;
};

struct Signal {
  SignalKind kind = SignalKind::kOutputs;
  int32_t layer = 0, head = 0;  // of the layers and heads of this kind, in order
  SignalShape shape;
  const float* values = nullptr;  // [n_rows, n_cols]; a map's rows sum to 1
};

class SignalSource {
 public:
  virtual ~SignalSource() = default;
  virtual SignalShape ShapeOf(SignalKind kind) const { return {}; }
};

class SignalSink {
 public:
  virtual ~SignalSink() = default;
  // Asked before a layer's signals are computed; what nobody wants costs nothing.
  virtual bool Wants(SignalKind kind, int32_t layer) const = 0;
  // Layers in order, heads in order within a layer; kImageMass comes first, kOutputs last.
  virtual void Take(const Signal& signal) = 0;
};

}  // namespace weir
