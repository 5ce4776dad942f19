// SPDX-License-Identifier: Apache-2.0
// -hf OWNER/NAME[:FILE]: a model of huggingface.co by its name. Found where the site's own tool or llama.cpp has put
// it; fetched, by that tool, only when the user asks for it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace weir::app {

struct HubModel {
  std::string repo;  // OWNER/NAME
  // A file's name in the repository ("model-Q4_K_M.gguf", with its folder if it has one), a type ("Q4_K_M"), or empty:
  // the only model there is.
  std::string file;
};
// kInvalidArgument for what is no such name.
Result<HubModel> ParseHubModel(std::string_view text);

// The file's path in the cache of huggingface_hub ($HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub) or of
// llama.cpp
// ($LLAMA_CACHE, ~/.cache/llama.cpp); of a model in parts, the first. kNotFound says how to download it;
// kInvalidArgument if there are several. `download`: runs that command and compares the file's SHA-256 with the one
// that names it (kCorrupt).
Result<std::string> FindHubModel(const HubModel& model, bool download);

}  // namespace weir::app
