// SPDX-License-Identifier: Apache-2.0
#include "kv/trace.h"

#include <sys/stat.h>

#include <fmt/core.h>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/utf8.h"
#include "kv/held.h"

namespace weir {
namespace {

// The most tokens of one token line, so that readers need not hold long ones.
constexpr size_t kTokensPerLine = 1024;
constexpr size_t kMostHeld = 16 << 10;  // of a line, in bytes

void AppendNumber(std::string* out, float value) {
  if (!std::isfinite(value)) {
    *out += "null";
    return;
  }
  char buffer[32];
  std::snprintf(buffer, sizeof(buffer), "%.4g", static_cast<double>(value));
  *out += buffer;
}

// A JSON string if `bytes` is valid UTF-8, else an array of its bytes: tokens may hold half a character.
void AppendText(std::string* out, std::string_view bytes) {
  if (ValidUtf8Prefix(bytes) != bytes.size()) {
    *out += '[';
    for (size_t i = 0; i < bytes.size(); ++i) {
      *out += fmt::format("{}{}", i == 0 ? "" : ",", static_cast<uint8_t>(bytes[i]));
    }
    *out += ']';
    return;
  }
  *out += '"';
  for (const char c : bytes) {
    if (c == '"' || c == '\\') {
      *out += '\\';
      *out += c;
    } else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) {
      *out += fmt::format("\\u{:04x}", static_cast<uint8_t>(c));
    } else {
      *out += c;
    }
  }
  *out += '"';
}

const char* GranularityName(Granularity granularity) {
  switch (granularity) {
    case Granularity::kGlobal:
      return "global";
    case Granularity::kPerLayer:
      return "per_layer";
    case Granularity::kPerHead:
      return "per_head";
  }
  return "?";
}

// Writes what there is of a line that has grown long: a line has numbers of all slots of a pot, and no memory was
// planned for it. False if the disk is full.
bool WriteSome(std::FILE* file, std::string* line) {
  if (line->size() < kMostHeld) return true;
  const bool written = std::fwrite(line->data(), 1, line->size(), file) == line->size();
  line->clear();
  return written;
}

}  // namespace

Result<std::unique_ptr<TraceWriter>> TraceWriter::Open(const std::string& path, TraceInfo info) {
  std::unique_ptr<TraceWriter> out(new TraceWriter);
  out->path_ = path;
  out->info_ = std::move(info);
  struct stat file {};
  const bool exists = stat(path.c_str(), &file) == 0;
  if (exists && S_ISDIR(file.st_mode)) return IoError("cannot write the trace {}: it is a directory", path);
  if (!exists || S_ISREG(file.st_mode)) out->part_ = path + ".part";
  out->file_ = std::fopen(out->part_.empty() ? path.c_str() : out->part_.c_str(), "wb");
  if (out->file_ == nullptr) return IoError("cannot write the trace {}: {}", path, std::strerror(errno));
  const PotShape& pot = out->info_.pot;
  std::string& line = out->line_;
  line = "{\"type\":\"trace\",\"version\":1,\"model\":";
  AppendText(&line, out->info_.model);
  line += ",\"policy\":";
  AppendText(&line, out->info_.policy);
  line += fmt::format(
      ",\"layers\":{},\"kv_heads\":{},\"slots\":{},\"spread\":{},\"granularity\":\"{}\",\"positions\":\"{}\","
      "\"all_scores\":{}",
      pot.n_layers, pot.n_kv_heads, pot.n_slots, pot.spread, GranularityName(pot.granularity),
      PositionsName(pot.positions), out->info_.all_scores ? "true" : "false");
  for (size_t layer = 0; layer < pot.layers.size(); ++layer) {
    line += fmt::format("{}{}", layer == 0 ? ",\"layer_kv_heads\":[" : ",", pot.layers[layer].n_kv_heads);
  }
  line += pot.layers.empty() ? "}" : "]}";
  WEIR_RETURN_IF_ERROR(out->Write());
  return out;
}

TraceWriter::~TraceWriter() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  RemovePart();
}

void TraceWriter::RemovePart() {
  if (!part_.empty()) std::remove(part_.c_str());
}

Status TraceWriter::Fail() {
  const int error = errno;
  std::fclose(file_);
  file_ = nullptr;
  RemovePart();
  return IoError("cannot write the trace {}: {}", path_, std::strerror(error));
}

