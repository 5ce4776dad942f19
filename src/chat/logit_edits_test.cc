// SPDX-License-Identifier: Apache-2.0
#include "chat/logit_edits.h"

#include <gtest/gtest.h>

#include <vector>

namespace weir {
namespace {

TEST(LogitEdits, ABiasAndPenaltiesAddUp) {
  LogitOptions options;
  options.bias = {{1, 2.5f}, {3, -100.0f}};
  options.presence_penalty = 0.5f;
  options.frequency_penalty = 0.25f;
  LogitEdits edits(options);
  for (const int32_t id : {1, 2, 1}) edits.Accept(id);
  const std::vector<float> given = {0.1f, 1.0f, 2.0f, 3.0f, -4.0f};
  std::vector<float> logits = given;
  edits.Apply(logits);
  EXPECT_EQ(logits, (std::vector<float>{0.1f, 1.0f + 2.5f - 0.5f - 2 * 0.25f, 2.0f - 0.5f - 0.25f, -97.0f, -4.0f}));
  edits.Undo(logits);
  EXPECT_EQ(logits, given);
}

// Adding and subtracting again would lose the last bits of a small number.
TEST(LogitEdits, WhatWasThereComesBackToTheBit) {
  LogitOptions options;
  options.bias = {{0, 100.0f}};
  options.presence_penalty = 2;
  LogitEdits edits(options);
  edits.Accept(0);
  EXPECT_FALSE(edits.empty());
  std::vector<float> logits = {1e-7f};
  edits.Apply(logits);
  edits.Undo(logits);
  EXPECT_EQ(logits[0], 1e-7f);
}

TEST(LogitEdits, WithoutAPenaltyNothingIsCounted) {
  LogitEdits edits(LogitOptions{});
  edits.Accept(1 << 20);
  EXPECT_TRUE(edits.empty());
  std::vector<float> logits = {1.0f};
  edits.Apply(logits);
  EXPECT_EQ(logits[0], 1.0f);
}

}  // namespace
}  // namespace weir
