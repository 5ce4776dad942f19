#include "engine/loaded_model.h"

#include "engine/plan_backend.h"

namespace weir {

Result<std::unique_ptr<LoadedModel>> LoadedModel::Load(const LoadModelOptions& options) {
  std::unique_ptr<LoadedModel> out(new LoadedModel);
  WEIR_ASSIGN_OR_RETURN(out->file_, GgufFile::Open(options.path));
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
  // The prepared weights replace the mapped ones: they are not held twice.
  out->file_->ReleasePages();
  return out;
}

}  // namespace weir
