// SPDX-License-Identifier: Apache-2.0
#include "chat/logit_edits.h"

namespace weir {

void LogitEdits::Add(std::span<float> logits, int32_t id, float what) {
  float& logit = logits[static_cast<size_t>(id)];
  before_.emplace_back(id, logit);
  logit += what;
}

void LogitEdits::Apply(std::span<float> logits) {
  before_.clear();
  for (const auto& [id, bias] : options_.bias) Add(logits, id, bias);
  for (const auto& [id, n] : counts_) {
    Add(logits, id, -options_.presence_penalty - options_.frequency_penalty * static_cast<float>(n));
  }
}

void LogitEdits::Undo(std::span<float> logits) {
  for (auto it = before_.rbegin(); it != before_.rend(); ++it) logits[static_cast<size_t>(it->first)] = it->second;
  before_.clear();
}

void LogitEdits::Accept(int32_t id) {
  if (options_.presence_penalty != 0 || options_.frequency_penalty != 0) ++counts_[id];
}

}  // namespace weir
