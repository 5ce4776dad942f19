#include "engine/loaded_model.h"

#include "engine/plan_backend.h"

namespace weir {
namespace {

// Large models are also handed out in several files; each of them says how many there are.
Status CheckWhole(const GgufFile& file) {
  WEIR_ASSIGN_OR_RETURN(const int64_t n_files, file.IntOr("split.count", 1));
  if (n_files <= 1) return Status();
  return Unsupported("%s: one of %lld files of a split model; join them first (llama-gguf-split --merge)",
                     file.path().c_str(), static_cast<long long>(n_files));
}

}  // namespace

Result<std::unique_ptr<LoadedModel>> LoadedModel::Load(const LoadModelOptions& options) {
  std::unique_ptr<LoadedModel> out(new LoadedModel);
  WEIR_ASSIGN_OR_RETURN(out->file_, GgufFile::Open(options.path));
  WEIR_RETURN_IF_ERROR(CheckWhole(*out->file_));
  if (options.device == "cpu") {
    out->backend_ = MakeCpuBackend(options.n_threads);
  } else if (options.device == "ref") {
    out->backend_ = MakeRefBackend();
  } else {
    return InvalidArgument("device '%s' is not in this build; known: cpu, ref", options.device.c_str());
  }
  if (options.plan_only) out->backend_ = std::make_unique<PlanBackend>(std::move(out->backend_));
  WEIR_ASSIGN_OR_RETURN(out->model_, LoadModel(*out->file_, *out->backend_, out->ledger_));
  WEIR_ASSIGN_OR_RETURN(out->tokenizer_, Tokenizer::Load(*out->file_));
  return out;
}

}  // namespace weir
