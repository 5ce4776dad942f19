// SPDX-License-Identifier: Apache-2.0
// Connections that stay open: readers of events, and WebSockets. Each holds one of the server's threads, so that only
// some of them may do so.
#pragma once

#include "serve/api_error.h"
#include "serve/http_server.h"

namespace weir {

class ReaderPlace {
 public:
  // One more is there until the object goes.
  ReaderPlace();
  ~ReaderPlace();
  ReaderPlace(const ReaderPlace&) = delete;
  ReaderPlace& operator=(const ReaderPlace&) = delete;

  // http 0, or 429 where more than a quarter of the threads, or one of two or three, would be held; 400 where there is
  // only one, which is for everybody.
  ApiError Check(const HttpLimits& limits) const;

 private:
  const int n_;  // with this one
};

}  // namespace weir
