// SPDX-License-Identifier: Apache-2.0
// Checks shared by the tests of all vision encoders.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/build_paths.h"
#include "support/golden.h"
#include "vision/encoder.h"

namespace weir::testing {

inline std::string VisionDir() { return SourceDir() + "/tests/golden/vision/"; }

struct TinyEncoder {
  Ledger ledger;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Encoder> encoder;

  TinyEncoder(const std::string& name, std::unique_ptr<Backend> on) : backend(std::move(on)) {
    auto file = std::move(GgufFile::Open(VisionDir() + name)).value();
    auto loaded = LoadEncoder(*file, *backend, ledger);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    if (loaded.ok()) encoder = std::move(loaded).value();
  }
};

// Every entry of the golden whose name begins with "v." or "mm." is offered once and is the reference's to `bound` of
// its largest number, nothing else is offered, the last is the result. `encode` runs an encoder.
template <typename Encode>
void ExpectOffered(const Golden& golden, const std::string& last, const Encode& encode, double bound = 1e-4) {
  std::set<std::string> seen;
  const VisionObserver observer = [&](const std::string& name, int64_t n_rows, int64_t n_cols, const float* data) {
    ASSERT_TRUE(seen.insert(name).second) << name << " twice";
    const auto it = golden.find(name);
    ASSERT_NE(it, golden.end()) << name;
    ASSERT_EQ(n_rows, it->second.rows) << name;
    ASSERT_EQ(n_cols, it->second.cols) << name;
    EXPECT_LT(RelativeError(data, it->second.data.data(), it->second.data.size()), bound) << name;
  };
  const std::vector<float> rows = encode(&observer);
  for (const auto& [name, entry] : golden) {
    EXPECT_TRUE((!name.starts_with("v.") && !name.starts_with("mm.")) || seen.contains(name)) << name;
  }
  const GoldenEntry& want = golden.at(last);
  ASSERT_EQ(rows.size(), want.data.size());
  EXPECT_LT(RelativeError(rows.data(), want.data.data(), rows.size()), bound);
}

// The same on both backends of the host.
template <typename Encode>
void ExpectIntermediates(const std::string& file, const Golden& golden, const std::string& last, const Encode& encode) {
  for (const bool reference : {true, false}) {
    SCOPED_TRACE(reference ? "ref" : "cpu");
    TinyEncoder tiny(file, reference ? MakeRefBackend() : MakeCpuBackend(2));
    ASSERT_NE(tiny.encoder, nullptr);
    ExpectOffered(golden, last, [&](const VisionObserver* observer) { return encode(tiny, observer); });
  }
}

// [3 * height, width] as an encoder of pictures of any size takes it: planes, and their size at the end.
inline std::vector<float> InputOf(const GoldenEntry& pixels, const ImageTransform& transform) {
  std::vector<float> out(static_cast<size_t>(InputFloats(transform)));
  EXPECT_LE(pixels.data.size(), out.size());
  std::copy(pixels.data.begin(), pixels.data.end(), out.begin());
  if (AnySize(transform)) {
    out[out.size() - 2] = static_cast<float>(pixels.cols);
    out[out.size() - 1] = static_cast<float>(pixels.rows / 3);
  }
  return out;
}

// The intermediates of entry `pixels`, in a workspace of the planned size.
inline void ExpectEncoder(const std::string& file, const Golden& golden, const std::string& last) {
  ExpectIntermediates(file, golden, last, [&](TinyEncoder& tiny, const VisionObserver* observer) {
    Encoder& encoder = *tiny.encoder;
    const std::vector<float> input = InputOf(golden.at("pixels"), encoder.config().transform);
    auto space = std::move(HostBuffer::Allocate(tiny.ledger, MemTag::kVision, encoder.WorkspaceBytes())).value();
    std::vector<float> rows(static_cast<size_t>(encoder.RowsOf(input.data()).n) *
                            static_cast<size_t>(encoder.config().n_embd));
    encoder.Encode({input.data(), rows.data(), space.data(), observer});
    return rows;
  });
}

// Both normalised: brought back to 0 .. 255, nothing differs by as much as one step. Planes of `plane` floats change
// colour in turn.
inline void ExpectSamePixels(const float* got, const GoldenEntry& want, const ImageTransform& transform, size_t plane) {
  double worst = 0;
  for (size_t i = 0; i < want.data.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - want.data[i]) * transform.std[i / plane % 3] * 255);
  }
  EXPECT_LT(worst, 0.01) << "steps of 8 bits";
}

}  // namespace weir::testing
