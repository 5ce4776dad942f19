// SPDX-License-Identifier: Apache-2.0
// The frames that a stream keeps, as a visual part of the prompt that asks about them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "chat/picture_source.h"
#include "engine/frame_store.h"

namespace weir {

class RecalledFrames final : public PictureSource {
 public:
  // Both must outlive it.
  RecalledFrames(PictureEncoder& encoder, FrameStore& frames) : encoder_(encoder), frames_(frames) {}

  bool Ready() override { return true; }
  // All kept frames are read as one picture of one part.
  Result<std::optional<int64_t>> ReadNext(Session& session, const Session::AppendOptions& append) override {
    if (std::exchange(read_, true)) return std::optional<int64_t>();
    WEIR_RETURN_IF_ERROR(frames_.Recall(encoder_, session, append));
    return std::optional<int64_t>(std::max(append.t_src_ms, frames_.newest_ms()));
  }

 private:
  PictureEncoder& encoder_;
  FrameStore& frames_;
  bool read_ = false;
};

}  // namespace weir
