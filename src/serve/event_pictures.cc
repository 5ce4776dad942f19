// SPDX-License-Identifier: Apache-2.0
#include "serve/event_pictures.h"

#include <algorithm>
#include <utility>

namespace weir {

int64_t EventPictures::Bytes(const ImageTransform& transform) {
  return PageRound(static_cast<int64_t>(kMost + 1) * 3 * MostPixelsOf(transform, kMostPixels));
}

Result<std::shared_ptr<EventPictures>> EventPictures::Make(const ImageTransform& transform, Ledger& ledger) {
  WEIR_ASSIGN_OR_RETURN(HostBuffer block, HostBuffer::Allocate(ledger, MemTag::kVision, Bytes(transform)));
  return std::shared_ptr<EventPictures>(new EventPictures(transform, std::move(block)));
}

EventPictures::EventPictures(const ImageTransform& transform, HostBuffer block)
    : transform_(transform), most_(MostPixelsOf(transform, kMostPixels)), block_(std::move(block)) {}

void EventPictures::See(const RgbView& picture) { now_ = CopySmall(picture, most_, PixelsOf(kMost)); }

void EventPictures::See(const float* input, PictureSize source) {
  now_ = CopySmall(input, transform_, source, most_, PixelsOf(kMost));
}

bool EventPictures::Keep(int64_t event) {
  if (now_.width == 0) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t place = std::exchange(next_, (next_ + 1) % kMost);
  places_[place] = {event, now_};
  std::copy_n(PixelsOf(kMost), int64_t{3} * now_.width * now_.height, PixelsOf(place));
  return true;
}

std::optional<EventPictures::Copy> EventPictures::Get(int64_t event) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t i = 0; i < kMost; ++i) {
    if (places_[i].event != event || event == 0) continue;
    const PictureSize size = places_[i].size;
    const uint8_t* const from = PixelsOf(i);
    return Copy{{from, from + int64_t{3} * size.width * size.height}, size};
  }
  return std::nullopt;
}

}  // namespace weir
