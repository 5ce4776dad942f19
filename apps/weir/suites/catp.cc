// weir-plugin: suite
// SPDX-License-Identifier: Apache-2.0
// weir eval catp: questions about pruned pictures, with the variants of CATP and its baselines.
#include <fmt/core.h>
#include <memory>

#include "suites/suite.h"
#include "suites/vqa_flags.h"

namespace weir::app {
namespace {

// The table of the CATP paper: share kept, pruner, and voting layers.
Result<std::vector<PruneRun>> CatpRuns(const Encoder& encoder, const std::vector<double>& keeps) {
  const int32_t n_layers = encoder.ShapeOf(SignalKind::kQueryCross).n_layers;
  if (n_layers == 0) {
    return Unsupported("catp ranks the queries of a Q-Former by their cross-attention; this encoder has none");
  }
  std::vector<std::string> methods = {"catp:layers=all", "catp:layers=all,weights=image", "catp:layers=first"};
  for (int32_t layer = 1; layer < n_layers; ++layer) methods.push_back(fmt::format("catp:layers={}", layer));
  methods.insert(methods.end(), {"l2", "self_attention", "self_attention:cascade=on"});
  std::vector<std::string> list = {"none"};
  for (const std::string& method : methods) {
    for (const double keep : keeps) {
      if (keep < 1)
        list.push_back(method + (method.find(':') == std::string::npos ? ":" : ",") + "keep=" + NumberText(keep));
    }
  }
  std::string joined;
  for (const std::string& one : list) joined += one + ";";
  return PruneRunsOf({joined});
}

Action AddCatp(CLI::App& sub) {
  auto flags = std::make_shared<VqaFlags>();
  auto keeps = std::make_shared<std::vector<double>>(std::vector<double>{0.5, 0.25, 0.125});
  AddVqaFlags(sub, flags.get(), "full");
  sub.add_option("--keep", *keeps, "shares of a picture's rows to keep; keeping all rows is always run too")
      ->delimiter(',')
      ->check(CLI::Range(1e-6, 1.0).description(""))
      ->capture_default_str();
  return [=] {
    return RunPictureExam(flags->run, MakeVqaExam("catp", *flags),
                          [keeps](const Encoder& encoder) { return CatpRuns(encoder, *keeps); });
  };
}

}  // namespace

extern const SuiteInfo kCatp;
const SuiteInfo kCatp = {
    .name = "catp", .summary = "vqa with pruned pictures: CATP's variants against its baselines", .add = AddCatp};

}  // namespace weir::app
