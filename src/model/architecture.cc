// SPDX-License-Identifier: Apache-2.0
#include "model/architecture.h"

#include <fmt/core.h>
#include <vector>

namespace weir {

void Observe(Backend& backend, const TensorObserver& observer, const std::string& name, int64_t n_rows, int64_t n_cols,
             const float* data) {
  if (backend.on_host()) return observer(name, n_rows, n_cols, data);
  std::vector<float> copy(static_cast<size_t>(n_rows * n_cols));
  backend.Copy(copy.data(), data, n_rows * n_cols * 4);
  observer(name, n_rows, n_cols, copy.data());
}

Result<std::unique_ptr<Model>> LoadModel(const GgufFile& file, Backend& backend, Ledger& ledger) {
  WEIR_ASSIGN_OR_RETURN(const std::string name, file.String("general.architecture"));
  if (name == "clip") {
    return InvalidArgument("{} is a vision encoder; it goes with --mmproj, beside its language model", file.path());
  }
  std::string known;
  for (const ArchitectureInfo* info : AllArchitectureInfos()) {
    if (name == info->name) {
      auto model = info->load(file, backend, ledger);
      const StatusCode code = model.status().code();
      if (code != StatusCode::kNotFound && code != StatusCode::kCorrupt && code != StatusCode::kUnsupported)
        return model;
      // The error names the architecture whose rules the file breaks.
      return Status(
          code, fmt::format("{} (read as architecture '{}': {})", model.status().message(), info->name, info->models));
    }
    known += (known.empty() ? "" : ", ") + std::string(info->name);
  }
  return Unsupported("{}: architecture '{}' is not supported; this build knows: {}", file.path(), name, known);
}

}  // namespace weir
