// SPDX-License-Identifier: Apache-2.0
// Any text as a request's body, as the text of a snapshot, as the bytes of a picture: refused in one line, or read.
#include <cstdlib>
#include <string_view>

#include "base/base64.h"
#include "chat/session_file.h"
#include "io/json.h"
#include "serve/visual_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto bytes = weir::DecodeBase64(text); bytes.ok() && bytes->size() > text.size() / 4 * 3 + 3) std::abort();
  const auto one_line = [](const weir::Status& status) {
    if (!status.ok() && status.message().find('\n') != std::string::npos) std::abort();
  };
  const auto json = weir::ParseJsonObject(text);
  one_line(json.status());
  if (!json.ok()) return 0;
  const std::string written = weir::JsonText(*json);
  const auto again = weir::ParseJsonObject(written);
  if (!again.ok() || weir::JsonText(*again) != written) std::abort();
  one_line(weir::ParsePicture(*json, "a").status());
  const auto video = weir::ParseVideo(*json, "a");
  one_line(video.status());
  if (video.ok() && !video->t_ms.empty() && video->t_ms.size() != video->files.size()) std::abort();
  if (const auto note = weir::SessionNote::Parse(text); note.ok()) {
    const auto same = weir::SessionNote::Parse(note->ToText());
    if (!same.ok() || same->ToText() != note->ToText()) std::abort();
    auto sampler = weir::Sampler::Create({});
    if (!sampler.ok()) std::abort();
    (void)weir::RestoreSampler(note->sampler, &*sampler);
  }
  return 0;
}
