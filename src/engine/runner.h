// SPDX-License-Identifier: Apache-2.0
// Runner: one forward pass over a batch of segments, each with its own pot. A single session is a batch of one.
//
// All working memory (activations, attention scratch, hidden states, logits) is reserved when the runner is made, for
// batches of up to max_rows rows over pots of up to max_slots slots.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/ledger.h"
#include "base/memory.h"
#include "kv/attend.h"
#include "model/architecture.h"

namespace weir {

struct RunnerShape {
  int64_t max_rows = 0;   // rows of the largest batch
  int64_t max_slots = 0;  // slots of the largest head of a pot
  int64_t n_context =
      0;             // slots of a pot without those of excerpts: selects the model's rotary factors (RopeTable::Make)
  bool nll = false;  // HeadNll() will be called
  bool statistics = false;  // batch items will carry evidence calls
};

// A pass through some layers only. The one that begins with layer 0 takes the rows' slots, in all layers.
struct LayerPart {
  int32_t begin = 0, end = 0;  // as ForwardArgs::first_layer, end_layer
  // begin > 0: the stream that enters it, in memory of the backend, and which rows of it these are.
  const float* stream = nullptr;
  std::span<const int32_t> picked;
  int64_t n_after = 0;  // slots taken after those of these rows
  bool all() const { return begin == 0 && end == 0; }
};

// New tokens of one pot.
struct BatchItem {
  Pot* pot = nullptr;
  std::span<const SlotMeta> tokens;        // in stream order; token_id >= 0, or below with embeddings
  const EvidenceCall* evidence = nullptr;  // statistics to take of these rows
  // [tokens.size(), n_embd]: rows used in place of token embeddings (visual tokens). Such an item must be the only one
  // in its batch.
  const float* embeddings = nullptr;
  const std::vector<int32_t>* reads = nullptr;  // as BatchSegment::reads
  const AttentionWatch* watch = nullptr;        // as BatchSegment::watch
  int64_t pos_shift = 0, video_time = 0;        // as those of BatchSegment
  bool last_hidden_only = false;                // hidden states of the rows before the last are not needed
  // Every token is computed as if it were read alone, with the same bits. REQUIRES: what BatchSegment::n_before does,
  // no evidence, reads or watch.
  bool one_by_one = false;
  // Of an item that is alone in its batch: as Session::AppendOptions::between.
  const std::function<void()>* between = nullptr;
  // Not all(): the item must be the only one in its batch, of a model that can pause there.
  LayerPart part;
};

class Runner {
 public:
  static Result<std::unique_ptr<Runner>> Make(Model& model, Backend& backend, const RunnerShape& shape, Ledger& ledger);
  // Bytes that Make() reserves under kMeta and kWorkspace.
  static int64_t MetaBytes(const Model& model, const Backend& backend, const RunnerShape& shape);
  static int64_t WorkspaceBytes(const Model& model, const Backend& backend, const RunnerShape& shape);

  // Takes slots and runs the model. Every pot must have room for its tokens (otherwise kOverBudget, nothing changed).
  // Returns hidden states after the final norm, [rows, n_embd], rows in item order, in memory of the backend; valid
  // until the next call. With last_hidden_only, an item's earlier rows may be missing. Of a part that ends before the
  // last layer: the stream that leaves it.
  Result<const float*> Forward(std::span<const BatchItem> items, const TensorObserver* observer = nullptr);
  // Logits of n_rows hidden rows of n_embd floats, [n_rows, n_vocab], both in memory of the backend. REQUIRES: out has
  // room, n_rows <= max_rows.
  void Logits(const float* hidden, int64_t n_rows, float* out);
  // The largest of n_vocab logits in memory of the backend, in the order of ops/top_logits.h. REQUIRES: as many ids as
  // values, at most kMaxTopLogits.
  void TopLogits(const float* logits, std::span<int32_t> ids, std::span<float> values);
  // -log P(target[r] | hidden[r]); target -1 gives 0. REQUIRES: shape.nll, n_rows <= max_rows.
  void HeadNll(const float* hidden, const int32_t* target, int64_t n_rows, Normaliser normaliser, float* nll);

  const RunnerShape& shape() const { return shape_; }

 private:
  // Gathers the rows that enter a part.
  void PickRows(const LayerPart& part, float* out);

  Model* model_ = nullptr;
  Backend* backend_ = nullptr;
  RunnerShape shape_;
  std::unique_ptr<Attender> attender_;
  HostBuffer tokens_;
  Buffer hidden_, workspace_, head_scratch_;
  HostBuffer host_workspace_;
  std::vector<BatchSegment> segments_;
};

}  // namespace weir
