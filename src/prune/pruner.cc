// SPDX-License-Identifier: Apache-2.0
// The registry's look-up, the text form of a pruner, and the choice of rows that all of them share.
#include "prune/pruner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace weir {

const PrunerInfo* FindPruner(std::string_view name) {
  for (const PrunerInfo* info : AllPrunerInfos()) {
    if (name == info->name) return info;
  }
  return nullptr;
}

Result<PrunerSpec> ParsePrunerSpec(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  PrunerSpec spec;
  spec.info = FindPruner(name);
  if (spec.info == nullptr) {
    std::string known;
    for (const PrunerInfo* info : AllPrunerInfos()) known += (known.empty() ? "" : ", ") + std::string(info->name);
    return NotFound("no pruner is called '{}'; there are: {}", name, known);
  }
  std::vector<OptionInfo> options = {kKeepOption};
  options.insert(options.end(), spec.info->options.begin(), spec.info->options.end());
  const OptionOwner owner = {"pruner", spec.info->name, options};
  spec.options = Options::Defaults(owner);
  if (colon != std::string_view::npos) {
    WEIR_ASSIGN_OR_RETURN(const std::vector<GivenOption> given, SplitOptions(owner, text.substr(colon + 1)));
    for (const GivenOption& option : given) {
      WEIR_RETURN_IF_ERROR(spec.options.Set(owner, *option.option, option.value));
    }
  }
  // Checks that only the pruner itself can make.
  WEIR_RETURN_IF_ERROR(spec.Make().status());
  spec.text = spec.options.Describe(owner);
  return spec;
}

int64_t RowsKept(int64_t n_rows, double keep) {
  const auto n = static_cast<int64_t>(std::floor(static_cast<double>(n_rows) * keep + 0.5));
  return std::clamp<int64_t>(n, std::min<int64_t>(1, n_rows), n_rows);
}

void KeepMostImportant(std::span<const double> importance, int64_t n_keep, KeepSet* keep) {
  keep->resize(importance.size());
  std::iota(keep->begin(), keep->end(), 0);
  // With a NaN, sorting would have no order.
  const auto rank = [&](int32_t row) {
    return std::isnan(importance[row]) ? -std::numeric_limits<double>::infinity() : importance[row];
  };
  std::sort(keep->begin(), keep->end(),
            [&](int32_t a, int32_t b) { return rank(a) != rank(b) ? rank(a) > rank(b) : a < b; });
  keep->resize(static_cast<size_t>(n_keep));
  std::sort(keep->begin(), keep->end());
}

}  // namespace weir
