// SPDX-License-Identifier: Apache-2.0
// Alternating updates (AltUp, arXiv 2301.13310): a residual stream several times as wide as the layers, cut into
// streams of the layers' width. A layer computes on one of them, a; the others follow by small mixtures of all:
//
//   p_i = x_i + sum_j c_ij x_j,        c = C tanh(R rms(x_a) / n_embd)
//   x_i = p_i + (1 + g_i) (y - p_a),   g = G tanh(R rms(y) / n_embd)
//
// with y what the layer makes of p_a. The first stream begins as the input, the others as products of it with its
// magnitude; in the end the streams are multiplied by matrices, brought to the magnitude of the first, and averaged.
//
// The coefficients of a row are numbers on the host between two products, so that the backend has to be on it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/workspace.h"
#include "model/weights.h"

namespace weir {

class AltUp {
 public:
  explicit AltUp(Backend& backend) : backend_(backend) {}

  // Metadata under `arch`.altup, and the tensors of all layers. kUnsupported for a backend that is not on the host.
  Status Load(const GgufFile& file, const std::string& arch, const ModelConfig& config, float norm_eps,
              WeightLoader& loader);
  int64_t WeightBytes() const;
  int32_t n_streams() const { return n_streams_; }

  struct Memory {
    float *streams = nullptr, *predicted = nullptr;  // [n_streams, n, n_embd] each
    float* row = nullptr;                            // [n, n_embd]
    float *router = nullptr, *coefs = nullptr;       // [n, n_streams], [n, n_streams^2]
  };
  // Of a pass over n rows.
  Memory LayOut(int64_t n, Workspace* space) const;

  // The streams of one pass. Calls: Begin, then for every layer Predict and Correct, then Merge.
  class Pass {
   public:
    // `scratch`: of products over n rows of n_embd.
    Pass(const AltUp& model, const Memory& memory, int64_t n, void* scratch);

    void Begin(const float* x);
    // x = p_a, what layer l computes on.
    void Predict(int32_t l, float* x);
    // Leaves the first rows out, between Predict() and Correct(): nothing reads them any more.
    void LeaveOut(int64_t first);
    // `y`: what layer l made of p_a.
    void Correct(int32_t l, const float* y);
    // out = the layer's scale . x_a, of which a token's own vector of layer l depends.
    void ReadScaled(int32_t l, float* out) const;
    // Adds to every stream but the first.
    void AddToOthers(const float* y);
    void Merge(float* x);
    // All streams of each row side by side: [n, n_streams * n_embd].
    std::vector<float> Rows() const;

   private:
    float* Stream(float* all, int32_t i) const { return all + i * n_ * model_.n_embd_; }
    // out = coefs * tanh(R rms(x) / n_embd), [n, n_out]
    void Route(int32_t l, const float* x, const Matrix& coefs, int64_t n_out);
    // y += weights . x, row by row; `weight` gives that of a row.
    template <typename F>
    void AddWeighted(const float* x, float* y, F weight);
    void Multiply(const float* x, int64_t n_in, const Matrix& w, float* y, int64_t n_out);

    const AltUp& model_;
    Memory memory_;
    int64_t n_;
    void* scratch_;
    std::vector<int32_t> rows_;   // 0, 1, 2 ...
    std::vector<float> weights_;  // of the rows
  };

 private:
  struct Layer {
    std::unique_ptr<Matrix> router, predict, correct;  // [n_streams, n_embd], [n_streams^2 and n_streams, n_streams]
    Vector router_norm, scale;                         // [n_embd]; the norm's is divided by n_embd
  };

  Backend& backend_;
  int32_t n_streams_ = 0, active_ = 0;
  int64_t n_embd_ = 0;
  float norm_eps_ = 0;
  std::vector<std::unique_ptr<Matrix>> begin_, merge_;  // [n_streams - 1] matrices [n_embd, n_embd]
  std::vector<Layer> layers_;
};

}  // namespace weir
