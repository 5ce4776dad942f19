// SPDX-License-Identifier: Apache-2.0
// Pictures and videos for tests, as bytes that ffmpeg reads: uncompressed, so that every pixel is known.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/base64.h"

namespace weir::testing {

inline bool HasFfmpeg() {
  static const bool found = std::system("ffmpeg -version >/dev/null 2>&1 && ffprobe -version >/dev/null 2>&1") == 0;
  return found;
}

// A slope of colours; `shade` makes another picture.
inline std::string PpmBytes(int64_t width, int64_t height, int64_t shade = 0) {
  std::string out = "P6\n" + std::to_string(width) + " " + std::to_string(height) + "\n255\n";
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < 3; ++c) out.push_back(static_cast<char>((7 * x + 31 * y + 85 * c + shade) % 256));
    }
  }
  return out;
}

// n frames of one grey each, frame k as bright as 16 + 2 k.
inline std::string Y4mBytes(int n, int fps, int width = 32, int height = 16) {
  std::string out = "YUV4MPEG2 W" + std::to_string(width) + " H" + std::to_string(height) + " F" + std::to_string(fps) +
                    ":1 Ip A1:1 C420jpeg\n";
  for (int k = 0; k < n; ++k) {
    out += "FRAME\n";
    out.append(static_cast<size_t>(width * height), static_cast<char>(16 + 2 * k % 220));
    out.append(static_cast<size_t>(width * height / 2), static_cast<char>(128));
  }
  return out;
}

inline std::string DataUrl(const std::string& bytes) {
  return "data:application/octet-stream;base64," + EncodeBase64(bytes);
}

}  // namespace weir::testing