Status TraceWriter::Write() {
  line_ += '\n';
  // A full disk is reported at once, not when the stream ends.
  if (std::fwrite(line_.data(), 1, line_.size(), file_) != line_.size() || std::fflush(file_) != 0) return Fail();
  return Status();
}

void TraceWriter::AddPieces(std::span<const SlotMeta> slots) {
  if (!info_.piece) return;
  bool any = false;
  for (const SlotMeta& m : slots) {
    if (m.token_id < 0) continue;
    const size_t id = static_cast<size_t>(m.token_id);
    if (id >= spelled_.size()) spelled_.resize(id + 1);
    if (spelled_[id]) continue;
    spelled_[id] = true;
    line_ += fmt::format("{}\"{}\":", any ? "," : ",\"pieces\":{", m.token_id);
    AppendText(&line_, info_.piece(m.token_id));
    any = true;
  }
  if (any) line_ += '}';
}

void TraceWriter::AddRuns(const char* key, std::span<const SlotMeta> slots, bool (*is)(const SlotMeta&)) {
  bool any = false;
  for (size_t i = 0, run = 1; i < slots.size(); i += run) {
    const bool yes = is(slots[i]);
    for (run = 1; i + run < slots.size() && is(slots[i + run]) == yes;) ++run;
    if (!yes) continue;
    line_ += any ? std::string(",") : fmt::format(",\"{}\":[", key);
    line_ += fmt::format("[{},{}]", i, run);
    any = true;
  }
  if (any) line_ += ']';
}

Status TraceWriter::Announce(std::span<const SlotMeta> slots) {
  // Every group has all tokens since the last selection, so the first one to arrive shows them all.
  size_t at = slots.size();
  while (at > 0 && slots[at - 1].seq >= n_announced_) --at;
  while (at < slots.size()) {
    size_t n = 1;
    while (n < kTokensPerLine && at + n < slots.size() && slots[at + n].seq == slots[at].seq + static_cast<int64_t>(n))
      ++n;
    const std::span<const SlotMeta> part = slots.subspan(at, n);
    line_ = fmt::format("{{\"type\":\"tokens\",\"seq\":{},\"ids\":[", part[0].seq);
    for (size_t i = 0; i < n; ++i) line_ += fmt::format("{}{}", i == 0 ? "" : ",", std::max(part[i].token_id, -1));
    line_ += "],\"t_src_ms\":[";
    for (size_t i = 0, run = 1; i < n; i += run) {
      for (run = 1; i + run < n && part[i + run].t_src_ms == part[i].t_src_ms;) ++run;
      line_ += fmt::format("{}[{},{}]", i == 0 ? "" : ",", part[i].t_src_ms, run);
    }
    line_ += ']';
    AddRuns("pinned", part, [](const SlotMeta& m) { return m.pinned; });
    AddRuns("image", part, [](const SlotMeta& m) { return m.modality == Modality::kImage; });
    AddRuns("video", part, [](const SlotMeta& m) { return m.modality == Modality::kVideo; });
    AddPieces(part);
    line_ += '}';
    WEIR_RETURN_IF_ERROR(Write());
    n_announced_ = part.back().seq + 1;
    at += n;
  }
  return Status();
}

// Within a stream steps and tokens only increase, and a step names each group at most once.
bool TraceWriter::Restarts(const TraceSelection& selection) const {
  if (n_selections_ == 0) return false;
  if (selection.step != first_.step) return selection.step < first_.step || selection.n_seen < first_.n_seen;
  return selection.n_seen != first_.n_seen || (selection.layer == first_.layer && selection.head == first_.head);
}

