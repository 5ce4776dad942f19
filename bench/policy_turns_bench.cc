// SPDX-License-Identifier: Apache-2.0
// What two policies cost beside each other, with pots that are full all the time:
//
//   policy_turns_bench MODEL POT POLICY AGAINST [TOKENS] [CHUNKS] [ROUNDS]
//
// Both read the pot's slots and a chunk more. In each round they write TOKENS tokens one by one, in turns, and read
// CHUNKS chunks of a quarter of the pot, at most 256 tokens, in turns; evictions count. One thread, processor time:
// other work on the machine takes only caches and bandwidth, and from both alike. A line per round, then the ratios of
// all rounds together. tools/shapes/random_weights.py makes a MODEL.
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

[[noreturn]] void Fail(const Status& status) {
  std::fprintf(stderr, "policy_turns_bench: %s\n", status.message().c_str());
  std::exit(2);
}

class Side {
 public:
  Side(LoadedModel& model, const std::string& policy, int pot, int chunk) {
    SessionOptions options;
    auto spec = ParsePolicySpec(policy);
    if (!spec.ok()) Fail(spec.status());
    options.policy = std::move(spec).value();
    options.pot_slots = pot;
    options.chunk_rows = chunk;
    auto session = Session::Make(model.model(), model.backend(), options);
    if (!session.ok()) Fail(session.status());
    session_ = std::move(session).value();
  }
  // Seconds of reading tokens, or of writing one.
  double Take(const std::vector<int32_t>& tokens, bool generated) {
    Session::AppendOptions options;
    options.generated = generated;
    const double began = ProcessSeconds();
    Status status = session_->Append(tokens, options);
    if (status.ok() && generated) status = session_->Logits().status();
    if (!status.ok()) Fail(status);
    return ProcessSeconds() - began;
  }

 private:
  std::unique_ptr<Session> session_;
};

// [writing, reading][side], in `unit` seconds; what was not asked for is 0 or no number.
void Print(const double (&taken)[2][2], const char* unit) {
  const char* const names[2] = {"writing", "reading"};
  for (int what : {0, 1}) {
    if (!(taken[what][0] > 0)) continue;
    std::printf("%s%s %.3f %ss against %.3f, %.3f times as fast", what == 1 ? "; " : "", names[what], taken[what][0],
                unit, taken[what][1], taken[what][1] / taken[what][0]);
  }
  std::printf("\n");
  std::fflush(stdout);
}

int Run(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: policy_turns_bench MODEL POT POLICY AGAINST [TOKENS] [CHUNKS] [ROUNDS]\n");
    return 2;
  }
  const auto number = [&](int i, int fallback) { return argc > i ? std::atoi(argv[i]) : fallback; };
  const int pot = std::atoi(argv[2]), n_tokens = number(5, 64), n_chunks = number(6, 4), n_rounds = number(7, 3);
  const int chunk = std::min(256, pot / 4);
  LoadModelOptions load;
  load.path = argv[1];
  load.n_threads = 1;
  auto loaded = LoadedModel::Load(load);
  if (!loaded.ok()) Fail(loaded.status());
  LoadedModel& model = **loaded;
  Side sides[2] = {Side(model, argv[3], pot, chunk), Side(model, argv[4], pot, chunk)};
  Rng rng(1);
  const auto random = [&](int n) {
    std::vector<int32_t> tokens(static_cast<size_t>(n));
    for (int32_t& t : tokens)
      t = static_cast<int32_t>(rng.Below(static_cast<uint64_t>(model.model().config().n_vocab)));
    return tokens;
  };
  const std::vector<int32_t> first = random(pot + chunk);
  for (Side& side : sides) side.Take(first, false);
  double all[2][2] = {};  // [writing, reading][side]
  for (int round = 0; round < n_rounds; ++round) {
    double taken[2][2] = {};
    const auto in_turns = [&](bool generated, int n, int size) {
      for (int i = 0; i < n; ++i) {
        const std::vector<int32_t> tokens = random(size);
        for (const int j : {i % 2, 1 - i % 2}) taken[generated ? 0 : 1][j] += sides[j].Take(tokens, generated);
      }
    };
    in_turns(true, n_tokens, 1);
    in_turns(false, n_chunks, chunk);
    for (int what : {0, 1}) {
      for (int j : {0, 1}) all[what][j] += taken[what][j];
    }
    std::printf("round %d: ", round + 1);
    Print(taken, "");
  }
  std::printf("%s beside %s, pot %d, a token: ", argv[3], argv[4], pot);
  const double n[2] = {1e3 / (n_rounds * n_tokens), 1e3 / (n_rounds * n_chunks * chunk)};
  for (int what : {0, 1}) {
    for (int j : {0, 1}) all[what][j] *= n[what];
  }
  Print(all, "m");
  return 0;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) { return weir::Run(argc, argv); }
