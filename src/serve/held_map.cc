// SPDX-License-Identifier: Apache-2.0
#include "serve/held_map.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "kv/held.h"

namespace weir {
namespace {

// Tokens of [begin, end) that are also in `range`.
int64_t Shared(int64_t begin, int64_t end, const SeqRange& range) {
  return std::max<int64_t>(0, std::min(end, range.end) - std::max(begin, range.begin));
}

}  // namespace

SeqRange ArchivedRange(const StreamSession& stream) {
  if (stream.recall == nullptr || stream.recall->stream == nullptr) return {};
  const Archive& archive = stream.recall->stream->archive();
  // The newest words are about to be written.
  return {archive.seq_begin(), archive.state().ok() ? stream.session->n_seen() : archive.seq_end()};
}

StreamStates StatesOf(const StreamSession& stream, SeqRange range, int64_t per_part) {
  const size_t n = static_cast<size_t>((range.end - range.begin + per_part - 1) / per_part);
  StreamStates out = {std::vector<int64_t>(n), std::vector<int64_t>(n), std::vector<int64_t>(n)};
  const SeqRange archived = ArchivedRange(stream);
  for (size_t part = 0; part < n; ++part) {
    const int64_t begin = range.begin + static_cast<int64_t>(part) * per_part;
    const int64_t end = std::min(begin + per_part, range.end);
    out.on_disk[part] = Shared(begin, end, archived);
    out.gone[part] = end - begin - out.on_disk[part];
    for (const SeqRange& gap : stream.session->gaps()) {
      const int64_t n = Shared(begin, end, gap);
      const int64_t n_on_disk = Shared(std::max(begin, gap.begin), std::min(end, gap.end), archived);
      out.on_disk[part] -= n_on_disk;
      out.gone[part] -= n - n_on_disk;
    }
  }
  ForEachHeldWindow(stream.session->pot(), [&](int64_t first, const HeldMarks& marks) {
    for (const std::vector<uint64_t>& of_one : marks) {
      for (size_t i = 0; i < of_one.size(); ++i) {
        for (uint64_t word = of_one[i]; word != 0; word &= word - 1) {
          const int64_t seq = first + static_cast<int64_t>(i) * 64 + std::countr_zero(word);
          if (seq < range.begin || seq >= range.end) continue;
          const size_t part = static_cast<size_t>((seq - range.begin) / per_part);
          const bool on_disk = seq >= archived.begin && seq < archived.end;
          --(on_disk ? out.on_disk : out.gone)[part];
          ++out.held[part];
        }
      }
    }
  });
  return out;
}

Json HeldMap(const StreamSession& stream, SeqRange range, int64_t n_bins) {
  const Session& session = *stream.session;
  const Pot& pot = session.pot();
  const PotShape& shape = pot.shape();
  const SessionCounters counters = session.counters();
  range = {std::min(range.begin, counters.seen), std::min(range.end, counters.seen)};
  const int64_t n_tokens = range.end - range.begin;
  const int64_t per_bin = std::max<int64_t>(1, (n_tokens + n_bins - 1) / n_bins);
  const size_t bins = static_cast<size_t>((n_tokens + per_bin - 1) / per_bin);
  const size_t rows = shape.granularity == Granularity::kGlobal ? 1 : static_cast<size_t>(shape.n_layers);
  constexpr size_t n_kinds = kNumModalities;
  // [modality][row][bin]
  std::vector<double> counts(n_kinds * rows * bins);
  bool any[n_kinds] = {};
  for (int32_t group = 0; group < shape.n_groups(); ++group) {
    const int32_t layer = std::max(shape.layer_of(group), 0);
    const size_t row = static_cast<size_t>(layer);
    const int32_t heads = shape.granularity == Granularity::kPerHead ? shape.n_kv_heads_of(layer) : 1;
    for (const SlotMeta& slot : pot.meta(group)) {
      if (slot.seq < range.begin || slot.seq >= range.end) continue;
      const size_t modality = static_cast<size_t>(slot.modality);
      any[modality] = true;
      counts[(modality * rows + row) * bins + static_cast<size_t>((slot.seq - range.begin) / per_bin)] += 1.0 / heads;
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
  const StreamStates states = StatesOf(stream, range, per_bin);
  return {{"object", "held"},
          {"seen", counters.seen},
          {"kept", counters.kept},
          {"dropped", counters.dropped},
          {"from", range.begin},
          {"to", range.end},
          {"layers", rows},
          {"bins", bins},
          {"tokens_per_bin", per_bin},
          {"held", std::move(held)},
          {"states", {{"held", states.held}, {"on_disk", states.on_disk}, {"gone", states.gone}}}};
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
  int64_t per_slot = 0;
  for (int32_t layer = 0; layer < shape.n_layers; ++layer) {
    const int32_t n = shape.head_dim_of(layer);
    per_slot += shape.n_kv_heads_of(layer) *
                (RowBytes(shape.k_type, n) + (shape.values_in_keys ? 0 : RowBytes(shape.v_type, n)));
  }
  return session.plan().total_bytes - session.ledger().used_bytes(MemTag::kKv) + session.counters().seen * per_slot;
}

}  // namespace weir
