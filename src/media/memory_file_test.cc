// SPDX-License-Identifier: Apache-2.0
#include "media/memory_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace weir {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(MemoryFile, IsAFileForAsLongAsItLives) {
  std::string bytes(300000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 / 5);
  std::string path;
  {
    auto made = MemoryFile::Make(bytes);
    ASSERT_TRUE(made.ok()) << made.status().message();
    const MemoryFile file = *std::move(made);
    path = file.path();
    EXPECT_EQ(ReadAll(path), bytes);
    EXPECT_EQ(ReadAll(path), bytes);  // each opening reads from the beginning
  }
  EXPECT_FALSE(std::ifstream(path).good());
  EXPECT_TRUE(MemoryFile::Make("").ok());
}

}  // namespace
}  // namespace weir
