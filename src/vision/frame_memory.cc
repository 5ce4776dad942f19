// SPDX-License-Identifier: Apache-2.0
#include "vision/frame_memory.h"

#include <algorithm>
#include <cmath>

namespace weir {
namespace {

struct StateHeader {
  int64_t n_taken;
  int64_t fresh;
};

}  // namespace

int64_t FrameMemory::state_bytes() const {
  int64_t bytes = sizeof(StateHeader);
  for (const Numbers& part : InUse()) {
    bytes += static_cast<int64_t>(part.values.size_bytes() + part.weights.size_bytes());
  }
  return bytes;
}

Status FrameMemory::Save(ByteSink& sink) const {
  const StateHeader header = {progress().n_taken, progress().fresh};
  WEIR_RETURN_IF_ERROR(sink.Write(BytesOf(std::span(&header, 1))));
  for (const Numbers& part : InUse()) {
    WEIR_RETURN_IF_ERROR(sink.Write(BytesOf(std::span<const float>(part.values))));
    WEIR_RETURN_IF_ERROR(sink.Write(BytesOf(std::span<const double>(part.weights))));
  }
  return Status();
}

Status FrameMemory::Restore(ByteSource& source) {
  const auto restore = [&]() -> Status {
    const Status bad = InvalidArgument("these bytes are not the saved frames of this encoder");
    StateHeader header;
    WEIR_RETURN_IF_ERROR(source.Read(BytesOf(std::span(&header, 1))));
    if (header.fresh < 0 || header.fresh > 1 || !Become({header.n_taken, header.fresh == 1})) return bad;
    const double most = static_cast<double>(header.n_taken);
    for (const Numbers& part : InUse()) {
      WEIR_RETURN_IF_ERROR(source.Read(BytesOf(part.values)));
      WEIR_RETURN_IF_ERROR(source.Read(BytesOf(part.weights)));
      // Frames are compared and sorted by these numbers.
      if (!std::all_of(part.values.begin(), part.values.end(), [](float v) { return std::isfinite(v); }) ||
          !std::all_of(part.weights.begin(), part.weights.end(), [&](double w) { return w >= 0 && w <= most; })) {
        return bad;
      }
    }
    return Status();
  };
  const Status status = restore();
  if (!status.ok()) Clear();
  return status;
}

void FrameMemory::CopyFrom(const FrameMemory& other) {
  if (this == &other) return;
  (void)Become(other.progress());
  const std::vector<Numbers> from = other.InUse(), to = InUse();
  for (size_t i = 0; i < from.size(); ++i) {
    std::copy(from[i].values.begin(), from[i].values.end(), to[i].values.begin());
    std::copy(from[i].weights.begin(), from[i].weights.end(), to[i].weights.begin());
  }
}

}  // namespace weir
