// SPDX-License-Identifier: Apache-2.0
// A loaded model file: mapped, checked, bound to its architecture, weights prepared, tokenizer loaded.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "backend/backend.h"
#include "backend/packed_file.h"
#include "base/ledger.h"
#include "base/status.h"
#include "io/gguf.h"
#include "model/architecture.h"
#include "text/tokenizer.h"

namespace weir {

struct LoadModelOptions {
  std::string path;
  int n_threads = 0;  // 0: one per usable core
  // "cpu"; "cuda" (kUnsupported if there is none); "auto": cuda if available, else cpu; "ref": the scalar reference.
  std::string device = "cpu";
  // Layers on the device, as other programs count them. All or none: 0 is the CPU, the model's number of layers or more
  // is the device; anything in between is kInvalidArgument. Negative: as `device` says.
  int n_gpu_layers = -1;
  // As for MakeCudaBackend().
  bool cuda_graphs = true;
  // Checks and sizes everything without preparing any weights, for `weir plan` and `weir info`. Such a model knows its
  // sizes but cannot run.
  bool plan_only = false;
  // A folder for weights that are packed for the CPU (backend/packed_file.h); empty: none. Not used by other devices.
  std::string packed_folder;
  // Or nullptr: once it is true, the destructor does not wait until packed weights are on the disk, and drops them.
  const std::atomic<bool>* stop = nullptr;
};

class LoadedModel {
 public:
  static Result<std::unique_ptr<LoadedModel>> Load(const LoadModelOptions& options);
  // Waits until packed weights are on the disk, if they are being kept.
  ~LoadedModel();

  // The model runs at once; a thread goes on in its pauses with what later starts and long runs gain from: it writes
  // packed weights to their folder and puts pages of weights together. Settle() does the rest of both now; for
  // measurements.
  void Settle();

  const GgufFile& file() const { return *file_; }
  Backend& backend() const { return *backend_; }
  // The backend itself if it is a CPU backend, else an additional CPU backend, for parts that need host memory
  // (EncoderInfo::host_only).
  Backend& host_backend() const { return host_backend_ ? *host_backend_ : *backend_; }
  // Why "auto" did not find a device; empty if it did or "auto" was not used.
  const std::string& device_note() const { return device_note_; }
  // Whether weights were mapped as an earlier start packed them, and why packed_folder is of no use; empty if it is.
  bool maps_weights() const { return packed_ != nullptr && packed_->reading(); }
  const std::string& packed_note() const { return packed_note_; }
  // Whether this start keeps packed weights for the next.
  bool keeps_weights() const { return keeps_weights_; }
  Model& model() const { return *model_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // Bytes of the prepared weights.
  const Ledger& ledger() const { return ledger_; }

 private:
  LoadedModel() = default;
  void SettleBeside();
  void JoinSettling();
  void WriteRest();

  Ledger ledger_;                       // first: outlives the weights
  std::unique_ptr<PackedFile> packed_;  // or nullptr; as well
  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<Backend> backend_, host_backend_;
  std::string device_note_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Tokenizer> tokenizer_;

  std::string packed_note_;
  bool keeps_weights_ = false;
  const std::atomic<bool>* stop_ = nullptr;  // the caller's
  std::atomic<bool> enough_{false};          // ends the thread
  std::thread settling_;
};

}  // namespace weir
