// SPDX-License-Identifier: Apache-2.0
// Where the visual parts of a prompt come from.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/session.h"

namespace weir {

class PictureSource {
 public:
  virtual ~PictureSource() = default;

  // Whether ReadNext() would not wait. [engine]
  virtual bool Ready() = 0;
  // Reads the next picture of the current part into the session and gives its moment; nullopt when the part has no
  // more: the next part is then the current one. append.t_src_ms is the moment at which the part began. [engine]
  virtual Result<std::optional<int64_t>> ReadNext(Session& session, const Session::AppendOptions& append) = 0;
};

}  // namespace weir