Status TraceWriter::Selected(const TraceSelection& selection) {
  if (file_ == nullptr) return IoError("the trace {} is closed", path_);
  const std::span<const SlotMeta> slots = selection.slots;
  const KeepSet& keep = *selection.keep;
  if (Restarts(selection)) WEIR_RETURN_IF_ERROR(Restarted());
  if (n_selections_ != selection.step + 1) {
    n_selections_ = selection.step + 1;
    first_.step = selection.step;
    first_.n_seen = selection.n_seen;
    first_.layer = selection.layer;
    first_.head = selection.head;
  }
  WEIR_RETURN_IF_ERROR(Announce(slots));
  line_ = fmt::format(
      "{{\"type\":\"select\",\"step\":{},\"n_seen\":{},\"layer\":{},\"head\":{},\"n\":{},\"keep\":{},\"reason\":",
      selection.step, selection.n_seen, selection.layer, selection.head, slots.size(), keep.size());
  AppendText(&line_, selection.reason);
  line_ += ",\"drop\":[";
  // Dropped slots: the gaps between the kept ones.
  const auto for_gaps = [&](const auto& see) -> Status {
    size_t from = 0;
    for (size_t idx = 0; idx <= keep.size(); ++idx) {
      const size_t to = idx < keep.size() ? static_cast<size_t>(keep[idx]) : slots.size();
      if (to > from) WEIR_RETURN_IF_ERROR(see(from, to));
      from = to + 1;
    }
    return Status();
  };
  bool any = false;
  WEIR_RETURN_IF_ERROR(for_gaps([&](size_t from, size_t to) {
    if (any) line_ += ',';
    line_ += to - from == 1 ? fmt::format("{}", from) : fmt::format("[{},{}]", from, to - from);
    any = true;
    return WriteSome(file_, &line_) ? Status() : Fail();
  }));
  line_ += ']';
  const auto add = [&](const char* key, std::span<const float> values) {
    bool first = true;
    const auto of_slots = [&](size_t from, size_t to) -> Status {
      for (size_t slot = from; slot < std::min(to, values.size()); ++slot) {
        line_ += first ? fmt::format(",\"{}\":[", key) : ",";
        first = false;
        AppendNumber(&line_, values[slot]);
        if (!WriteSome(file_, &line_)) return Fail();
      }
      return Status();
    };
    const Status status = info_.all_scores ? of_slots(0, slots.size()) : for_gaps(of_slots);
    if (!first) line_ += ']';
    return status;
  };
  WEIR_RETURN_IF_ERROR(add("score", selection.scores));
  WEIR_RETURN_IF_ERROR(add("nll", selection.nll));
  line_ += '}';
  return Write();
}

Status TraceWriter::Attended(const Pot& pot, int64_t n_seen, const AttentionWatch& watch) {
  if (!WantsAttention()) return Status();
  if (n_seen < n_announced_) WEIR_RETURN_IF_ERROR(Restarted());
  ++n_attended_;
  WEIR_RETURN_IF_ERROR(Announce(pot.meta(0)));
  for (int32_t layer = 0; layer < pot.shape().n_layers; ++layer) {
    line_ = fmt::format("{{\"type\":\"attention\",\"n_seen\":{},\"layer\":{},\"score\":[", n_seen, layer);
    const float* scores = watch.out + layer * watch.stride;
    for (int32_t slot = 0; slot < pot.n_used(layer, 0); ++slot) {
      if (slot > 0) line_ += ',';
      AppendNumber(&line_, scores[slot]);
      if (!WriteSome(file_, &line_)) return Fail();
    }
    line_ += "]}";
    WEIR_RETURN_IF_ERROR(Write());
  }
  return Status();
}

Status TraceWriter::Restarted() {
  if (file_ == nullptr) return IoError("the trace {} is closed", path_);
  n_announced_ = n_selections_ = 0;
  line_ = "{\"type\":\"restart\"}";
  return Write();
}

Status TraceWriter::Close(const Pot& pot, int64_t n_seen) {
  if (file_ == nullptr) return IoError("the trace {} is closed", path_);
  WEIR_RETURN_IF_ERROR(Announce(pot.meta(0)));
  const int64_t n_kept = SummarizeHeld(pot, n_seen).n_kept;
  line_ = fmt::format("{{\"type\":\"end\",\"seen\":{},\"kept\":{},\"dropped\":{},\"selections\":{}}}", n_seen, n_kept,
                      n_seen - n_kept, n_selections_);
  WEIR_RETURN_IF_ERROR(Write());
  return Finish();
}

Status TraceWriter::Close() {
  if (file_ == nullptr) return IoError("the trace {} is closed", path_);
  return Finish();
}

Status TraceWriter::Finish() {
  const int error = std::fclose(file_);
  file_ = nullptr;
  if (error != 0 || (!part_.empty() && std::rename(part_.c_str(), path_.c_str()) != 0)) {
    const int code = errno;
    RemovePart();
    return IoError("cannot write the trace {}: {}", path_, std::strerror(code));
  }
  return Status();
}

}  // namespace weir
