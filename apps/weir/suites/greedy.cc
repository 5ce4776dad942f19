// weir-plugin: suite
// SPDX-License-Identifier: Apache-2.0
// weir eval greedy: ids and logits for comparisons with other programs.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "io/json.h"
#include "print.h"
#include "suites/exam.h"
#include "suites/suite.h"

namespace weir::app {
namespace {

// Greedy ids and the two leading logits of every step, for comparisons with other programs (tools/peer/parity.py).
Status Greedy(const ModelFlags& model_flags, const PotFlags& pot_flags, const std::vector<int32_t>& ids, int n) {
  WEIR_ASSIGN_OR_RETURN(const SessionOptions options, ToSessionOptions(pot_flags));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model, Load(model_flags));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                        Session::Make(model->model(), model->backend(), options));
  WEIR_RETURN_IF_ERROR(session->Append(ids));
  nlohmann::ordered_json out;
  for (int i = 0; i < n; ++i) {
    WEIR_ASSIGN_OR_RETURN(const std::span<float> logits, session->Logits());
    int32_t best = 0, second = -1;
    for (int32_t v = 1; v < static_cast<int32_t>(logits.size()); ++v) {
      if (logits[v] > logits[best]) {
        second = best;
        best = v;
      } else if (second < 0 || logits[v] > logits[second]) {
        second = v;
      }
    }
    out["ids"].push_back(best);
    out["top"].push_back({logits[best], second < 0 ? logits[best] : logits[second]});
    WEIR_RETURN_IF_ERROR(session->Append({&best, 1}));
  }
  Print(stdout, "{}\n", JsonText(out));
  return Status();
}

Action AddGreedy(CLI::App& sub) {
  auto model = std::make_shared<ModelFlags>();
  auto pot = std::make_shared<PotFlags>();
  auto ids = std::make_shared<std::vector<int32_t>>();
  auto n = std::make_shared<int>(128);
  AddModelFlags(sub, model.get());
  AddPotFlags(sub, pot.get());
  sub.add_option("--ids", *ids, "token ids to read first, separated by commas")->required()->delimiter(',');
  sub.add_option("-n,--predict", *n, "tokens to write")->check(Between(1, 1 << 20))->capture_default_str();
  return [=] { return Greedy(*model, *pot, *ids, *n); };
}

}  // namespace

extern const SuiteInfo kGreedy;
const SuiteInfo kGreedy = {
    .name = "greedy", .summary = "continue token ids greedily and print ids and top logits", .add = AddGreedy};

}  // namespace weir::app
