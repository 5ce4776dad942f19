// SPDX-License-Identifier: Apache-2.0
// A picture with each event of a session's rules: a small copy of what the stream showed when the event was found.
//
// The copies lie in a block of fixed size. The newest few are kept; where a new one comes, the oldest goes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "vision/small_copy.h"

namespace weir {

class EventPictures {
 public:
  static constexpr size_t kMost = 16;
  static constexpr int64_t kMostPixels = 32768;  // of one: 241 x 135, 209 x 156

  // Bytes that Make() reserves under kVision, for an encoder's transform. Readers may hold it for longer than its
  // session is there: `ledger` outlives both.
  static int64_t Bytes(const ImageTransform& transform);
  static Result<std::shared_ptr<EventPictures>> Make(const ImageTransform& transform, Ledger& ledger);
  EventPictures(const EventPictures&) = delete;
  EventPictures& operator=(const EventPictures&) = delete;

  int64_t bytes() const { return block_.bytes(); }

  // The stream shows this now: a picture or, for an input of the transform, what it was made of. [engine]
  void See(const RgbView& picture);
  void See(const float* input, PictureSize source);
  // Keeps what the stream shows for this event. False if it showed nothing yet. [engine]
  bool Keep(int64_t event);

  struct Copy {
    std::vector<uint8_t> bytes;
    PictureSize size;
    RgbView view() const { return {bytes.data(), size.width, size.height}; }
  };
  // nullopt: it is not kept, or there was none. Any thread.
  std::optional<Copy> Get(int64_t event) const;

 private:
  struct Place {
    int64_t event = 0;
    PictureSize size;
  };
  EventPictures(const ImageTransform& transform, HostBuffer block);
  uint8_t* PixelsOf(size_t place) const { return block_.data() + static_cast<int64_t>(place) * 3 * most_; }

  const ImageTransform transform_;
  const int64_t most_;  // pixels of one
  HostBuffer block_;    // kMost copies, and what the stream shows
  PictureSize now_;     // of the last of them; no sides: nothing yet
  mutable std::mutex mutex_;
  Place places_[kMost];
  size_t next_ = 0;
};

}  // namespace weir
