// SPDX-License-Identifier: Apache-2.0
// The source of a prompt's visual parts.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/session.h"

namespace weir {

class PictureSource {
 public:
  virtual ~PictureSource() = default;

  // Whether ReadNext() would return without waiting. [engine]
  virtual bool Ready() = 0;
  // Reads the next picture of the current part into the session and returns its time, or nullopt if the part has no
  // more pictures; the next part is then the current one. append.t_src_ms is the time at which the part began. [engine]
  virtual Result<std::optional<int64_t>> ReadNext(Session& session, const Session::AppendOptions& append) = 0;
};

}  // namespace weir
