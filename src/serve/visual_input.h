// SPDX-License-Identifier: Apache-2.0
// Pictures and video of a request: files in base64, and their times.
//
// The bytes are not inspected here; ffmpeg does that later. Nothing is fetched: a remote URL is refused.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/json.h"

namespace weir {

// The largest stream time in ms: 35,000 years. The sum of two such times does not overflow.
inline constexpr int64_t kMaxMoment = int64_t{1} << 50;

struct VisualInput {
  enum class Kind {
    kPicture,  // files[0]
    kVideo,    // files[0], sampled at `fps` frames per second of its own time
    kFrames    // one picture per file, at times t_ms: one video
  };
  Kind kind = Kind::kPicture;
  std::string where;  // the field, for messages: "messages[0].content[1].image_url"
  std::vector<std::string> files;
  double fps = 1;
  std::vector<int64_t> t_ms;  // of kFrames, ascending, from the beginning of the video
};

// The bytes of a `data:` URL in base64, or of bare base64. kUnsupported for a URL that would have to be fetched,
// kInvalidArgument for anything else; messages begin with 'where'.
Result<std::string> FileBytes(const std::string& text, const std::string& where);

// {"url": DATA, "detail": ...} -> a picture. `detail` has no effect: the encoder decides.
Result<VisualInput> ParsePicture(const Json& json, const std::string& where);
// {"data": DATA, "fps": F} -> a video; {"frames": [DATA, ...], "fps": F or "t_ms": [...]} -> frames. `format` has no
// effect: it is detected from the bytes.
Result<VisualInput> ParseVideo(const Json& json, const std::string& where);

}  // namespace weir
