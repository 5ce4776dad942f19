// SPDX-License-Identifier: Apache-2.0
#include "serve/visual_input.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/ascii.h"
#include "base/base64.h"

namespace weir {
namespace {

bool StartsWithWord(std::string_view text, std::string_view word) {
  return text.size() >= word.size() &&
         std::equal(word.begin(), word.end(), text.begin(), [](char a, char b) { return a == AsciiLower(b); });
}

// Times of frames: as given, or derived from `fps`.
Result<std::vector<int64_t>> Moments(const Json* given, size_t n, double fps, const std::string& where) {
  std::vector<int64_t> out;
  for (size_t i = 0; i < n && given == nullptr; ++i) {
    out.push_back(std::llround(static_cast<double>(i) * 1000 / fps));
  }
  if (given == nullptr) return out;
  const Status bad =
      InvalidArgument("'{}.t_ms' must be a list of {} times in milliseconds that do not decrease", where, n);
  if (!given->is_array() || given->size() != n) return bad;
  for (const Json& value : *given) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(kMaxMoment)) return bad;
    const int64_t t_ms = value.get<int64_t>();
    if (!out.empty() && t_ms < out.back()) return bad;
    out.push_back(t_ms);
  }
  return out;
}

}  // namespace

Result<std::string> FileBytes(const std::string& text, const std::string& where) {
  std::string_view data = text;
  if (StartsWithWord(data, "data:")) {
    const size_t comma = data.find(',');
    if (comma == std::string_view::npos || !data.substr(0, comma).ends_with(";base64")) {
      return InvalidArgument("'{}' must be a data: URL in base64: data:TYPE;base64,...", where);
    }
    data.remove_prefix(comma + 1);
  } else if (data.substr(0, 32).find("://") != std::string_view::npos || StartsWithWord(data, "file:")) {
    return Unsupported("'{}' is an address, and this server fetches nothing; send the bytes as data:TYPE;base64,...",
                       where);
  }
  auto bytes = DecodeBase64(data);
  if (!bytes.ok()) return InvalidArgument("'{}' {}", where, bytes.status().message());
  if (bytes->empty()) return InvalidArgument("'{}' is empty", where);
  return bytes;
}

Result<VisualInput> ParsePicture(const Json& json, const std::string& where) {
  Fields fields(json, where + ".");
  std::string url;
  fields.Get("url", &url);
  if (url.empty()) fields.Fail("url", "is missing");
  fields.Ignore("detail");
  WEIR_RETURN_IF_ERROR(fields.Done());
  VisualInput out;
  out.where = where;
  out.files.emplace_back();
  WEIR_ASSIGN_OR_RETURN(out.files[0], FileBytes(url, where + ".url"));
  return out;
}

Result<VisualInput> ParseVideo(const Json& json, const std::string& where) {
  Fields fields(json, where + ".");
  std::string data;
  float fps = 1;
  fields.Get("data", &data);
  const Json* frames = fields.Get("frames");
  fields.Get("fps", &fps, 1e-4, 100);
  const Json* t_ms = fields.Get("t_ms");
  fields.Ignore("format");
  if (data.empty() == (frames == nullptr)) fields.Fail("data", "or 'frames' must be given, but not both");
  if (frames != nullptr && (!frames->is_array() || frames->empty()))
    fields.Fail("frames", "must be a list of pictures");
  if (t_ms != nullptr && frames == nullptr) fields.Fail("t_ms", "is for 'frames' only; a video has its own times");
  if (t_ms != nullptr && fields.Has("fps")) fields.Fail("t_ms", "and 'fps' cannot be given together");
  WEIR_RETURN_IF_ERROR(fields.Done());
  VisualInput out;
  out.where = where;
  out.fps = fps;
  if (frames == nullptr) {
    out.kind = VisualInput::Kind::kVideo;
    out.files.emplace_back();
    WEIR_ASSIGN_OR_RETURN(out.files[0], FileBytes(data, where + ".data"));
    return out;
  }
  out.kind = VisualInput::Kind::kFrames;
  WEIR_ASSIGN_OR_RETURN(out.t_ms, Moments(t_ms, frames->size(), fps, where));
  for (size_t i = 0; i < frames->size(); ++i) {
    const std::string name = where + ".frames[" + std::to_string(i) + "]";
    if (!(*frames)[i].is_string()) return InvalidArgument("'{}' must be a string", name);
    WEIR_ASSIGN_OR_RETURN(std::string bytes, FileBytes((*frames)[i].get_ref<const std::string&>(), name));
    out.files.push_back(std::move(bytes));
  }
  return out;
}

}  // namespace weir
