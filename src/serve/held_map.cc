#include "serve/held_map.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace weir {
namespace {

constexpr const char* kModalities[] = {"text", "image", "video"};  // in the order of Modality

}  // namespace

Json HeldMap(const Session& session, int64_t n_bins) {
  const Pot& pot = session.pot();
  const PotShape& shape = pot.shape();
  const SessionCounters counters = session.counters();
  const int64_t per_bin = std::max<int64_t>(1, (counters.seen + n_bins - 1) / n_bins);
  const size_t bins = static_cast<size_t>((counters.seen + per_bin - 1) / per_bin);
  const size_t rows = shape.granularity == Granularity::kGlobal ? 1 : static_cast<size_t>(shape.n_layers);
  const int32_t heads = shape.granularity == Granularity::kPerHead ? shape.n_kv_heads : 1;
  // [modality][row][bin]
  std::vector<double> counts(std::size(kModalities) * rows * bins);
  bool any[std::size(kModalities)] = {};
  for (int32_t group = 0; group < shape.n_groups(); ++group) {
    const size_t row = static_cast<size_t>(group / heads);
    for (const SlotMeta& slot : pot.meta(group)) {
      const size_t modality = static_cast<size_t>(slot.modality);
      any[modality] = true;
      counts[(modality * rows + row) * bins + static_cast<size_t>(slot.seq / per_bin)] += 1.0 / heads;
    }
  }
  Json held = Json::object();
  for (size_t m = 0; m < std::size(kModalities); ++m) {
    if (!any[m]) continue;
    Json& list = held[kModalities[m]] = Json::array();
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

int64_t UnboundedBytes(const Session& session) {
  const PotShape& shape = session.pot().shape();
  const int64_t per_slot =
      shape.n_heads_total() * (RowBytes(shape.k_type, shape.head_dim) + RowBytes(shape.v_type, shape.head_dim));
  return session.plan().total_bytes - session.ledger().used_bytes(MemTag::kKv) + session.counters().seen * per_slot;
}

}  // namespace weir
