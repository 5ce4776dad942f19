// SPDX-License-Identifier: Apache-2.0
// Any bytes as the state of a session: refused, or restored to a session that continues and can be saved and restored
// again.
//
// Input: one byte choosing policy and cache type, one how the rest is meant: the state itself, or changes to a good one
// (four bytes of place, one of value, each), without which no input gets far.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "backend/backend.h"
#include "engine/session.h"
#include "io/gguf.h"
#include "support/build_paths.h"

namespace {

using weir::Session;

void Require(const weir::Status& status) {
  if (!status.ok()) std::abort();
}

// A session that has read for a while, its saved state, and a second session.
struct Pair {
  std::unique_ptr<Session> session, other;
  std::vector<uint8_t> good;
};

class Sessions {
 public:
  Sessions() {
    auto file = weir::GgufFile::Open(weir::SourceDir() + "/tests/golden/models/llama.gguf");
    Require(file.status());
    auto model = weir::LoadModel(**file, *backend_, ledger_);
    Require(model.status());
    model_ = std::move(model).value();
    std::vector<int32_t> tokens(60);
    std::iota(tokens.begin(), tokens.end(), 3);
    for (const char* policy : {"streaming_llm", "h2o", "adakv", "infinipot", "weir", "sirllm"}) {
      for (const weir::DType type : {weir::DType::kF16, weir::DType::kF32}) {
        Pair pair{Make(policy, type), Make(policy, type), {}};
        Session::AppendOptions pinned;
        pinned.pinned = true;
        Require(pair.session->Append({tokens.data(), 3}, pinned));
        Require(pair.session->Append(tokens));
        Require(pair.session->Save(&pair.good));
        pairs_.push_back(std::move(pair));
      }
    }
  }
  Pair& Get(uint8_t which) { return pairs_[which % pairs_.size()]; }

 private:
  std::unique_ptr<Session> Make(const char* policy, weir::DType type) {
    weir::SessionOptions options;
    auto spec = weir::ParsePolicySpec(policy);
    Require(spec.status());
    options.policy = *std::move(spec);
    options.pot_slots = 32;
    options.probe = {1, 2};
    options.k_type = options.v_type = type;
    auto session = Session::Make(*model_, *backend_, options);
    Require(session.status());
    return *std::move(session);
  }
  weir::Ledger ledger_;
  std::unique_ptr<weir::Backend> backend_ = weir::MakeCpuBackend(1);
  std::unique_ptr<weir::Model> model_;
  std::vector<Pair> pairs_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Sessions sessions;
  if (size < 2) return 0;
  Pair& pair = sessions.Get(data[0]);
  std::vector<uint8_t> state(data + 2, data + size);
  if (data[1] % 4 != 0) {
    state = pair.good;
    for (size_t at = 2; at + 5 <= size; at += 5) {
      uint32_t place;
      std::memcpy(&place, data + at, 4);
      state[place % state.size()] = data[at + 4];
    }
  }
  pair.session->Reset();
  if (!pair.session->Restore(state).ok()) return 0;
  if (pair.session->n_seen() > int64_t{1} << 59 || pair.session->counters().selections > int64_t{1} << 59) return 0;
  Require(pair.other->CopyFrom(*pair.session));
  const std::vector<int32_t> more = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  std::vector<uint8_t> bytes, again;
  for (Session* session : {pair.session.get(), pair.other.get()}) {
    (void)session->counters();
    // A pot full of pins has no room; what is in it must not matter otherwise.
    (void)session->BeginRound({more.data(), 2}, 4);
    (void)session->Append(more);
    (void)session->Append(more);
    Require(session->Save(session == pair.session.get() ? &bytes : &again));
  }
  if (bytes != again) std::abort();
  Require(pair.other->Restore(bytes));
  return 0;
}
