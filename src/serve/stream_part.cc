// SPDX-License-Identifier: Apache-2.0
#include "serve/stream_part.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "serve/held_map.h"
#include "text/stream.h"

namespace weir {
namespace {

struct Place {
  SlotMeta slot;      // of any holder
  double layers = 0;  // rows of the map that hold it
  const char* state = "gone";
};

std::vector<Place> PlacesOf(const StreamSession& stream, SeqRange range) {
  std::vector<Place> places(static_cast<size_t>(range.end - range.begin));
  const SeqRange archived = ArchivedRange(stream);
  for (size_t i = 0; i < places.size(); ++i) {
    const int64_t seq = range.begin + static_cast<int64_t>(i);
    if (seq >= archived.begin && seq < archived.end) places[i].state = "on_disk";
  }
  for (const SeqRange& gap : stream.session->gaps()) {
    for (int64_t seq = std::max(gap.begin, range.begin); seq < std::min(gap.end, range.end); ++seq) {
      places[static_cast<size_t>(seq - range.begin)].state = nullptr;
    }
  }
  const Pot& pot = stream.session->pot();
  const PotShape& shape = pot.shape();
  for (int32_t group = 0; group < shape.n_groups(); ++group) {
    const int32_t layer = std::max(shape.layer_of(group), 0);
    const int32_t heads = shape.granularity == Granularity::kPerHead ? shape.n_kv_heads_of(layer) : 1;
    const std::span<const SlotMeta> slots = pot.meta(group);
    for (auto slot = std::ranges::lower_bound(slots, range.begin, {}, &SlotMeta::seq);
         slot != slots.end() && slot->seq < range.end; ++slot) {
      Place& place = places[static_cast<size_t>(slot->seq - range.begin)];
      place.slot = *slot;
      place.layers += 1.0 / heads;
      place.state = "held";
    }
  }
  return places;
}

// Whether a token goes on with the run of the one before it.
bool Continues(const Place& a, const Place& b) {
  if (a.state != b.state) return false;
  if (a.layers == 0) return true;
  return a.slot.modality == b.slot.modality && a.slot.t_src_ms == b.slot.t_src_ms && a.slot.pinned == b.slot.pinned &&
         (a.slot.modality == Modality::kText || a.slot.frame() == b.slot.frame());
}

Json RunJson(std::span<const Place> run, int64_t begin, const Tokenizer& tokenizer) {
  const Place& first = run.front();
  Json out = {{"from", begin}, {"to", begin + std::ssize(run)}, {"state", first.state}};
  if (first.layers == 0) return out;
  double layers = 0;
  std::string text;
  StreamDecoder decoder(tokenizer, {.show_special = true, .at_start = false});
  for (const Place& place : run) {
    layers += place.layers;
    if (place.slot.token_id >= 0) decoder.Push(place.slot.token_id, &text);
  }
  decoder.Finish(&text);
  out["modality"] = ModalityName(first.slot.modality);
  out["t_ms"] = first.slot.t_src_ms;
  out["layers"] = std::round(layers / static_cast<double>(run.size()) * 10) / 10;
  out["pinned"] = first.slot.pinned;
  if (first.slot.modality == Modality::kText) out["text"] = std::move(text);
  return out;
}

const char* RoleName(Role role) {
  switch (role) {
    case Role::kInput:
      return "input";
    case Role::kQuestion:
      return "question";
    case Role::kAnswer:
      return "answer";
  }
  return "";
}

Result<Json> PassagesOf(const StreamSession& stream, SeqRange range) {
  Json out = Json::array();
  if (stream.recall == nullptr || stream.recall->stream == nullptr || range.begin == range.end) return out;
  WEIR_RETURN_IF_ERROR(stream.recall->stream->archive().ScanRange(range, [&](BlockPlace, const Block& block) {
    Json passage = {{"from", block.seq},
                    {"to", block.seq_end()},
                    {"role", RoleName(block.role)},
                    {"modality", ModalityName(block.modality)},
                    {"t_ms", block.t_ms}};
    if (block.modality == Modality::kText) passage["text"] = std::string(block.text);
    out.push_back(std::move(passage));
    return true;
  }));
  return out;
}

}  // namespace

Result<Json> StreamPart(const StreamSession& stream, SeqRange range, const Tokenizer& tokenizer) {
  const int64_t n_seen = stream.session->n_seen();
  range = {std::min(range.begin, n_seen), std::min(range.end, n_seen)};
  WEIR_ASSIGN_OR_RETURN(Json passages, PassagesOf(stream, range));
  const std::vector<Place> places = PlacesOf(stream, range);
  Json runs = Json::array();
  for (size_t begin = 0, end; begin < places.size(); begin = end) {
    for (end = begin + 1; end < places.size() && Continues(places[end - 1], places[end]);) ++end;
    if (places[begin].state == nullptr) continue;
    runs.push_back(
        RunJson(std::span(places).subspan(begin, end - begin), range.begin + static_cast<int64_t>(begin), tokenizer));
  }
  const PotShape& shape = stream.session->pot().shape();
  return Json{{"object", "tokens"},
              {"from", range.begin},
              {"to", range.end},
              {"seen", n_seen},
              {"layers", shape.granularity == Granularity::kGlobal ? 1 : shape.n_layers},
              {"runs", std::move(runs)},
              {"passages", std::move(passages)}};
}

}  // namespace weir
