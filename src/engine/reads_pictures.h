// SPDX-License-Identifier: Apache-2.0
// Whether a model on a backend reads rows of pictures.
#pragma once

#include <string>

#include "backend/backend.h"
#include "model/architecture.h"

namespace weir {

// Why it does not; empty: it does.
inline std::string WhyNoPictures(const ModelConfig& config, const Backend& backend) {
  if (!config.no_pictures.empty()) return config.no_pictures;
  if (!config.attention.two_way_pictures || backend.on_host()) return {};
  return "attention of a picture's rows to each other is not computed on " + backend.name();
}

}  // namespace weir
