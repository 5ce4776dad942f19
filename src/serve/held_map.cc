// SPDX-License-Identifier: Apache-2.0
#include "serve/held_map.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace weir {
Json HeldMap(const Session& session, int64_t n_bins) {
  const Pot& pot = session.pot();
  const PotShape& shape = pot.shape();
  const SessionCounters counters = session.counters();
  const int64_t per_bin = std::max<int64_t>(1, (counters.seen + n_bins - 1) / n_bins);
  const size_t bins = static_cast<size_t>((counters.seen + per_bin - 1) / per_bin);
  const size_t rows = shape.granularity == Granularity::kGlobal ? 1 : static_cast<size_t>(shape.n_layers);
  const int32_t heads = shape.granularity == Granularity::kPerHead ? shape.n_kv_heads : 1;
  constexpr size_t n_kinds = kNumModalities;
  // [modality][row][bin]
  std::vector<double> counts(n_kinds * rows * bins);
  bool any[n_kinds] = {};
  for (int32_t group = 0; group < shape.n_groups(); ++group) {
    const size_t row = static_cast<size_t>(group / heads);
    for (const SlotMeta& slot : pot.meta(group)) {
      const size_t modality = static_cast<size_t>(slot.modality);
      any[modality] = true;
      counts[(modality * rows + row) * bins + static_cast<size_t>(slot.seq / per_bin)] += 1.0 / heads;
    }
  }
  Json held = Json::object();
  for (size_t m = 0; m < n_kinds; ++m) {
    if (!any[m]) continue;
    Json& list = held[ModalityName(static_cast<Modality>(m))] = Json::array();
    for (size_t row = 0; row < rows; ++row) {
      Json numbers = Json::array();
      for (size_t bin = 0; bin < bins; ++bin) {
        numbers.push_back(std::round(counts[(m * rows + row) * bins + bin] * 10) / 10);
      }
      list.push_back(std::move(numbers));
    }
  }
  return {{"object", "held"}, {"seen", counters.seen}, {"kept", counters.kept},     {"dropped", counters.dropped},
          {"layers", rows},   {"bins", bins},          {"tokens_per_bin", per_bin}, {"held", std::move(held)}};
}

std::array<HeldSpan, kNumModalities> HeldSpans(const Pot& pot) {
  std::array<HeldSpan, kNumModalities> out{};
  for (int32_t group = 0; group < pot.shape().n_groups(); ++group) {
    for (const SlotMeta& slot : pot.meta(group)) {
      HeldSpan& span = out[static_cast<size_t>(slot.modality)];
      if (span.from_ms < 0 || slot.t_src_ms < span.from_ms) span.from_ms = slot.t_src_ms;
      span.to_ms = std::max(span.to_ms, slot.t_src_ms);
    }
  }
  return out;
}

Json ModalitiesJson(const SessionCounters& counters, const std::array<HeldSpan, kNumModalities>& spans) {
  Json out = Json::object();
  for (size_t m = 0; m < spans.size(); ++m) {
    const TokenCounters& tokens = counters.by[m];
    if (tokens.seen == 0) continue;
    Json& one = out[ModalityName(static_cast<Modality>(m))];
    one = {{"seen", tokens.seen}, {"kept", tokens.kept}, {"dropped", tokens.dropped}};
    if (spans[m].from_ms < 0) continue;
    one["from_ms"] = spans[m].from_ms;
    one["to_ms"] = spans[m].to_ms;
  }
  return out;
}

int64_t UnboundedBytes(const Session& session) {
  const PotShape& shape = session.pot().shape();
  const int64_t per_slot =
      shape.n_heads_total() * (RowBytes(shape.k_type, shape.head_dim) + RowBytes(shape.v_type, shape.head_dim));
  return session.plan().total_bytes - session.ledger().used_bytes(MemTag::kKv) + session.counters().seen * per_slot;
}

}  // namespace weir
