// SPDX-License-Identifier: Apache-2.0
#include "engine/fingerprint.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/gguf_writer.h"

namespace weir {
namespace {

// FNV-1a of bytes.
uint64_t Hash(const std::string& bytes) {
  uint64_t sum = 14695981039346656037u;
  for (const char byte : bytes) sum = (sum ^ static_cast<uint8_t>(byte)) * 1099511628211u;
  return sum;
}

template <typename T>
std::string Raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// As session files have it: the file's size, then name, shape, type and the first 64 bytes of each tensor.
TEST(Fingerprint, OfAModelIsWhatSessionFilesHave) {
  const std::vector<uint8_t> first(96, 1), second(34, 2), third(84, 3);
  GgufWriter writer;
  writer.AddTensor("a", DType::kF32, {2, 12}, first);
  writer.AddTensor("bc", DType::kQ8_0, {32}, second);
  writer.AddTensor("d", DType::kQ2_K, {256}, third);
  const auto bytes = writer.Bytes();
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  const auto file = GgufFile::Parse(*bytes, "test");
  ASSERT_TRUE(file.ok()) << file.status().message();
  // Types of the first release have numbers of their own, others those of the format behind them.
  const std::string want = Raw(static_cast<int64_t>(bytes->size())) +  //
                           "a" + Raw<int64_t>(2) + Raw<int64_t>(12) + Raw<uint8_t>(0) + std::string(64, 1) + "bc" +
                           Raw<int64_t>(32) + Raw<uint8_t>(4) + std::string(34, 2) +  //
                           "d" + Raw<int64_t>(256) + Raw<uint8_t>(128 + 10) + std::string(64, 3);
  EXPECT_EQ(ModelHash(**file), Hash(want));
}

}  // namespace
}  // namespace weir
