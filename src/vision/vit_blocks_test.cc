// SPDX-License-Identifier: Apache-2.0
// Blocks whose feed-forward rows are no multiple of 32, so that a quantised file keeps one matrix in F16: the fast
// backend against the reference, which multiplies it by floats.
#include "vision/vit_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/memory.h"
#include "base/rng.h"
#include "io/gguf_writer.h"
#include "quant/format.h"

namespace weir {
namespace {

constexpr int64_t kEmbd = 64, kFf = 84, kRows = 45;

std::vector<uint8_t> Weights(Rng& rng, DType type, int64_t n_out, int64_t n_in) {
  std::vector<uint8_t> out(static_cast<size_t>(n_out * RowBytes(type, n_in)));
  std::vector<float> row(static_cast<size_t>(n_in));
  for (int64_t o = 0; o < n_out; ++o) {
    for (float& w : row) w = static_cast<float>(rng.Uniform() - 0.5);
    EncodeRow(type, row.data(), n_in, out.data() + o * RowBytes(type, n_in));
  }
  return out;
}

// Two blocks, with matrices of `type` where that is possible and F16 elsewhere.
std::vector<uint8_t> File(DType type) {
  Rng rng(1);
  GgufWriter writer;
  for (const std::string l : {"0", "1"}) {
    const std::string block = "v.blk." + l + ".";
    for (const char* norm : {"ln1", "ln2"}) {
      writer.AddTensor(block + norm + ".weight", DType::kF32, {kEmbd}, Weights(rng, DType::kF32, 1, kEmbd));
      writer.AddTensor(block + norm + ".bias", DType::kF32, {kEmbd}, Weights(rng, DType::kF32, 1, kEmbd));
    }
    const auto add = [&](const std::string& name, int64_t n_out, int64_t n_in) {
      const DType as = n_in % InfoOf(type).block_elements == 0 ? type : DType::kF16;
      writer.AddTensor(block + name + ".weight", as, {n_out, n_in}, Weights(rng, as, n_out, n_in));
      writer.AddTensor(block + name + ".bias", DType::kF32, {n_out}, Weights(rng, DType::kF32, 1, n_out));
    };
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_out"}) add(name, kEmbd, kEmbd);
    add("ffn_up", kFf, kEmbd);
    add("ffn_down", kEmbd, kFf);
  }
  return std::move(writer.Bytes()).value();
}

std::vector<float> Run(const std::vector<uint8_t>& bytes, std::unique_ptr<Backend> backend) {
  Ledger ledger;
  const auto file = std::move(GgufFile::Parse(bytes, "blocks.gguf")).value();
  WeightLoader loader(*file, *backend, ledger);
  VitShape shape;
  shape.n_embd = kEmbd;
  shape.n_ff = kFf;
  shape.n_layers = 2;
  shape.n_heads = 2;
  shape.eps = 1e-6f;
  VitBlocks blocks;
  const Status loaded = blocks.Load(shape, GeluKind::kTanh, *file, loader);
  EXPECT_TRUE(loaded.ok()) << loaded.message();
  Workspace sizes(nullptr);
  blocks.LayOut(*backend, kRows, kEmbd, &sizes);
  HostBuffer memory = std::move(HostBuffer::Allocate(ledger, MemTag::kVision, sizes.used())).value();
  Workspace space(memory.data());
  const VitBlocks::Buffers buffers = blocks.LayOut(*backend, kRows, kEmbd, &space);
  Rng rng(2);
  std::vector<float> x(kRows * kEmbd);
  for (float& v : x) v = static_cast<float>(rng.Uniform() - 0.5);
  blocks.Run(*backend, buffers, kRows, nullptr, nullptr, x.data());
  return x;
}

// Of the largest number.
double Difference(DType type) {
  const std::vector<uint8_t> bytes = File(type);
  const std::vector<float> want = Run(bytes, MakeRefBackend()), got = Run(bytes, MakeCpuBackend(2));
  double most = 0, largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    most = std::max(most, std::fabs(static_cast<double>(want[i]) - got[i]));
    largest = std::max(largest, std::fabs(static_cast<double>(want[i])));
  }
  return most / largest;
}

TEST(VitBlocks, PlainFilesMultiplyFloats) { EXPECT_LT(Difference(DType::kF16), 2e-6); }

// Two blocks, whose 8-bit activations may each round to the next step.
TEST(VitBlocks, QuantisedFilesRoundTheirHalfs) { EXPECT_LT(Difference(DType::kQ8_0), 1.0 / 127); }

}  // namespace
}  // namespace weir
