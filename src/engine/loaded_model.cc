// SPDX-License-Identifier: Apache-2.0
#include "engine/loaded_model.h"

#include <fmt/core.h>
#include <chrono>
#include <system_error>
#include <vector>

#include "base/crc32c.h"
#include "base/settle.h"
#include "engine/fingerprint.h"
#include "engine/plan_backend.h"

namespace weir {
namespace {

// The device that the options select.
Result<std::string> DeviceOf(const LoadModelOptions& options) {
  const std::string& device = options.device;
  if (device != "cpu" && device != "cuda" && device != "auto" && device != "ref") {
    return InvalidArgument("device '{}' is not known; known: cpu, cuda, auto, ref", device);
  }
  if (options.n_gpu_layers > 0 && (device == "cpu" || device == "ref")) {
    return InvalidArgument("{} GPU layers do not go with --device {}", options.n_gpu_layers, device);
  }
  if (options.n_gpu_layers == 0 && device == "cuda")
    return InvalidArgument("0 GPU layers do not go with --device cuda");
  return options.n_gpu_layers == 0 && device == "auto" ? std::string("cpu") : device;
}

// The file of packed weights of a model: a name from its own, and a key that changes with its parts.
std::unique_ptr<PackedFile> OpenPacked(const std::string& folder, const GgufFile& file) {
  const uint64_t hash = ModelHash(file);
  const std::string name = file.path().substr(file.path().find_last_of('/') + 1);
  const std::vector<int64_t> changed = file.changed_ns();
  const uint32_t times = Crc32c({reinterpret_cast<const uint8_t*>(changed.data()), changed.size() * sizeof(int64_t)});
  return PackedFile::Open(folder, fmt::format("{}-{:016x}", name, hash),
                          fmt::format("{:016x} {} {} {:08x}", hash, file.file_bytes(), changed[0], times),
                          file.file_bytes());
}

}  // namespace

Result<std::unique_ptr<LoadedModel>> LoadedModel::Load(const LoadModelOptions& options) {
  std::unique_ptr<LoadedModel> out(new LoadedModel);
  WEIR_ASSIGN_OR_RETURN(out->file_, GgufFile::Open(options.path));
  WEIR_ASSIGN_OR_RETURN(const std::string device, DeviceOf(options));
  if (device == "ref") {
    out->backend_ = MakeRefBackend();
  } else if (device != "cpu") {
    auto cuda = MakeCudaBackend(out->ledger_, options.cuda_graphs);
    if (!cuda.ok() && device == "cuda") return cuda.status();
    if (cuda.ok()) out->backend_ = std::move(*cuda);
    out->device_note_ = cuda.status().message();
  }
  if (out->backend_ == nullptr) {
    if (!options.plan_only) {
      out->packed_ =
          options.packed_folder.empty() ? PackedFile::None() : OpenPacked(options.packed_folder, *out->file_);
    }
    out->backend_ = MakeCpuBackend(options.n_threads, out->packed_.get());
  }
  if (!out->backend_->on_host()) out->host_backend_ = MakeCpuBackend(options.n_threads);
  if (options.plan_only) {
    out->backend_ = std::make_unique<PlanBackend>(std::move(out->backend_));
    if (out->host_backend_) out->host_backend_ = std::make_unique<PlanBackend>(std::move(out->host_backend_));
  }
  Result<std::unique_ptr<Model>> model = LoadModel(*out->file_, *out->backend_, out->ledger_);
  if (out->packed_ != nullptr) out->packed_->Finish(model.ok());
  WEIR_ASSIGN_OR_RETURN(out->model_, std::move(model));
  if (const std::string why = out->model_->config().no_pictures; !why.empty() && device == "auto") {
    out->device_note_ = why;
    out->model_.reset();
    out->backend_ = std::move(out->host_backend_);
    WEIR_ASSIGN_OR_RETURN(out->model_, LoadModel(*out->file_, *out->backend_, out->ledger_));
  }
  if (const int n_layers = out->model_->config().n_layers;
      options.n_gpu_layers > 0 && options.n_gpu_layers < n_layers) {
    return InvalidArgument(
        "{} of the model's {} layers on a device: a model is on one device as a whole; give 0, or {} or more",
        options.n_gpu_layers, n_layers, n_layers);
  }
  WEIR_ASSIGN_OR_RETURN(out->tokenizer_, Tokenizer::Load(*out->file_));
  out->stop_ = options.stop;
  if (out->packed_ != nullptr) out->SettleBeside();
  return out;
}

LoadedModel::~LoadedModel() {
  JoinSettling();
  WriteRest();
}

void LoadedModel::SettleBeside() {
  packed_note_ = packed_->note();
  keeps_weights_ = packed_->writing();
  if (!keeps_weights_ && !HasSlowHugePages()) return;
  try {
    settling_ = std::thread([this] {
      InPauses(enough_, [this] { return packed_->WriteSome(); });
      if (!HasSlowHugePages()) return;
      // What a program that soon ends would gain is less than it costs.
      const Clock::time_point later = Clock::now() + std::chrono::seconds(10);
      InPauses(enough_, [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        return Clock::now() < later;
      });
      for (const PackedFile::Kept& matrix : packed_->matrices()) {
        uint8_t* at = matrix.data;
        InPauses(enough_, [&] { return UseHugePage(&at, matrix.data + matrix.bytes); });
      }
    });
  } catch (const std::system_error&) {  // no thread: the destructor writes
  }
}

void LoadedModel::JoinSettling() {
  enough_ = true;
  if (settling_.joinable()) settling_.join();
}

void LoadedModel::WriteRest() {
  while (keeps_weights_ && !(stop_ != nullptr && stop_->load()) && packed_->WriteSome()) {
  }
}

void LoadedModel::Settle() {
  JoinSettling();
  WriteRest();
  if (packed_ == nullptr || !HasSlowHugePages()) return;
  for (auto [at, bytes] : packed_->matrices()) {
    for (const uint8_t* const end = at + bytes; UseHugePage(&at, end);) {
    }
  }
}

}  // namespace weir
