// SPDX-License-Identifier: Apache-2.0
// `weir watch --pictures FOLDER`: a PNG file with each event, of what the stream showed when it was found.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "vision/small_copy.h"

namespace weir::app {

class EventFiles {
 public:
  static constexpr int64_t kMostPixels = 512 * 512;
  static constexpr int64_t kMostFiles = 1000;       // of one run: the newest
  static constexpr size_t kMostFolderBytes = 1024;  // of its name, which is a part of events

  // What Make() reserves, and what writing a file takes.
  static int64_t Bytes();
  // Of a file, and of making it.
  static int64_t MostPngBytes();
  // Makes the folder if there is none. kIo where that fails, or nothing can be written there; kInvalidArgument for a
  // long name.
  static Status MakeFolder(const std::string& folder);
  static Result<std::unique_ptr<EventFiles>> Make(const std::string& folder, Ledger& ledger);

  // The stream shows this now: an input that Preprocess() made of a picture of size `source`.
  void See(const float* input, const ImageTransform& transform, PictureSize source);
  struct File {
    std::string path, png;  // empty where the stream showed nothing yet
  };
  // The event's file. REQUIRES: events are 1, 2, ... in order. kIo.
  Result<File> Write(int64_t event);

 private:
  EventFiles(std::string stem, Reservation reservation, HostBuffer pixels)
      : stem_(std::move(stem)), reservation_(std::move(reservation)), pixels_(std::move(pixels)) {}
  std::string PathOf(int64_t event) const;

  const std::string stem_;  // of the files: the folder, and when this run began
  Reservation reservation_;
  HostBuffer pixels_;
  PictureSize size_;  // no sides: nothing yet
};

}  // namespace weir::app
