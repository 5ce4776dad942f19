// SPDX-License-Identifier: Apache-2.0
// Signals that an encoder offers while it reads a picture, as input for pruners. Encoders and pruners share only this
// plain data and do not know each other; the engine connects them.
//
// A map covers one head and is valid until the call returns: the encoder holds n_rows x n_cols numbers of a single
// head, never a whole picture's attention.
#pragma once

#include <cstdint>

namespace weir {

enum class SignalKind {
  kImageMass,   // attention that each image token received in the encoder's last block, all rows and heads summed; [1,
                // n]
  kQuerySelf,   // self-attention among the learned queries
  kQueryCross,  // cross-attention of the learned queries to the picture; columns: image tokens, the class token first
  kOutputs,     // the rows before they are projected to the language model's width
};

// Number of layers with this kind and of heads in each (kImageMass, kOutputs: one of one), rows and columns of a map.
// No layers: the encoder does not offer this kind.
struct SignalShape {
  int32_t n_layers = 0, n_heads = 0;
  int64_t n_rows = 0, n_cols = 0;
};

struct Signal {
  SignalKind kind = SignalKind::kOutputs;
  int32_t layer = 0, head = 0;  // index among the layers and heads of this kind
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
  // Called before a layer's signals are computed; unwanted signals cost nothing.
  virtual bool Wants(SignalKind kind, int32_t layer) const = 0;
  // Layers in order, heads in order within a layer; kImageMass comes first, kOutputs last.
  virtual void Take(const Signal& signal) = 0;
};

}  // namespace weir
