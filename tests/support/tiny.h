// SPDX-License-Identifier: Apache-2.0
// Tiny random models with sessions on them, for tests of what a session holds.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/session.h"
#include "support/golden.h"

namespace weir::testing {

// One thread: models this small spend more time on waiting for each other than on their work. Tests of threads say so.
struct Tiny {
  Ledger ledger;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
  explicit Tiny(const std::string& name, int n_threads = 1) : backend(MakeCpuBackend(n_threads)) {
    auto file = std::move(GgufFile::Open(GoldenDir() + name + ".gguf")).value();
    model = std::move(LoadModel(*file, *backend, ledger)).value();
  }
};

inline std::vector<int32_t> RandomTokens(size_t n, int32_t n_vocab) {
  Rng rng(11);
  std::vector<int32_t> out(n);
  for (int32_t& id : out) id = static_cast<int32_t>(rng.Below(static_cast<uint64_t>(n_vocab)));
  return out;
}

// What is held, by sequence numbers, group after group.
inline std::vector<std::vector<int64_t>> Held(const Session& session) {
  std::vector<std::vector<int64_t>> out;
  for (int32_t group = 0; group < session.pot().shape().n_groups(); ++group) {
    out.emplace_back();
    for (const SlotMeta& slot : session.pot().meta(group)) out.back().push_back(slot.seq);
  }
  return out;
}

inline std::vector<float> LogitsOf(Session& session) {
  auto logits = session.Logits();
  EXPECT_TRUE(logits.ok()) << logits.status().message();
  return {logits->begin(), logits->end()};
}

}  // namespace weir::testing
