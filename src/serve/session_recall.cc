// SPDX-License-Identifier: Apache-2.0
#include "serve/session_recall.h"

#include "serve/api_error.h"

namespace weir {

SessionRecall::~SessionRecall() {
  if (stays) return;
  if (stream != nullptr) (void)stream->archive().Remove();
  stream.reset();
  if (!own_dir.empty()) (void)Archive::Delete(own_dir);  // one that could not be opened
}

std::string SessionRecall::Notes() const {
  std::string out = note;
  const auto add = [&](const std::string& text) {
    if (!text.empty()) out += (out.empty() ? "" : "; ") + text;
  };
  if (stream != nullptr) {
    const Status& state = stream->archive().state();
    if (!state.ok()) add(state.message());
    add(stream->archive().stores_state().message());
    add(stream->archive().notes().Text());
  }
  // Clients need not know where the server keeps it.
  const size_t parent = own_dir.rfind('/');
  return parent == std::string::npos ? out
                                     : WithoutFolder(InvalidArgument("{}", out), own_dir.substr(0, parent)).message();
}

}  // namespace weir
