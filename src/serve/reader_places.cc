// SPDX-License-Identifier: Apache-2.0
#include "serve/reader_places.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>

namespace weir {
namespace {

std::atomic<int> n_places{0};

}  // namespace

ReaderPlace::ReaderPlace() : n_(n_places.fetch_add(1) + 1) {}
ReaderPlace::~ReaderPlace() { n_places.fetch_sub(1); }

ApiError ReaderPlace::Check(const HttpLimits& limits) const {
  const int most = limits.n_threads < 2 ? 0 : std::max(1, limits.n_threads / 4);
  if (most == 0) return {400, "", "this needs a server with --connections 2 or more"};
  if (n_ > most) return {429, "too_many_readers", fmt::format("{} clients read events already", most)};
  return {0, "", ""};
}

}  // namespace weir
