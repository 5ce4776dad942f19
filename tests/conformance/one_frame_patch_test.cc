// SPDX-License-Identifier: Apache-2.0
// Encoders of Qwen2-VL's kind whose patches cover one frame: the key says it, whatever stands in the second part.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/edited_model.h"
#include "support/encoder.h"
#include "support/picture.h"

namespace weir {
namespace {

using testing::EditedModel;

constexpr const char* kKey = "clip.vision.temporal_patch_size";
constexpr const char* kSecond = "v.patch_embd.weight.1";

// The rows of one picture; empty with an error in *status.
std::vector<float> RowsOf(const EditedModel& edited, Status* status) {
  const std::string bytes = edited.Bytes();
  auto file = GgufFile::Parse({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "edited.gguf");
  *status = file.status();
  if (!file.ok()) return {};
  const std::unique_ptr<Backend> backend = MakeCpuBackend(1);
  Ledger ledger;
  auto encoder = LoadEncoder(**file, *backend, ledger);
  *status = encoder.status();
  if (!encoder.ok()) return {};
  auto images = std::move(ImageEncoder::Make(**encoder, ledger)).value();
  const std::vector<uint8_t> rgb = testing::Picture(40, 30);
  const auto rows = images->Encode({rgb.data(), 40, 30});
  *status = rows.status();
  return rows.ok() ? std::vector<float>(rows->begin(), rows->end()) : std::vector<float>();
}

TEST(OneFramePatch, TheSecondPartIsNotRead) {
  EditedModel model = EditedModel::FromFile(testing::VisionPath("qwen2vl_merger.gguf"));
  const std::vector<uint8_t> second = model.Tensor(kSecond).data;
  std::ranges::fill(model.Tensor(kSecond).data, 0);
  Status status;
  const std::vector<float> wanted = RowsOf(model, &status);  // of two frames, the second of which counts for nothing
  ASSERT_FALSE(wanted.empty()) << status.message();
  model.metadata[kKey].v = uint32_t{1};
  EXPECT_EQ(RowsOf(model, &status), wanted) << status.message();
  model.Tensor(kSecond).data = second;
  EXPECT_EQ(RowsOf(model, &status), wanted) << status.message();
  model.Remove(kSecond);
  EXPECT_EQ(RowsOf(model, &status), wanted) << status.message();
}

TEST(OneFramePatch, MoreThanTwoFramesAreRefused) {
  EditedModel model = EditedModel::FromFile(testing::VisionPath("qwen2vl_merger.gguf"));
  model.metadata[kKey].v = uint32_t{3};
  Status status;
  EXPECT_TRUE(RowsOf(model, &status).empty());
  EXPECT_NE(status.message().find(kKey), std::string::npos) << status.message();
}

}  // namespace
}  // namespace weir
