// SPDX-License-Identifier: Apache-2.0
// Checks shared by the tests of all vision encoders.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>
#include <string>
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

// Every entry of the golden whose name begins with "v." or "mm." is offered once and is the reference's to 1e-4 of its
// largest number, nothing else is offered, the last is the result. `encode` runs an encoder.
template <typename Encode>
void ExpectOffered(const Golden& golden, const std::string& last, const Encode& encode) {
  std::set<std::string> seen;
  const VisionObserver observer = [&](const std::string& name, int64_t n_rows, int64_t n_cols, const float* data) {
    ASSERT_TRUE(seen.insert(name).second) << name << " twice";
    const auto it = golden.find(name);
    ASSERT_NE(it, golden.end()) << name;
    ASSERT_EQ(n_rows, it->second.rows) << name;
    ASSERT_EQ(n_cols, it->second.cols) << name;
    EXPECT_LT(RelativeError(data, it->second.data.data(), it->second.data.size()), 1e-4) << name;
  };
  const std::vector<float> rows = encode(&observer);
  for (const auto& [name, entry] : golden) {
    EXPECT_TRUE((!name.starts_with("v.") && !name.starts_with("mm.")) || seen.contains(name)) << name;
  }
  const GoldenEntry& want = golden.at(last);
  ASSERT_EQ(rows.size(), want.data.size());
  EXPECT_LT(RelativeError(rows.data(), want.data.data(), rows.size()), 1e-4);
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
