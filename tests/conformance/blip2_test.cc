// SPDX-License-Identifier: Apache-2.0
// BLIP-2's encoder, language model and pruners against the reference implementation (tools/golden/blip2.py).
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>

#include "engine/picture_encoder.h"
#include "engine/session.h"
#include "support/build_paths.h"
#include "support/encoder.h"
#include "support/golden.h"
#include "support/picture.h"
#include "vision/encoder.h"

namespace weir {
namespace {

using testing::Golden;
using testing::RelativeError;

std::string VisionDir() { return SourceDir() + "/tests/golden/vision/"; }

class Blip2Test : public ::testing::Test {
 protected:
  void Load(std::unique_ptr<Backend> backend) {
    encoder_.reset();
    backend_ = std::move(backend);
    auto file = std::move(GgufFile::Open(VisionDir() + "blip2.gguf")).value();
    auto encoder = LoadEncoder(*file, *backend_, ledger_);
    ASSERT_TRUE(encoder.ok()) << encoder.status().message();
    encoder_ = std::move(encoder).value();
  }
  std::vector<float> Encode(const VisionObserver* observer = nullptr, SignalSink* signals = nullptr) {
    const EncoderConfig& config = encoder_->config();
    auto workspace = std::move(HostBuffer::Allocate(ledger_, MemTag::kVision, encoder_->WorkspaceBytes())).value();
    std::vector<float> out(static_cast<size_t>(config.n_rows) * static_cast<size_t>(config.n_embd));
    encoder_->Encode({golden_.at("pixels").data.data(), out.data(), workspace.data(), observer, signals});
    return out;
  }

