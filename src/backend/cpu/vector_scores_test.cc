// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/vector_scores.h"

#include <vector>

#include "backend/backend.h"
#include "backend/cpu/testing.h"
#include "gtest/gtest.h"
#include "ops/kv_slots.h"

namespace weir::cpu {
namespace {

// Heads of unequal length, as with a shared budget.
struct Heads {
  std::vector<std::vector<uint8_t>> slots;
  std::vector<std::vector<float>> out;
  std::vector<VectorScoresArgs> args;

  Heads(Rng& rng, VectorScore what, DType type, int64_t head_dim) {
    const int64_t lengths[] = {1, 37, 700, 0, 256};
    for (int64_t n : lengths) {
      std::vector<uint8_t> bytes(static_cast<size_t>(n * SlotBytes(type, head_dim)) + 1);
      for (int64_t s = 0; s < n; ++s) {
        std::vector<float> x = Normals(rng, head_dim);
        x[0] += 2;  // a direction that keys have in common
        if (s % 50 == 7) x.assign(x.size(), 0.0f);
        EncodeRow(type, x.data(), head_dim, bytes.data() + s * SlotBytes(type, head_dim));
      }
      slots.push_back(std::move(bytes));
      out.emplace_back(static_cast<size_t>(n) + 1, 99.0f);
    }
    for (size_t h = 0; h < slots.size(); ++h) {
      args.push_back({what, slots[h].data(), type, lengths[h], head_dim, out[h].data()});
    }
  }
};

TEST(CpuVectorScores, EqualsReference) {
  Rng rng(1);
  std::unique_ptr<Backend> cpu[3];
  for (int t = 0; t < 3; ++t) cpu[t] = MakeCpuBackend(t + 1);
  for (const VectorScore what : {VectorScore::kKeyDiff, VectorScore::kValueNorm}) {
    for (const DType type : kSlotTypes) {
      for (const int64_t head_dim : {32, 64, 96, 128, 512, 544, 20}) {
        if (head_dim % InfoOf(type).block_elements != 0) continue;
        Heads heads(rng, what, type, head_dim);
        for (const VectorScoresArgs& head : heads.args) ref::VectorScores(head);
        const std::vector<std::vector<float>> expected = heads.out;
        ForEachTarget([&] {
          cpu[0]->VectorScores(heads.args);
          const std::vector<std::vector<float>> got = heads.out;
          for (size_t h = 0; h < got.size(); ++h) {
            for (size_t s = 0; s < got[h].size(); ++s) {
              ASSERT_NEAR(got[h][s], expected[h][s], 1e-5f * (1 + std::fabs(expected[h][s])))
                  << "slot " << s << " of head " << h << ", dim " << head_dim << ", " << InfoOf(type).name;
            }
          }
          for (int t = 1; t < 3; ++t) {
            for (std::vector<float>& row : heads.out) row.assign(row.size(), 99.0f);
            cpu[t]->VectorScores(heads.args);
            ASSERT_EQ(heads.out, got) << t + 1 << " threads";
          }
        });
      }
    }
  }
}

}  // namespace
}  // namespace weir::cpu
