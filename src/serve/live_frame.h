// SPDX-License-Identifier: Apache-2.0
// A frame of a session's live video on its way into the session's queue: decoded where it has to be, and read by a job
// that this posts if there is none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "serve/frame_queue.h"
#include "serve/host.h"

namespace weir {

struct LiveFrame {
  std::string_view bytes;         // a file (JPEG, PNG ...) or, with a size, three bytes for every pixel
  int32_t width = 0, height = 0;  // 0: a file
  int64_t t_ms = 0;
  const char* where = "frame";  // the field that errors name
};

// On any thread but the engine's; takes as long as decoding does. Errors of decoding and of FrameQueue::Push().
Status PushLiveFrame(Host& host, const std::string& session, const std::shared_ptr<FrameQueue>& queue,
                     DecodeLanes::Lane lane, const LiveFrame& frame);

}  // namespace weir
