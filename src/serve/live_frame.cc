// SPDX-License-Identifier: Apache-2.0
#include "serve/live_frame.h"

#include <optional>
#include <utility>

#include "media/media.h"
#include "media/memory_file.h"
#include "serve/session_job.h"
#include "serve/visual_input.h"

namespace weir {

Status PushLiveFrame(Host& host, const std::string& session, const std::shared_ptr<FrameQueue>& queue,
                     DecodeLanes::Lane lane, const LiveFrame& frame) {
  bool start = false;
  const auto push = [&]() -> Status {
    if (frame.width > 0) {
      const auto* const rgb = reinterpret_cast<const uint8_t*>(frame.bytes.data());
      return queue->Push({rgb, frame.width, frame.height}, frame.t_ms, lane.ledger(), &start);
    }
    WEIR_ASSIGN_OR_RETURN(const MemoryFile file, MemoryFile::Make(frame.bytes));
    const auto image = DecodeImage(file.path(), lane.ledger(), host.vision()->lanes->media());
    if (!image.ok()) return AboutField(image.status(), file.path(), frame.where);
    return queue->Push({image->rgb(), image->width, image->height}, frame.t_ms, lane.ledger(), &start);
  };
  Status pushed = push();
  { const DecodeLanes::Lane free = std::move(lane); }
  if (!start) return pushed;
  auto job = std::make_shared<FrameJob>(host, session, queue);
  if (const Status posted = host.scheduler().PostAlways(job); !posted.ok()) job->Dropped(posted);
  return pushed;
}

}  // namespace weir
