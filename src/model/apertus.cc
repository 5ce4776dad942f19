// weir-plugin: architecture
// SPDX-License-Identifier: Apache-2.0
// Apertus (arXiv 2509.14233, section 2): norms on the heads of q and k, and in place of a gated feed-forward part the
// activation xIELU, whose factors differ from layer to layer. Files have its two learned numbers as softplus takes
// them.
#include <cmath>
#include <string>
#include <vector>

#include "model/pre_norm_decoder.h"

namespace weir {
namespace {

// A number for each layer: a list, or one for all of them.
Result<std::vector<float>> ReadNumbers(const GgufFile& file, const std::string& key, int64_t n_layers) {
  std::vector<double> values;
  if (const std::vector<double>* list = file.FloatArray(key)) {
    values = *list;
  } else {
    WEIR_ASSIGN_OR_RETURN(const double value, file.Float(key));
    values.assign(static_cast<size_t>(n_layers), value);
  }
  if (std::ssize(values) != n_layers) {
    return Corrupt("{}: {} has {} numbers for {} layers", file.path(), key, values.size(), n_layers);
  }
  for (const double value : values) {
    if (!(std::abs(value) < 1000)) return Corrupt("{}: {} has the number {:g}", file.path(), key, value);
  }
  return std::vector<float>(values.begin(), values.end());
}

float Softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }

Result<std::unique_ptr<Model>> Load(const GgufFile& file, Backend& backend, Ledger& ledger) {
  PreNormDecoder::Options options;
  options.head_norms = true;
  options.gate = PreNormDecoder::Gate::kNoneXielu;
  WEIR_ASSIGN_OR_RETURN(const int64_t n_layers, BoundedInt(file, "apertus.block_count", 1, 1024));
  WEIR_ASSIGN_OR_RETURN(const std::vector<float> positive, ReadNumbers(file, "xielu.alpha_p", n_layers));
  WEIR_ASSIGN_OR_RETURN(const std::vector<float> negative, ReadNumbers(file, "xielu.alpha_n", n_layers));
  WEIR_ASSIGN_OR_RETURN(const std::vector<float> slope, ReadNumbers(file, "xielu.beta", n_layers));
  WEIR_ASSIGN_OR_RETURN(const std::vector<float> least, ReadNumbers(file, "xielu.eps", n_layers));
  for (size_t l = 0; l < positive.size(); ++l) {
    options.xielu.push_back({Softplus(positive[l]), slope[l] + Softplus(negative[l]), slope[l], least[l]});
  }
  auto model = std::make_unique<PreNormDecoder>(backend);
  WEIR_RETURN_IF_ERROR(model->LoadStandard(file, "apertus", options, ledger));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace

extern const ArchitectureInfo kApertus;
const ArchitectureInfo kApertus = {.name = "apertus", .models = "Apertus", .load = Load};

}  // namespace weir
