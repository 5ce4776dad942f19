// SPDX-License-Identifier: Apache-2.0
#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/rng.h"

namespace weir {
namespace {

using Bytes = std::vector<uint8_t>;

// RFC 3720, appendix B.4, which prints the bytes of the sums in the order of the wire.
TEST(Crc32c, VectorsOfTheRfc) {
  Bytes up(32), down(32);
  std::iota(up.begin(), up.end(), 0);
  std::iota(down.rbegin(), down.rend(), 0);
  const Bytes read = {0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                      0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18,
                      0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
  const std::pair<Bytes, uint32_t> vectors[] = {{Bytes(32, 0), 0x8a9136aa}, {Bytes(32, 0xff), 0x62a8ab43},
                                                {up, 0x46dd794e},           {down, 0x113fdb5c},
                                                {read, 0xd9963a56},         {{}, 0}};
  for (const auto& [bytes, want] : vectors) {
    EXPECT_EQ(Crc32c(bytes), want);
    EXPECT_EQ(Crc32cByTables(bytes), want);
  }
}

TEST(Crc32c, PiecesGiveTheSumOfTheWhole) {
  Rng rng(1);
  Bytes bytes(300);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Next());
  const std::span<const uint8_t> all(bytes);
  const uint32_t whole = Crc32c(all);
  for (size_t cut = 0; cut <= all.size(); ++cut) {
    EXPECT_EQ(Crc32c(all.subspan(cut), Crc32c(all.first(cut))), whole);
    EXPECT_EQ(Crc32cByTables(all.subspan(cut), Crc32cByTables(all.first(cut))), whole);
    EXPECT_EQ(Crc32c(all.subspan(cut)), Crc32cByTables(all.subspan(cut)));  // every alignment and length
  }
}

}  // namespace
}  // namespace weir
