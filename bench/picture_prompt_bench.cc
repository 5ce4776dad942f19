// SPDX-License-Identifier: Apache-2.0
// What reading a prompt with a picture costs when the rows that a policy drops end behind its first layers, against the
// same prompt with every row in every layer:
//
//   picture_prompt_bench MODEL [PICTURE ROWS] [ROUNDS] [POLICY]
//
// 40 tokens, so many rows of a picture, 24 tokens; POLICY (default fastv:K=2,R=0.5) with rows=kept and rows=all in
// turns. Processor time of all threads, so other work on the machine matters little; the least of each is compared.
// Values of weights and rows do not matter: tools/shapes/random_weights.py makes a MODEL. `operations` is what the
// products of the layers and attention of so many rows need, all rows against those that the last layer holds: POLICY
// should drop nothing else when the prompt ends (a_vl:S=1,C=1,P=0.9).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/loaded_model.h"
#include "engine/session.h"
#include "processor_time.h"

namespace weir {
namespace {

constexpr size_t kBefore = 40, kAfter = 24;

// Multiplications of n rows in one layer.
double LayerWork(const ModelConfig& config, double n) {
  const AttentionLayout& a = config.attention;
  const double d = config.n_embd, q = static_cast<double>(a.n_heads) * a.head_dim,
               kv = static_cast<double>(a.n_kv_heads) * a.head_dim;
  return n * d * (2 * q + 2 * kv + 3.0 * config.n_ff) + n * n * q;
}

[[noreturn]] void Fail(const Status& status) {
  std::fprintf(stderr, "picture_prompt_bench: %s\n", status.message().c_str());
  std::exit(2);
}

struct Reading {
  double seconds = 0;
  size_t n_held = 0;  // in the last layer
};

Reading Read(Model& model, Backend& backend, const std::string& policy, const std::vector<float>& rows) {
  SessionOptions options;
  auto spec = ParsePolicySpec(policy);
  if (!spec.ok()) Fail(spec.status());
  options.policy = std::move(spec).value();
  const size_t n_rows = rows.size() / static_cast<size_t>(model.config().n_embd);
  options.pot_slots = static_cast<int32_t>(n_rows + kBefore + kAfter + 32);
  auto session = Session::Make(model, backend, options);
  if (!session.ok()) Fail(session.status());
  const std::vector<int32_t> tokens(kBefore + kAfter, 5);
  Session::AppendOptions question;
  question.end_of_prompt = true;
  const double began = ProcessSeconds();
  Status status = (*session)->Append({tokens.data(), kBefore});
  if (status.ok()) status = (*session)->AppendEmbeddings(rows, Modality::kImage, {});
  if (status.ok()) status = (*session)->Append({tokens.data(), kAfter}, question);
  if (status.ok()) status = (*session)->Logits().status();
  if (!status.ok()) Fail(status);
  return {ProcessSeconds() - began, (*session)->pot().meta(model.config().n_layers - 1).size()};
}

int Run(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: picture_prompt_bench MODEL [PICTURE ROWS] [ROUNDS] [POLICY]\n");
    return 2;
  }
  const int n_rows = argc > 2 ? std::atoi(argv[2]) : 576, n_rounds = argc > 3 ? std::atoi(argv[3]) : 3;
  const std::string policy = argc > 4 ? argv[4] : "fastv:K=2,R=0.5";
  LoadModelOptions load;
  load.path = argv[1];
  auto model = LoadedModel::Load(load);
  if (!model.ok()) Fail(model.status());
  const ModelConfig& config = (*model)->model().config();
  Rng rng(1);
  std::vector<float> rows(static_cast<size_t>(n_rows) * static_cast<size_t>(config.n_embd));
  for (float& value : rows) value = static_cast<float>(rng.Uniform() - 0.5) * 0.1f;
  double least[2] = {1e30, 1e30};
  Reading reading[2];
  for (int round = 0; round < n_rounds; ++round) {
    for (const int all : {0, 1}) {
      reading[all] =
          Read((*model)->model(), (*model)->backend(), policy + (all != 0 ? ",rows=all" : ",rows=kept"), rows);
      least[all] = std::min(least[all], reading[all].seconds);
      std::printf("round %d rows=%s %.2f s of processor time\n", round + 1, all != 0 ? "all " : "kept",
                  reading[all].seconds);
      std::fflush(stdout);
    }
  }
  const PolicySpec spec = std::move(ParsePolicySpec(policy)).value();
  const double n_all = static_cast<double>(kBefore + kAfter) + n_rows, n_kept = static_cast<double>(reading[0].n_held),
               first = std::move(spec.Make()).value()->Needs().filter_layers, depth = config.n_layers;
  const double whole = depth * LayerWork(config, n_all),
               part = first * LayerWork(config, n_all) + (depth - first) * LayerWork(config, n_kept);
  std::printf("%s, %d rows of a picture, %.0f of %.0f rows go on: %.2f s against %.2f s, %.2f times; operations %.2f\n",
              policy.c_str(), n_rows, n_kept, n_all, least[0], least[1], least[1] / least[0], whole / part);
  return 0;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) { return weir::Run(argc, argv); }
