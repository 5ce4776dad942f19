// SPDX-License-Identifier: Apache-2.0
// Vision encoders on a device: the intermediates of their goldens, pruners' inputs and results, pictures in tiles and
// in squares, and the bytes that were planned.
#include <map>
#include <tuple>

#include "backend/cuda/twin/watch.h"
#include "engine/picture_encoder.h"
#include "gpu/devices.h"
#include "support/encoder.h"
#include "support/picture.h"

namespace weir::testing {
namespace {

const int kWatched = twin::watch_one_in = 17;  // launches, of which one is

// The other encoders here have F32 weights. With F16 weights the activations of many rows are rounded to halves, to
// 2^-11 of each; bfloats, of 2^-8, would miss this bound.
constexpr double kHalfWeights = 2.5e-3;

class EncodersTest : public DeviceTest {
 protected:
  std::unique_ptr<Encoder> Load(const std::string& name, Backend& backend) {
    auto file = std::move(GgufFile::Open(VisionDir() + name)).value();
    auto loaded = LoadEncoder(*file, backend, ledger_);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    return loaded.ok() ? std::move(*loaded) : nullptr;
  }
  void ExpectGolden(const std::string& name, const Golden& golden, const std::string& last, double bound = 1e-4) {
    SCOPED_TRACE(name);
    const auto encoder = Load(name, *backend_);
    ASSERT_NE(encoder, nullptr);
    Ledger ledger;
    auto images = std::move(ImageEncoder::Make(*encoder, ledger)).value();
    EXPECT_EQ(ledger.used_bytes(), ImageEncoder::Bytes(*encoder));
    const std::vector<float> input = InputOf(golden.at("pixels"), encoder->config().transform);
    ExpectOffered(
        golden, last,
        [&](const VisionObserver* observer) {
          const std::span<float> rows = images->EncodePixels(input.data(), observer);
          return std::vector<float>(rows.begin(), rows.end());
        },
        bound);
  }
};

TEST_P(EncodersTest, IntermediatesAreTheReferences) {
  ExpectGolden("clip.gguf", ReadGolden(VisionDir() + "clip.golden"), "mm.2");
  ExpectGolden("blip2.gguf", ReadGolden(VisionDir() + "blip2.golden"), "v.proj_linear");
  ExpectGolden("idefics3.gguf", ReadGolden(VisionDir() + "smolvlm.golden"), "mm.fc");
  ExpectGolden("qwenvl_resampler.gguf", ReadGolden(VisionDir() + "qwenvl.golden"), "mm.proj");
  ExpectGolden("minicpmv.gguf", ReadGolden(VisionDir() + "minicpmv.golden"), "mm.proj", kHalfWeights);
  ExpectGolden("qwen2vl_merger.gguf", ReadGolden(VisionDir() + "qwen2vl.golden"), "mm.2");
  ExpectGolden("lfm2_vision.gguf", ReadGolden(VisionDir() + "lfm2_vision.golden"), "mm.2");
  ExpectGolden("mistral3_pixtral.gguf", ReadGolden(VisionDir() + "mistral3_pixtral.golden"), "mm.rows");
  ExpectGolden("pixtral.gguf", ReadGolden(VisionDir() + "pixtral.golden"), "mm.rows");
  ExpectGolden("qwen25vl_merger.gguf", ReadGolden(VisionDir() + "qwen25vl.golden"), "mm.2");
  ExpectGolden("qwen3vl_merger.gguf", ReadGolden(VisionDir() + "qwen3vl.golden"), "mm.rows");
  ExpectGolden("gemma3_vision.gguf", ReadGolden(VisionDir() + "gemma3_vision.golden"), "mm.fc");
  ExpectGolden("gemma4_vision.gguf", ReadGolden(VisionDir() + "gemma4_vision.golden"), "mm.fc");
  ExpectGolden("gemma4_large_vision.gguf", ReadGolden(VisionDir() + "gemma4_large.golden"), "mm.fc");
  ExpectGolden("internvl.gguf", ReadGolden(VisionDir() + "internvl.golden"), "mm.3");
  ExpectGolden("internvl_large.gguf", ReadGolden(VisionDir() + "internvl_large.golden"), "mm.3");
}

// Everything an encoder tells, kept.
struct Recorder : SignalSink {
  std::map<std::tuple<SignalKind, int32_t, int32_t>, std::vector<float>> maps;
  bool Wants(SignalKind, int32_t) const override { return true; }
  void Take(const Signal& s) override {
    maps[{s.kind, s.layer, s.head}].assign(s.values, s.values + s.shape.n_rows * s.shape.n_cols);
  }
};

TEST_P(EncodersTest, PrunersAreToldTheSameAndKeepTheSame) {
  const auto cpu = MakeCpuBackend(2);
  const auto mine = Load("blip2.gguf", *backend_), theirs = Load("blip2.gguf", *cpu);
  ASSERT_NE(mine, nullptr);
  const std::vector<uint8_t> rgb = Picture(90, 61);
  const RgbView view = {rgb.data(), 90, 61};
  const auto told = [&](Encoder& encoder) {
    Recorder recorder;
    Ledger ledger;
    auto images = std::move(ImageEncoder::Make(encoder, ledger)).value();
    EXPECT_TRUE(images->Encode(view, nullptr, &recorder).ok());
    return recorder.maps;
  };
  const auto got = told(*mine), expected = told(*theirs);
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [what, values] : expected) {
    ASSERT_TRUE(got.contains(what));
    EXPECT_LT(Distance(got.at(what), values), 1e-5) << static_cast<int>(std::get<0>(what));
  }
  for (const char* text : {"catp:keep=0.25", "catp:layers=1,weights=image", "l2", "self_attention"}) {
    SCOPED_TRACE(text);
    const PrunerSpec spec = std::move(ParsePrunerSpec(text)).value();
    Ledger ledger;
    auto on_device = std::move(PictureEncoder::Make(spec, *mine, ledger)).value();
    EXPECT_EQ(ledger.used_bytes(), ImageEncoder::Bytes(*mine) + *PictureEncoder::PrunerBytes(spec, *mine));
    auto on_cpu = std::move(PictureEncoder::Make(spec, *theirs, ledger)).value();
    const auto rows = on_device->Encode(view), want = on_cpu->Encode(view);
    ASSERT_TRUE(rows.ok() && want.ok());
    EXPECT_EQ(KeepSet(on_device->kept().begin(), on_device->kept().end()),
              KeepSet(on_cpu->kept().begin(), on_cpu->kept().end()));
    EXPECT_LT(Distance({rows->begin(), rows->end()}, {want->begin(), want->end()}), 1e-5);
  }
}

TEST_P(EncodersTest, TilesAndSquaresOfPictures) {
  const auto cpu = MakeCpuBackend(2);
  for (const char* name : {"clip_next.gguf", "idefics3.gguf", "internvl.gguf", "minicpmv.gguf"}) {
    SCOPED_TRACE(name);
    const auto mine = Load(name, *backend_), theirs = Load(name, *cpu);
    ASSERT_NE(mine, nullptr);
    Ledger ledger;
    auto on_device = std::move(ImageEncoder::Make(*mine, ledger)).value();
    auto on_cpu = std::move(ImageEncoder::Make(*theirs, ledger)).value();
    const std::vector<uint8_t> rgb = Picture(97, 61);
    const auto rows = on_device->Encode({rgb.data(), 97, 61}), want = on_cpu->Encode({rgb.data(), 97, 61});
    ASSERT_TRUE(rows.ok() && want.ok());
    EXPECT_GT(std::ssize(*rows), mine->config().n_rows * mine->config().n_embd);
    EXPECT_LT(Distance({rows->begin(), rows->end()}, {want->begin(), want->end()}),
              std::string(name) == "minicpmv.gguf" ? kHalfWeights : 1e-5);
    EXPECT_EQ(on_device->parts().size(), on_cpu->parts().size());
  }
}

TEST_P(EncodersTest, WhatNeedsTheHostSaysSo) {
  for (const char* name : {"chat_univi.gguf", "flash_vstream.gguf"}) {
    auto file = std::move(GgufFile::Open(VisionDir() + name)).value();
    EXPECT_TRUE(FindEncoder(*file).value()->host_only);
    Ledger ledger;
    EXPECT_EQ(LoadEncoder(*file, *backend_, ledger).status().code(), StatusCode::kUnsupported);
    EXPECT_EQ(ledger.used_bytes(), 0);
  }
}

WEIR_ON_DEVICES(EncodersTest);

}  // namespace
}  // namespace weir::testing
