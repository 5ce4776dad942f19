// SPDX-License-Identifier: Apache-2.0
// What the tests of the CUDA backend share. Each runs twice: on the host's twin of a device, everywhere, and on the
// device, skipped where there is none.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/testing.h"
#include "backend/cuda/cuda_backend.h"
#include "base/rng.h"

namespace weir::testing {

inline Result<std::unique_ptr<Backend>> MakeDevice(const std::string& which, Ledger& ledger, bool graphs = true) {
  return which == "twin" ? twin::MakeBackend(ledger, graphs) : MakeCudaBackend(ledger, graphs);
}

class DeviceTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto made = MakeDevice(GetParam(), ledger_);
    if (!made.ok()) GTEST_SKIP() << made.status().message();
    backend_ = std::move(*made);
  }
  void TearDown() override {
    if (backend_ == nullptr) return;
    backend_->Synchronise();
    EXPECT_TRUE(backend_->status().ok()) << backend_->status().message();
  }

  // A copy on the device.
  template <typename T>
  T* Put(const std::vector<T>& values, Access access = Access::kDevice) {
    const int64_t bytes = std::ssize(values) * static_cast<int64_t>(sizeof(T));
    buffers_.push_back(std::move(backend_->Allocate(ledger_, MemTag::kOther, bytes, access)).value());
    backend_->Copy(buffers_.back().data(), values.data(), bytes);
    return buffers_.back().as<T>();
  }
  // Uninitialised memory: NaN in every float.
  float* Poisoned(int64_t n, Access access = Access::kDevice) {
    return Put(std::vector<float>(static_cast<size_t>(n), std::numeric_limits<float>::quiet_NaN()), access);
  }
  void* Scratch(int64_t bytes) { return Put(std::vector<uint8_t>(static_cast<size_t>(bytes), 0xff)); }
  template <typename T>
  std::vector<T> Get(const T* from, int64_t n) {
    std::vector<T> out(static_cast<size_t>(n));
    backend_->Copy(out.data(), from, n * static_cast<int64_t>(sizeof(T)));
    return out;
  }

  std::unique_ptr<Matrix> Prepare(Backend& backend, const MatrixSource& source) {
    auto made = backend.PrepareMatrix(source, ledger_);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return std::move(*made);
  }

  Ledger ledger_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Backend> ref_ = MakeRefBackend();
  std::vector<Buffer> buffers_;
};

#define WEIR_ON_DEVICES(Suite)                                                \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite, ::testing::Values("twin", "cuda"), \
                           [](const auto& info) { return std::string(info.param); })

// |a - b| / |b|; NaN when anything is.
inline double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, length = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    length += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(difference) / std::max(std::sqrt(length), 1e-30);
}

}  // namespace weir::testing
