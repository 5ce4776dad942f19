// SPDX-License-Identifier: Apache-2.0
// Pictures and video as RGB frames, decoded by `ffmpeg` and `ffprobe` in child processes (media/child.h): any codec,
// container, webcam or stream they support, with no parser of untrusted bytes in this process.
//
// A source is named by one text:
//   a path         a regular file, recognised by its contents, not its name; a named pipe; a camera (/dev/video*)
//   -              standard input
//   rtsp://...     a network stream, rtsps:, http: and https: too, only if named by the user. No file can make ffmpeg
//                  open a network connection: for everything else the protocols are limited to `file` and `pipe`.
// Names never reach ffmpeg's own name syntax (patterns, protocols, options): a file is opened here and passed as an
// open descriptor.
//
// Pixels are reserved in the caller's ledger under kVision before they are allocated; sizes are checked against the
// limits first.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/ledger.h"
#include "base/memory.h"
#include "base/status.h"
#include "media/child.h"

namespace weir {

// Programs and their limits for one source.
struct MediaOptions {
  std::string ffmpeg = "ffmpeg", ffprobe = "ffprobe";  // names or paths
  int64_t max_pixels = int64_t{1} << 26;               // of one picture or frame: 8192 x 8192
  int64_t max_decoded_pixels = INT64_MAX;              // the same after shrinking
  int32_t max_side = 0;      // pictures are shrunk to at most this many pixels on their longer side; 0: not shrunk
  int64_t wall_ms = 30'000;  // for a probe or one picture; a video's next frame must begin within it
  int64_t cpu_s = 60;        // CPU time of a probe or one picture
  int64_t memory_bytes = int64_t{4} << 30;  // address space of a child
  // Whether they reach nothing but themselves and the source (media/decoder_sandbox.h), where the kernel can do that.
  bool sandbox = true;
};

// What a source declares itself to be. Unknown numbers are 0.
struct MediaInfo {
  std::string format, codec;      // "mov,mp4,m4a,...", "h264"
  int32_t width = 0, height = 0;  // as stored: a rotation in the file's metadata is not applied
  double fps = 0;
  int64_t duration_ms = 0;
  bool has_audio = false;
};

// RGB, 8 bits each, rows from the top, no padding.
struct Image {
  int32_t width = 0, height = 0;
  HostBuffer pixels;  // 3 * width * height bytes and the rest of the last page
  const uint8_t* rgb() const { return pixels.data(); }
};

// kNotFound: no such file, or no ffprobe. kInvalidArgument: a directory, or a source that can only be read once
// (standard input, pipes). kCorrupt: not media, or damaged; the message quotes ffprobe. kUnsupported: it has no picture
// (audio only), or one larger than the limits. kIo: a limit was exceeded.
Result<MediaInfo> ProbeMedia(const std::string& source, const MediaOptions& options = {});

// The picture, or a video's first frame, upright. Errors as above; kOverBudget when the ledger has no room for it.
Result<Image> DecodeImage(const std::string& source, Ledger& ledger, const MediaOptions& options = {});

struct FrameOptions {
  MediaOptions media;
  double fps = 1;  // frames a second of source time; above 0, at most 1000
  // A source that declares itself to be longer is refused: a header of a few bytes may claim years of one frame. 0:
  // any.
  int64_t max_frames = 0;
  bool real_time = false;  // a file's frames are read in real time (those of cameras and streams always are)
  int64_t cpu_s = 0;       // CPU time of the whole video; 0: unlimited, as a stream never ends
};

// One decoded frame. `rgb` belongs to the reader and is valid until its next call.
struct Frame {
  int64_t index = 0;
  int64_t t_src_ms = 0;  // index / fps: the last frame shown at or before that moment, never a later one
  int32_t width = 0, height = 0;
  const uint8_t* rgb = nullptr;
};

// Frames of a video at a fixed rate of source time. ffmpeg fills the pipe and then waits: memory does not grow with the
// video, and only one frame's pixels are reserved in the ledger at a time.
class FrameReader {
 public:
  // Starts ffmpeg. kInvalidArgument for options out of range or more than FrameOptions::max_frames, otherwise errors as
  // in ProbeMedia.
  static Result<std::unique_ptr<FrameReader>> Open(const std::string& source, Ledger& ledger,
                                                   const FrameOptions& options);

  // The next frame, or false at the end. kCorrupt when the stream is damaged beyond what ffmpeg conceals or has no
  // picture, kIo when no data arrives or FrameOptions::cpu_s is used up, kCancelled when `*stop` became true,
  // kOverBudget when frames grow beyond the ledger. After an error or the end, every call returns the same result.
  Result<bool> Next(Frame* frame, const std::atomic<bool>* stop = nullptr);

 private:
  FrameReader(Ledger& ledger, const FrameOptions& options) : ledger_(ledger), options_(options) {}
  Result<bool> ReadFrame(Frame* frame, const std::atomic<bool>* stop);

  Ledger& ledger_;
  FrameOptions options_;
  std::string source_;
  std::unique_ptr<Child> child_;
  HostBuffer pixels_;
  int64_t n_frames_ = 0;
  bool ended_ = false;
  Status status_;
};

}  // namespace weir
