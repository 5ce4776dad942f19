// SPDX-License-Identifier: Apache-2.0
#include "serve/save_kills.h"

#include <gtest/gtest.h>

namespace weir::testing {
namespace {

TEST(SaveKills, TwoHundred) { KillDuringSaves(200); }

}  // namespace
}  // namespace weir::testing
