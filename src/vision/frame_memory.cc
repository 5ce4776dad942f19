// SPDX-License-Identifier: Apache-2.0
#include "vision/frame_memory.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace weir {
namespace {

struct StateHeader {
  int64_t n_taken;
  int64_t fresh;
};

// Frames are compared and sorted by these numbers.
bool AllFit(std::span<const float> values, double) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}
bool AllFit(std::span<const double> weights, double most) {
  return std::all_of(weights.begin(), weights.end(), [&](double w) { return w >= 0 && w <= most; });
}

// Reads as many numbers as `like` has, a few at a time.
template <typename T>
Status CheckNumbers(ByteSource& source, std::span<const T> like, double most) {
  std::array<T, 512> some;
  for (size_t at = 0; at < like.size(); at += some.size()) {
    const std::span<T> part = std::span<T>(some).first(std::min(some.size(), like.size() - at));
    WEIR_RETURN_IF_ERROR(source.Read(BytesOf(part)));
    if (!AllFit(std::span<const T>(part), most)) return NotSavedFrames();
  }
  return Status();
}

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

Status FrameMemory::Check(ByteSource& source) {
  StateHeader header;
  WEIR_RETURN_IF_ERROR(source.Read(BytesOf(std::span(&header, 1))));
  const Progress before = progress();
  if (header.fresh < 0 || header.fresh > 1 || !Become({header.n_taken, header.fresh == 1})) return NotSavedFrames();
  const std::vector<Numbers> like = InUse();
  (void)Become(before);
  const double most = static_cast<double>(header.n_taken);
  for (const Numbers& part : like) {
    WEIR_RETURN_IF_ERROR(CheckNumbers<float>(source, part.values, most));
    WEIR_RETURN_IF_ERROR(CheckNumbers<double>(source, part.weights, most));
  }
  return Status();
}

Status FrameMemory::Restore(ByteSource& source) {
  const auto restore = [&]() -> Status {
    StateHeader header;
    WEIR_RETURN_IF_ERROR(source.Read(BytesOf(std::span(&header, 1))));
    if (header.fresh < 0 || header.fresh > 1 || !Become({header.n_taken, header.fresh == 1})) return NotSavedFrames();
    const double most = static_cast<double>(header.n_taken);
    for (const Numbers& part : InUse()) {
      WEIR_RETURN_IF_ERROR(source.Read(BytesOf(part.values)));
      WEIR_RETURN_IF_ERROR(source.Read(BytesOf(part.weights)));
      if (!AllFit(part.values, most) || !AllFit(part.weights, most)) return NotSavedFrames();
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
