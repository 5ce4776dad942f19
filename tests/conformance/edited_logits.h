// SPDX-License-Identifier: Apache-2.0
// What a model file that a test changed computes.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/edited_model.h"
#include "engine/session.h"
#include "model/architecture.h"
#include "support/tiny.h"

namespace weir::testing {

// OK, or why the file is refused.
inline Status LoadEdited(const EditedModel& model) {
  const std::string text = model.Bytes();
  const std::vector<uint8_t> bytes(text.begin(), text.end());
  auto file = GgufFile::Parse(bytes, "memory");
  if (!file.ok()) return file.status();
  Ledger ledger;
  auto backend = MakeRefBackend();
  return LoadModel(**file, *backend, ledger).status();
}

// After 24 tokens.
inline std::vector<float> EditedLogits(const EditedModel& model, std::unique_ptr<Backend> backend = MakeCpuBackend(2)) {
  const std::string text = model.Bytes();
  const std::vector<uint8_t> bytes(text.begin(), text.end());
  auto file = GgufFile::Parse(bytes, "memory");
  EXPECT_TRUE(file.ok()) << file.status().message();
  Ledger ledger;
  auto loaded = LoadModel(**file, *backend, ledger);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  if (!loaded.ok()) return {};
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec("full")).value();
  options.pot_slots = 32;
  options.k_type = options.v_type = DType::kF32;
  auto session = std::move(Session::Make(**loaded, *backend, options)).value();
  EXPECT_TRUE(session->Append(RandomTokens(24, (*loaded)->config().n_vocab)).ok());
  return LogitsOf(*session);
}

}  // namespace weir::testing
