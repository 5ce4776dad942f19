// SPDX-License-Identifier: Apache-2.0
// Architectures: what a model file's tensors mean.
//
// To add one, add a file src/model/my_arch.cc whose first line is `// weir-plugin: architecture` and which defines
// `extern const ArchitectureInfo kMyArch` (docs/recipes/add-a-model.md). Its name is the file's general.architecture.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/backend.h"
#include "base/memory.h"
#include "base/status.h"
#include "io/gguf.h"
#include "kv/attend.h"

namespace weir {

// The properties of every architecture.
struct ModelConfig {
  std::string architecture, name;
  int32_t n_layers = 0, n_embd = 0, n_ff = 0, n_vocab = 0;
  int32_t n_ctx_train = 0;  // longest context it was trained with
  AttentionLayout attention;
  // A picture's row has, after the numbers of an embedding, as many again for each of the first n_deepstack layers:
  // they are added to the stream after that layer.
  int32_t n_deepstack = 0;
  int32_t row_width() const { return n_embd * (1 + n_deepstack); }
  std::string no_pictures;  // why rows of pictures cannot be read on this backend; empty: they can
  float logit_softcap = 0;  // > 0: logits are logit_softcap * tanh(x / logit_softcap) of the head's output x
};

// Receives named intermediates during a forward pass: ("blk.3.attn_out", rows, columns, data in host memory). Names are
// listed in docs/recipes/add-a-model.md; any tensor can be compared with a reference implementation.
using TensorObserver = std::function<void(const std::string& name, int64_t n_rows, int64_t n_cols, const float* data)>;

// Shows rows of the backend's memory to an observer.
void Observe(Backend& backend, const TensorObserver& observer, const std::string& name, int64_t n_rows, int64_t n_cols,
             const float* data);

// One forward pass over a batch of rows whose slots were taken and whose attention was planned.
struct ForwardArgs {
  Attender* attender = nullptr;
  const int32_t* tokens = nullptr;    // [n_rows], or nullptr when embeddings are given
  const float* embeddings = nullptr;  // [n_rows, row_width()] in host memory: visual tokens
  int64_t n_rows = 0;
  // Only layers [first_layer, end_layer); 0: to the last. Behind layer 0 `hidden` holds the stream that enters the
  // first, and neither tokens nor embeddings are given; before the last layer it receives the stream that leaves the
  // last of them. REQUIRES, if not all: Model::CanPause() of both ends.
  int32_t first_layer = 0, end_layer = 0;
  float* hidden = nullptr;  // out: [n_rows, n_embd], after the final norm: the head's input
  // Rows before it need no hidden state, only their keys and values: a model may drop them after the last layer's
  // attention, and their output is undefined. 0 with an observer.
  int64_t first_hidden = 0;
  uint8_t* workspace = nullptr;       // WorkspaceBytes(n_rows) bytes, 64-byte aligned
  uint8_t* host_workspace = nullptr;  // HostWorkspaceBytes(n_rows) bytes, 64-byte aligned
  const TensorObserver* observer = nullptr;
};

// Immutable after loading; shared by all sessions.
class Model {
 public:
  virtual ~Model() = default;
  const ModelConfig& config() const { return config_; }
  // Projection to the vocabulary [n_vocab, n_embd] (the embedding table itself when tied), its bias or nullptr.
  virtual const Matrix& head() const = 0;
  virtual const float* head_bias() const { return nullptr; }
  // Bytes of weights that one token reads (prepared form), for bandwidth figures.
  virtual int64_t WeightBytesPerToken() const = 0;

  virtual int64_t WorkspaceBytes(int64_t max_rows) const = 0;
  // Of more, in the host's memory whatever the backend.
  virtual int64_t HostWorkspaceBytes(int64_t /*max_rows*/) const { return 0; }
  virtual void Forward(const ForwardArgs& args) = 0;
  // Whether rows may wait before this layer (above 0), with nothing but the stream between layers.
  virtual bool CanPause(int32_t /*layer*/) const { return false; }

 protected:
  ModelConfig config_;
};

struct ArchitectureInfo {
  const char* name;    // = file name = general.architecture
  const char* models;  // well-known models of the family, for `weir info` and messages
  // Checks the metadata, binds every tensor (a missing or unknown one is an error that names it) and prepares the
  // weights in `backend`. Bytes are reserved in `ledger`.
  Result<std::unique_ptr<Model>> (*load)(const GgufFile& file, Backend& backend, Ledger& ledger);
};

// Every architecture of the folder, sorted by name. (Generated.)
std::span<const ArchitectureInfo* const> AllArchitectureInfos();

// Finds the file's architecture and loads it. kUnsupported names an unknown architecture and lists the known ones;
// errors in a file of a known one name the architecture too.
Result<std::unique_ptr<Model>> LoadModel(const GgufFile& file, Backend& backend, Ledger& ledger);

}  // namespace weir
