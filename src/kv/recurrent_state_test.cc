// SPDX-License-Identifier: Apache-2.0
#include "kv/recurrent_state.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace weir {
namespace {

// More than two of the buffers through which a state is saved, and no whole number of them.
constexpr int64_t kFloats = 20001;

Backend& Ref() {
  static const std::unique_ptr<Backend> backend = MakeRefBackend();
  return *backend;
}

RecurrentState Make(const RecurrentStateShape& shape, Ledger& ledger) {
  return std::move(RecurrentState::Make(shape, Ref(), ledger)).value();
}

// What a stream of n tokens left: other numbers for every n.
void Fill(RecurrentState& state, int64_t n) {
  for (int64_t i = 0; i < kFloats; ++i) state.data()[i] = static_cast<float>(n * kFloats + i);
}
bool IsOf(const RecurrentState& state, int64_t n) {
  for (int64_t i = 0; i < kFloats; ++i) {
    if (state.data()[i] != static_cast<float>(n == 0 ? 0 : n * kFloats + i)) return false;
  }
  return true;
}

TEST(RecurrentState, ReservesWhatItSays) {
  for (const int32_t n_marks : {0, 1, 3}) {
    for (const bool aside : {false, true}) {
      Ledger ledger;
      const RecurrentStateShape shape = {.n_floats = kFloats, .n_marks = n_marks, .aside = aside};
      const RecurrentState state = Make(shape, ledger);
      EXPECT_EQ(ledger.used_bytes(), RecurrentState::Bytes(shape)) << n_marks << " marks, aside " << aside;
      EXPECT_GE(RecurrentState::Bytes(shape), (1 + n_marks + aside) * kFloats * 4);
    }
  }
  Ledger ledger;
  EXPECT_EQ(RecurrentState::Bytes({.n_marks = 2, .aside = true}), 0) << "a model without one";
  EXPECT_TRUE(Make({.n_marks = 2, .aside = true}, ledger).empty());
  EXPECT_EQ(ledger.used_bytes(), 0);
}

TEST(RecurrentState, EveryRefusedAllocationIsAnAnswer) {
  for (int n = 1; n <= 3; ++n) {
    Ledger ledger;
    ledger.FailNth(n);
    const auto state = RecurrentState::Make({.n_floats = kFloats, .n_marks = 1, .aside = true}, Ref(), ledger);
    EXPECT_EQ(state.status().code(), StatusCode::kOverBudget) << "allocation " << n;
  }
}

TEST(RecurrentState, GoesBackToTheCopyAside) {
  Ledger ledger;
  RecurrentState state = Make({.n_floats = kFloats, .aside = true}, ledger);
  EXPECT_TRUE(IsOf(state, 0));
  EXPECT_EQ(state.aside(), -1);
  Fill(state, 5);
  state.SetAside(5);
  EXPECT_EQ(state.aside(), 5);
  Fill(state, 6);
  state.BringBack();
  EXPECT_TRUE(IsOf(state, 5));
  state.Clear();
  EXPECT_TRUE(IsOf(state, 0));
  EXPECT_EQ(state.aside(), -1);
}

TEST(RecurrentState, GoesBackToMarks) {
  Ledger ledger;
  RecurrentState state = Make({.n_floats = kFloats, .n_marks = 3, .aside = true}, ledger);
  for (const int64_t n : {3, 7, 9}) {
    Fill(state, n);
    state.Mark(n, n == 3);
  }
  state.SetAside(9);
  EXPECT_EQ(state.MarkBefore(8), 7);
  state.Return(7);
  EXPECT_TRUE(IsOf(state, 7));
  EXPECT_EQ(state.MarkBefore(100), 7) << "later marks are forgotten";
  EXPECT_EQ(state.aside(), -1);
  state.Return(3);
  EXPECT_TRUE(IsOf(state, 3));
  state.ForgetMarks();
  EXPECT_EQ(state.MarkBefore(100), 0);
}

TEST(RecurrentState, IsSavedRestoredAndCopied) {
  Ledger ledger;
  const RecurrentStateShape shape = {.n_floats = kFloats, .n_marks = 1, .aside = true};
  RecurrentState state = Make(shape, ledger), other = Make(shape, ledger), copy = Make(shape, ledger);
  Fill(state, 4);
  std::vector<uint8_t> saved;
  VectorSink sink(&saved);
  ASSERT_TRUE(state.Save(sink).ok());
  EXPECT_EQ(std::ssize(saved), kFloats * 4);
  for (RecurrentState* const one : {&other, &copy}) {
    Fill(*one, 8);
    one->Mark(8, false);
    one->SetAside(8);
  }
  SpanSource source(saved);
  ASSERT_TRUE(other.Restore(source).ok());
  copy.CopyFrom(state);
  for (const RecurrentState* const one : {&other, &copy}) {
    EXPECT_TRUE(IsOf(*one, 4));
    EXPECT_EQ(one->MarkBefore(100), 0) << "marks are of the stream that it had read";
    EXPECT_EQ(one->aside(), -1);
  }
  saved.pop_back();
  SpanSource less(saved);
  EXPECT_FALSE(other.Restore(less).ok());
}

}  // namespace
}  // namespace weir
