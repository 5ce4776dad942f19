// SPDX-License-Identifier: Apache-2.0
#include "engine/session/partial_reads.h"

namespace weir {

void PartialReads::LayOut(const PotShape& pot, const PolicyNeeds& needs, BufferSpace* space) {
  if (needs.read_every <= 1) return;
  const int64_t list_bytes = pot.max_head_slots() * static_cast<int64_t>(sizeof(int32_t)) + sizeof(KeepSet);
  space->Reserve(MemTag::kMeta, pot.n_groups() * list_bytes);
}

void PartialReads::Prepare() {
  if (core_.needs.read_every <= 1) return;
  const PotShape& shape = core_.pot->shape();
  reads_.resize(static_cast<size_t>(shape.n_groups()));
  for (KeepSet& read : reads_) read.reserve(static_cast<size_t>(shape.max_head_slots()));
}

const KeepSet* PartialReads::Begin(const Chunk& chunk) {
  const bool fresh = fresh_at_ == core_.stream.n_selections;
  fresh_at_ = -1;  // until the row is read
  if (reads_.empty() || !chunk.generated || chunk.n != 1 || chunk.tokens == nullptr) return nullptr;
  if (core_.stream.n_seen_visual() == 0 || n_since_full_ + 1 >= core_.needs.read_every) return nullptr;
  if (!fresh) selector_.SelectRead(reads_);
  // The token's own slot, in every group.
  for (size_t group = 0; group < reads_.size(); ++group) {
    reads_[group].push_back(static_cast<int32_t>(core_.pot->meta(static_cast<int32_t>(group)).size()));
  }
  return reads_.data();
}

void PartialReads::End(const BatchItem& item) {
  n_since_full_ = item.reads == nullptr ? 0 : n_since_full_ + 1;
  fresh_at_ = item.reads == nullptr ? -1 : core_.stream.n_selections;
}

}  // namespace weir
