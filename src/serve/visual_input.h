// SPDX-License-Identifier: Apache-2.0
// Pictures and video as a request brings them: files in base64, and the moments they show.
//
// Nothing is looked into here: what the bytes are, ffmpeg says later. Nothing is fetched: an address of another machine
// is refused by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/json.h"

namespace weir {

// The last moment of a stream in ms: 35,000 years. Sums of two moments are numbers, too.
inline constexpr int64_t kMaxMoment = int64_t{1} << 50;

struct VisualInput {
  enum class Kind {
    kPicture,  // files[0]
    kVideo,    // files[0], looked at `fps` times a second of its own time
    kFrames    // one picture a file, of moments t_ms: one video
  };
  Kind kind = Kind::kPicture;
  std::string where;  // the field, for messages: "messages[0].content[1].image_url"
  std::vector<std::string> files;
  double fps = 1;
  std::vector<int64_t> t_ms;  // of kFrames, ascending, from the beginning of the video
};

// The bytes of a `data:` URL in base64, or of bare base64. kUnsupported for an address that would have to be fetched,
// kInvalidArgument for anything else; messages begin with 'where'.
Result<std::string> FileBytes(const std::string& text, const std::string& where);

// {"url": DATA, "detail": ...} -> a picture. `detail` has no effect: the encoder decides.
Result<VisualInput> ParsePicture(const Json& json, const std::string& where);
// {"data": DATA, "fps": F} -> a video; {"frames": [DATA, ...], "fps": F or "t_ms": [...]} -> frames. `format` has no
// effect: the bytes say what they are.
Result<VisualInput> ParseVideo(const Json& json, const std::string& where);

}  // namespace weir
