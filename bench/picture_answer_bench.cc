// SPDX-License-Identifier: Apache-2.0
// What a token of an answer about a picture costs when a policy stores and reads a part of the picture's slots, against
// the whole cache:
//
//   picture_answer_bench MODEL [PICTURE ROWS] [TOKENS] [POLICY] [CORE]
//
// 40 tokens, so many rows of a picture and 24 tokens are read, then both sessions write tokens in turns, on one thread.
// Processor time, so other work on the machine takes only caches and bandwidth; the edge of the fastest quarter of
// either, for each place in the policy's cycle. Beside them, memory is read in order. The bound is what a step must
// read, weights and the slots it attends to, at that rate: all that is stored at a cycle's first step, at the others
// the text and a share CORE (default 0.3) of the picture. Values of weights and rows do not matter:
// tools/shapes/random_weights.py makes a MODEL.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/loaded_model.h"
#include "engine/session.h"
#include "processor_time.h"

namespace weir {
namespace {

constexpr size_t kBefore = 40, kAfter = 24;

[[noreturn]] void Fail(const Status& status) {
  std::fprintf(stderr, "picture_answer_bench: %s\n", status.message().c_str());
  std::exit(2);
}

double Quartile(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<int64_t>(x.size() / 4), x.end());
  return x[x.size() / 4];
}

// A session that has read a prompt with a picture.
class Answer {
 public:
  Answer(LoadedModel& model, const std::string& policy, const std::vector<float>& rows, int n_tokens) {
    SessionOptions options;
    auto spec = ParsePolicySpec(policy);
    if (!spec.ok()) Fail(spec.status());
    options.policy = std::move(spec).value();
    const size_t n_rows = rows.size() / static_cast<size_t>(model.model().config().n_embd);
    options.pot_slots = static_cast<int32_t>(n_rows + kBefore + kAfter) + n_tokens + 1;
    auto session = Session::Make(model.model(), model.backend(), options);
    if (!session.ok()) Fail(session.status());
    session_ = std::move(session).value();
    const std::vector<int32_t> tokens(kBefore + kAfter, 5);
    Session::AppendOptions question;
    question.end_of_prompt = true;
    Status status = session_->Append({tokens.data(), kBefore});
    if (status.ok()) status = session_->AppendEmbeddings(rows, Modality::kImage, {});
    if (status.ok()) status = session_->Append({tokens.data(), kAfter}, question);
    if (!status.ok()) Fail(status);
  }

  void Write() {
    const int32_t token = 7;
    Session::AppendOptions options;
    options.generated = true;
    const double began = ProcessSeconds();
    Status status = session_->Append({&token, 1}, options);
    if (status.ok()) status = session_->Logits().status();
    if (!status.ok()) Fail(status);
    seconds_.push_back(ProcessSeconds() - began);
  }

  // Milliseconds of a token, as the mean over the places in a cycle of `every` steps.
  double Milliseconds(int every) const {
    double sum = 0;
    for (int place = 0; place < every; ++place) {
      std::vector<double> of_place;
      for (size_t i = static_cast<size_t>(place); i < seconds_.size(); i += static_cast<size_t>(every)) {
        of_place.push_back(seconds_[i]);
      }
      sum += Quartile(of_place);
    }
    return 1e3 * sum / every;
  }
  double held(int layer) const { return static_cast<double>(session_->pot().meta(layer).size()); }

 private:
  std::unique_ptr<Session> session_;
  std::vector<double> seconds_;
};

int Run(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: picture_answer_bench MODEL [PICTURE ROWS] [TOKENS] [POLICY] [CORE]\n");
    return 2;
  }
  const int n_rows = argc > 2 ? std::atoi(argv[2]) : 2880, n_tokens = argc > 3 ? std::atoi(argv[3]) : 36;
  const std::string policy = argc > 4 ? argv[4] : "a_vl:S=0.45,C=0.3,K=3";
  LoadModelOptions load;
  load.path = argv[1];
  load.n_threads = 1;
  auto loaded = LoadedModel::Load(load);
  if (!loaded.ok()) Fail(loaded.status());
  LoadedModel& model = **loaded;
  const ModelConfig& config = model.model().config();
  Rng rng(1);
  std::vector<float> rows(static_cast<size_t>(n_rows) * static_cast<size_t>(config.n_embd));
  for (float& value : rows) value = static_cast<float>(rng.Uniform() - 0.5) * 0.1f;
  const int every =
      std::max(1, std::move(std::move(ParsePolicySpec(policy)).value().Make()).value()->Needs().read_every);
  Answer full(model, "full", rows, n_tokens), part(model, policy, rows, n_tokens);
  std::vector<uint64_t> memory(size_t{32} << 20, 1);  // 256 MiB
  double least_read = 1e30;
  uint64_t sum = 0;
  for (int i = 0; i < n_tokens; ++i) {
    full.Write();
    part.Write();
    if (i % every != 0) continue;
    const double began = ProcessSeconds();
    sum += std::accumulate(memory.begin(), memory.end(), uint64_t{0});
    least_read = std::min(least_read, ProcessSeconds() - began);
  }
  const double rate = static_cast<double>(memory.size() * sizeof(uint64_t)) / least_read;
  const AttentionLayout& a = config.attention;
  const double slot_bytes = 4.0 * static_cast<double>(a.n_kv_heads * a.head_dim) * config.n_layers,
               weights = static_cast<double>(model.model().WeightBytesPerToken());
  // New slots aside.
  const double text = static_cast<double>(kBefore + kAfter), stored = part.held(config.n_layers - 1) - n_tokens;
  const double core = std::min(stored, text + std::floor((argc > 5 ? std::atof(argv[5]) : 0.3) * n_rows));
  const double attended = (stored + (every - 1) * core) / every, whole = text + n_rows;
  const double f = full.Milliseconds(every), p = part.Milliseconds(every);
  const double f_bound = 1e3 * (weights + slot_bytes * whole) / rate,
               p_bound = 1e3 * (weights + slot_bytes * attended) / rate;
  std::printf("%d layers, weights %.0f MB, memory in order %.1f GB/s (%llu)\n", config.n_layers, weights / 1e6,
              rate / 1e9, static_cast<unsigned long long>(sum & 1));
  std::printf("full: %.0f slots, %.2f ms a token, bound %.2f (%.2f times)\n", whole, f, f_bound, f / f_bound);
  std::printf(
      "%s: %.0f slots stored, %.0f attended to, %.2f ms a token, bound %.2f (%.2f times); of full's %.3f, by "
      "bytes %.3f\n",
      policy.c_str(), stored, attended, p, p_bound, p / p_bound, p / f, p_bound / f_bound);
  return 0;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) { return weir::Run(argc, argv); }
