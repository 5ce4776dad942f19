// SPDX-License-Identifier: Apache-2.0
#include "text/picture_marks.h"

#include <gtest/gtest.h>

#include "text/chat_template.h"

namespace weir {
namespace {

TEST(PictureMarks, PiecesAreCutAtAMarkOfTheUsers) {
  const std::vector<TextPiece> pieces = {{"<u> MARK", true}, {"a MARKbMARK", false}, {"</u>", true}};
  const auto parts = SplitAtMark(pieces, "MARK");
  ASSERT_EQ(parts.size(), 3u);  // not in the template's own words
  EXPECT_EQ(JoinPieces(parts[0]), "<u> MARKa ");
  EXPECT_EQ(JoinPieces(parts[1]), "b");
  EXPECT_EQ(JoinPieces(parts[2]), "</u>");
  EXPECT_TRUE(parts[2][0].parse_special);
  EXPECT_EQ(SplitAtMark(pieces, "NONE").size(), 1u);
}

}  // namespace
}  // namespace weir