  const Golden golden_ = testing::ReadGolden(VisionDir() + "blip2.golden");
  Ledger ledger_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Encoder> encoder_;
};

TEST_F(Blip2Test, EveryIntermediateMatchesTheReference) {
  for (const char* device : {"ref", "cpu"}) {
    SCOPED_TRACE(device);
    Load(std::string(device) == "ref" ? MakeRefBackend() : MakeCpuBackend(2));
    ASSERT_NE(encoder_, nullptr);
    testing::ExpectOffered(golden_, "v.proj_linear", [&](const VisionObserver* observer) { return Encode(observer); });
    EXPECT_EQ(encoder_->config().n_rows, 12);
  }
}

// Everything an encoder tells, kept.
struct Recorder : SignalSink {
  std::map<SignalKind, std::map<std::pair<int32_t, int32_t>, std::vector<float>>> maps;
  bool Wants(SignalKind, int32_t) const override { return true; }
  void Take(const Signal& s) override {
    maps[s.kind][{s.layer, s.head}].assign(s.values, s.values + s.shape.n_rows * s.shape.n_cols);
  }
};

TEST_F(Blip2Test, TellsTheAttentionOfTheReference) {
  Load(MakeCpuBackend(2));
  ASSERT_NE(encoder_, nullptr);
  Recorder recorder;
  const std::vector<float> rows = Encode(nullptr, &recorder);
  EXPECT_EQ(rows, Encode()) << "looking changes nothing";
  const auto expect = [&](SignalKind kind, const std::string& name, int32_t layer) {
    const auto& want = golden_.at(name);
    const SignalShape shape = encoder_->ShapeOf(kind);
    ASSERT_EQ(shape.n_heads * shape.n_rows, want.rows) << name;
    ASSERT_EQ(shape.n_cols, want.cols) << name;
    for (int32_t head = 0; head < shape.n_heads; ++head) {
      const std::vector<float>& got = recorder.maps[kind][{layer, head}];
      ASSERT_EQ(static_cast<int64_t>(got.size()), shape.n_rows * shape.n_cols) << name;
      EXPECT_LT(RelativeError(got.data(), &want.data[head * got.size()], got.size()), 1e-4) << name << " head " << head;
    }
  };
  expect(SignalKind::kImageMass, "signal.mass", 0);
  for (int32_t l = 0; l < 4; ++l) expect(SignalKind::kQuerySelf, "signal.self." + std::to_string(l), l);
  for (int32_t l = 0; l < 2; ++l) expect(SignalKind::kQueryCross, "signal.cross." + std::to_string(l), l);
  EXPECT_EQ(encoder_->ShapeOf(SignalKind::kQueryCross).n_layers, 2) << "every other block";
  const auto& outputs = golden_.at("v.proj_blk.3.out");
  EXPECT_LT(RelativeError(recorder.maps[SignalKind::kOutputs][{0, 0}].data(), outputs.data.data(), outputs.data.size()),
            1e-4);
}

TEST_F(Blip2Test, ThreadCountChangesNothing) {
  std::vector<float> first;
  for (const int threads : {1, 2, 3}) {
    Load(MakeCpuBackend(threads));
    ASSERT_NE(encoder_, nullptr);
    const std::vector<float> rows = Encode();
    if (first.empty()) first = rows;
    EXPECT_EQ(first, rows) << threads << " threads";
  }
}

TEST_F(Blip2Test, WritesOnlyIntoItsWorkspace) {
  Load(MakeCpuBackend(2));
  ASSERT_NE(encoder_, nullptr);
  const int64_t bytes = encoder_->WorkspaceBytes();
  std::vector<uint8_t> memory(static_cast<size_t>(bytes) + 128, 0xa5);
  uint8_t* workspace = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  std::vector<float> out(golden_.at("v.proj_linear").data.size());
  Recorder recorder;
  encoder_->Encode({golden_.at("pixels").data.data(), out.data(), workspace, nullptr, &recorder});
  for (const uint8_t* p = workspace + bytes; p < memory.data() + memory.size(); ++p) ASSERT_EQ(*p, 0xa5);
}

// The pictures of tools/golden/vision.py, through the transform that the file asks for.
TEST_F(Blip2Test, PreprocessesAsItsProcessor) {
  Load(MakeRefBackend());
  ASSERT_NE(encoder_, nullptr);
  const ImageTransform& transform = encoder_->config().transform;
  int n = 0;
  for (const auto& [name, want] : golden_) {
    int width = 0, height = 0;
    if (std::sscanf(name.c_str(), "picture.%dx%d", &width, &height) != 2) continue;
    ++n;
    const std::vector<uint8_t> rgb = testing::Picture(static_cast<uint32_t>(width), static_cast<uint32_t>(height));
    std::vector<float> out(want.data.size());
    ASSERT_TRUE(Preprocess({rgb.data(), width, height}, transform, ledger_, out.data()).ok());
    double worst = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      worst = std::max(
          worst, std::abs(static_cast<double>(out[i]) - want.data[i]) * transform.std[i / (out.size() / 3)] * 255);
    }
    EXPECT_LT(worst, 0.01) << name << ": steps of 8 bits";
  }
  EXPECT_EQ(n, 4);
}

// The picture's rows, then a prompt: logits of every token.
TEST_F(Blip2Test, LogitsAfterThePictureMatchTheReference) {
  for (const char* policy : {"full", "streaming_llm"}) {
    Load(MakeCpuBackend(2));
    ASSERT_NE(encoder_, nullptr);
    auto file = std::move(GgufFile::Open(VisionDir() + "blip2_opt.gguf")).value();
    auto model = std::move(LoadModel(*file, *backend_, ledger_)).value();
    SessionOptions options;
    options.policy = std::move(ParsePolicySpec(policy)).value();
    options.pot_slots = 32;
    options.k_type = options.v_type = DType::kF32;
    auto session = std::move(Session::Make(*model, *backend_, options)).value();
    ASSERT_TRUE(session->AppendEmbeddings(Encode(), Modality::kImage, {}).ok());
    const auto& want = golden_.at("logits");
    const std::vector<int32_t> tokens = testing::GoldenTokens(golden_);
    for (size_t i = 0; i < tokens.size(); ++i) {
      ASSERT_TRUE(session->Append({&tokens[i], 1}).ok());
      const auto logits = std::move(session->Logits()).value();
      ASSERT_EQ(static_cast<int64_t>(logits.size()), want.cols);
      EXPECT_LT(RelativeError(logits.data(), &want.data[i * logits.size()], logits.size()), 1e-4)
          << policy << " token " << i;
    }
  }
}

TEST_F(Blip2Test, PrunedRowsAreThoseTheVotesChose) {
  Load(MakeCpuBackend(2));
  ASSERT_NE(encoder_, nullptr);
  const std::vector<uint8_t> rgb = testing::Picture(90, 61);
  const RgbView view = {rgb.data(), 90, 61};
  Ledger ledger;
  const auto whole = std::move(ImageEncoder::Make(*encoder_, ledger)).value();
  Recorder recorder;
  const auto all = std::move(whole->Encode(view, nullptr, &recorder)).value();
  const size_t n_embd = static_cast<size_t>(encoder_->config().n_embd);
  for (const char* text : {"catp:keep=0.25", "catp:layers=first", "catp:layers=1,weights=image", "l2", "self_attention",
                           "catp:keep=1", "l2:keep=0"}) {
    SCOPED_TRACE(text);
    const PrunerSpec spec = std::move(ParsePrunerSpec(text)).value();
    const int64_t before = ledger.used_bytes();
    const auto bytes = PictureEncoder::PrunerBytes(spec, *encoder_);
    ASSERT_TRUE(bytes.ok());
    // A budget without room for the pruner is refused before the pruner takes any.
    Ledger small(ImageEncoder::Bytes(*encoder_) + *bytes - 1);
    EXPECT_EQ(PictureEncoder::Make(spec, *encoder_, small).status().code(), StatusCode::kOverBudget);
    EXPECT_EQ(small.used_bytes(), 0);
    {
      auto pruned = PictureEncoder::Make(spec, *encoder_, ledger);
      ASSERT_TRUE(pruned.ok()) << pruned.status().message();
      EXPECT_EQ(ledger.used_bytes(), before + ImageEncoder::Bytes(*encoder_) + *bytes);
      // The pruner's result for the maps from the whole encoding.
      auto pruner = std::move(spec.Make()).value();
      pruner->Prepare(*encoder_);
      pruner->Begin();
      for (const auto& [kind, maps] : recorder.maps) {
        for (const auto& [at, values] : maps) {
          if (pruner->Wants(kind, at.first))
            pruner->Take({kind, at.first, at.second, encoder_->ShapeOf(kind), values.data()});
        }
      }
      KeepSet keep;
      KeepMostImportant(pruner->Importance(), RowsKept(12, spec.keep()), &keep);
      for (int round = 0; round < 2; ++round) {
        const auto rows = (*pruned)->Encode(view);
        ASSERT_TRUE(rows.ok());
        EXPECT_EQ(KeepSet((*pruned)->kept().begin(), (*pruned)->kept().end()), keep);
        ASSERT_EQ(rows->size(), keep.size() * n_embd);
        EXPECT_EQ((*pruned)->n_rows(), std::ssize(keep));
        for (size_t i = 0; i < keep.size(); ++i) {
          for (size_t c = 0; c < n_embd; ++c)
            ASSERT_EQ((*rows)[i * n_embd + c], all[keep[i] * n_embd + c]) << "row " << i;
        }
      }
      EXPECT_EQ((*pruned)->n_pruned(), 2 * (12 - std::ssize(keep)));
    }
    EXPECT_EQ(ledger.used_bytes(), before);
  }
}

TEST(PictureEncoder, AnEncoderWithoutQueriesHasNothingToRank) {
  Ledger ledger;
  auto backend = MakeRefBackend();
  auto file = std::move(GgufFile::Open(VisionDir() + "clip.gguf")).value();
  auto encoder = std::move(LoadEncoder(*file, *backend, ledger)).value();
  EXPECT_EQ(PictureEncoder::Make(std::move(ParsePrunerSpec("catp")).value(), *encoder, ledger).status().code(),
            StatusCode::kUnsupported);
}

}  // namespace
}  // namespace weir
