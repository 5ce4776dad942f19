// SPDX-License-Identifier: Apache-2.0
// Every model and encoder file of the goldens with bits of its head turned over: it is refused, or it runs within a
// bound of memory; nothing crashes (under a sanitizer: nothing is read or written out of bounds, no sum overflows).
#include <gtest/gtest.h>

#include <filesystem>

#include "base/rng.h"
#include "cli/edited_model.h"
#include "engine/session.h"
#include "model/architecture.h"
#include "support/golden.h"
#include "support/picture.h"
#include "text/tokenizer.h"
#include "vision/encoder.h"

namespace weir {
namespace {

constexpr int kRounds = 60;
constexpr int64_t kBudget = int64_t{64} << 20;

Status RunEncoder(const GgufFile& file, Backend& backend, Ledger& ledger) {
  WEIR_ASSIGN_OR_RETURN(const auto encoder, LoadEncoder(file, backend, ledger));
  WEIR_ASSIGN_OR_RETURN(const auto images, ImageEncoder::Make(*encoder, ledger));
  for (const auto& [width, height] : {std::pair{61, 23}, {9, 40}}) {
    const std::vector<uint8_t> pixels = testing::Picture(static_cast<uint32_t>(width), static_cast<uint32_t>(height));
    WEIR_ASSIGN_OR_RETURN(const std::span<float> rows, images->Encode({pixels.data(), width, height}));
    int64_t n_rows = 0;
    for (const PicturePart& part : images->parts()) n_rows += part.n_rows;
    EXPECT_EQ(std::ssize(rows), n_rows * images->config().n_embd);
    EXPECT_LE(n_rows, images->config().max_rows());
  }
  return Status();
}

Status RunModel(const GgufFile& file, Backend& backend, Ledger& ledger) {
  WEIR_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::Load(file));
  // The text's tokens mean nothing to a model of another vocabulary, but all of them are below its size.
  std::vector<int32_t> ids = tokenizer->Encode("A line, <|im_start|>and\n\xF0\x9F\x98\x80  another.", {});
  tokenizer->Decode(ids, true);
  WEIR_ASSIGN_OR_RETURN(const auto model, LoadModel(file, backend, ledger));
  SessionOptions options;
  options.policy = std::move(ParsePolicySpec("streaming_llm")).value();
  options.pot_slots = 16;
  options.chunk_rows = 4;
  WEIR_ASSIGN_OR_RETURN(const SessionPlan plan, PlanSession(*model, backend, options));
  if (plan.total_bytes > kBudget) return OverBudget("a session beyond the test's bound");
  WEIR_ASSIGN_OR_RETURN(const auto session, Session::Make(*model, backend, options));
  ids.resize(24, 1);
  WEIR_RETURN_IF_ERROR(session->Append(ids));
  return session->Logits().status();
}

class FlippedBitsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(FlippedBitsTest, RefusedOrRunning) {
  const std::string good = testing::FileBytes(GetParam());
  size_t head = good.size();
  {
    const std::span<const uint8_t> view(reinterpret_cast<const uint8_t*>(good.data()), good.size());
    const auto file = std::move(GgufFile::Parse(view, "good.gguf")).value();
    for (const GgufTensor& tensor : file->tensors()) head = std::min(head, static_cast<size_t>(tensor.file_offset));
  }
  const auto backend = MakeCpuBackend(2);
  Rng rng(4242);
  int n_refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = good;
    // Most of the head is a vocabulary: half of the rounds look at its beginning and end, where sizes are.
    const size_t edge = std::min<size_t>(head, 3000);
    for (int flips = 0; flips < 1 + round % 3; ++flips) {
      size_t at = static_cast<size_t>(rng.Below(round % 2 == 0 ? edge : head));
      if (round % 4 == 0) at = head - 1 - at;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << rng.Below(8)));
    }
    const std::span<const uint8_t> view(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    Ledger ledger(kBudget);
    const auto run = [&]() -> Status {
      WEIR_ASSIGN_OR_RETURN(const auto file, GgufFile::Parse(view, "flipped.gguf"));
      return IsEncoder(*file) ? RunEncoder(*file, *backend, ledger) : RunModel(*file, *backend, ledger);
    };
    const Status status = run();
    n_refused += !status.ok();
    EXPECT_NE(status.ok(), !status.message().empty()) << "round " << round;
    EXPECT_EQ(ledger.used_bytes(), 0) << "round " << round << ": " << status.message();
  }
  EXPECT_GT(n_refused, kRounds / 6);
}

INSTANTIATE_TEST_SUITE_P(Files, FlippedBitsTest, ::testing::ValuesIn(testing::GoldenModelFiles()),
                         [](const auto& info) { return std::filesystem::path(info.param).stem().string(); });

}  // namespace
}  // namespace weir
