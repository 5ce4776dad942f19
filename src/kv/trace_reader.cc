// SPDX-License-Identifier: Apache-2.0
#include "kv/trace_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

namespace weir {
namespace {

using nlohmann::json;

constexpr size_t kLongestLine = size_t{256} << 20;
constexpr int64_t kMostGroups = 1 << 16;
constexpr int64_t kLargest = int64_t{1} << 53;  // what every JSON reader can represent

bool Number(const json& value, int64_t low, int64_t high, int64_t* out) {
  if (!value.is_number_integer()) return false;
  // An unsigned number beyond int64 would become negative.
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kLargest)) return false;
  *out = value.get<int64_t>();
  return *out >= low && *out <= high;
}

// A slot, or [first, count] with count > 0.
bool Run(const json& value, int64_t n, SeqRun* out) {
  out->count = 1;
  if (!value.is_array()) return Number(value, 0, n - 1, &out->first);
  return value.size() == 2 && Number(value[0], 0, n - 1, &out->first) &&
         Number(value[1], 1, n - out->first, &out->count);
}

bool Floats(const json& value, std::vector<float>* out) {
  if (!value.is_array()) return false;
  out->reserve(value.size());
  for (const json& number : value) {
    if (!number.is_null() && !number.is_number()) return false;
    out->push_back(number.is_null() ? std::numeric_limits<float>::quiet_NaN() : number.get<float>());
  }
  return true;
}

// Text, or bytes that are not valid text.
bool Bytes(const json& value, std::string* out) {
  if (value.is_string()) {
    *out = value.get<std::string>();
    return true;
  }
  if (!value.is_array()) return false;
  for (const json& byte : value) {
    int64_t number = 0;
    if (!Number(byte, 0, 255, &number)) return false;
    *out += static_cast<char>(number);
  }
  return true;
}

void AddRun(std::vector<SeqRun>* runs, SeqRun run) {
  if (run.count == 0) return;
  if (!runs->empty() && runs->back().first + runs->back().count == run.first) {
    runs->back().count += run.count;
  } else {
    runs->push_back(run);
  }
}

// The runs without the slots of `dropped`; the caller checked that those are ascending and in range.
std::vector<SeqRun> Without(const std::vector<SeqRun>& runs, const std::vector<SeqRun>& dropped) {
  std::vector<SeqRun> out;
  int64_t slot = 0;
  size_t at = 0;
  for (const SeqRun& run : runs) {
    const int64_t end = slot + run.count;
    for (int64_t from = slot; from < end;) {
      while (at < dropped.size() && dropped[at].first + dropped[at].count <= from) ++at;
      const int64_t gap = at < dropped.size() ? std::clamp(dropped[at].first, from, end) : end;
      AddRun(&out, {run.first + (from - slot), gap - from});
      from = gap;
      if (at < dropped.size()) from = std::max(from, std::min(end, dropped[at].first + dropped[at].count));
    }
    slot = end;
  }
  return out;
}

}  // namespace

struct TraceReader::Line {
  json value;
  // The member, or null.
  const json& operator[](const char* key) const {
    static const json nothing;
    const auto at = value.find(key);
    return at == value.end() ? nothing : *at;
  }
};

Status TraceReader::Bad(const char* what) const { return Corrupt("{}: line {}: {}", path_, n_lines_, what); }

Result<std::unique_ptr<TraceReader>> TraceReader::Open(const std::string& path) {
  std::unique_ptr<TraceReader> out(new TraceReader);
  out->path_ = path;
  out->file_ = std::fopen(path.c_str(), "rb");
  if (out->file_ == nullptr) return IoError("cannot read {}: {}", path, std::strerror(errno));
  struct stat info {};
  if (fstat(fileno(out->file_), &info) == 0 && S_ISDIR(info.st_mode))
    return IoError("cannot read {}: it is a directory", path);
  WEIR_ASSIGN_OR_RETURN(const bool more, out->ReadLine());
  Line line;
  if (more) line.value = json::parse(out->text_, nullptr, /*allow_exceptions=*/false);
  if (!line.value.is_object() || line["type"] != "trace") return Corrupt("{} is no trace of weir", path);
  WEIR_RETURN_IF_ERROR(out->Head(line));
  return out;
}

TraceReader::~TraceReader() {
  if (file_ != nullptr) std::fclose(file_);
}

Result<bool> TraceReader::ReadLine() {
  text_.clear();
  for (;;) {
    if (at_ == buffer_.size()) {
      buffer_.resize(1 << 16);
      buffer_.resize(std::fread(buffer_.data(), 1, buffer_.size(), file_));
      at_ = 0;
      if (buffer_.empty()) {
        if (std::ferror(file_) != 0) return IoError("cannot read {}: {}", path_, std::strerror(errno));
        n_lines_ += !text_.empty();
        return !text_.empty();
      }
    }
    const size_t end = std::min(buffer_.find('\n', at_), buffer_.size());
    text_.append(buffer_, at_, end - at_);
    if (text_.size() > kLongestLine) {
      ++n_lines_;
      return Bad("it is longer than any line of a trace");
    }
    at_ = end;
    if (at_ == buffer_.size()) continue;
    ++at_;
    ++n_lines_;
    return true;
  }
}

Status TraceReader::Head(const Line& line) {
  int64_t version = 0, layers = 0, heads = 0, slots = 0, spread = 0;
  if (!Number(line["version"], 1, kLargest, &version)) return Bad("no version");
  if (version != 1) return Unsupported("{}: traces of version {} are not known here", path_, version);
  const json& granularity = line["granularity"];
  // A writer without information about its pot writes zero.
  if (!Number(line["layers"], 0, kMostGroups, &layers) || !Number(line["kv_heads"], 0, kMostGroups, &heads) ||
      !Number(line["slots"], 0, std::numeric_limits<int32_t>::max(), &slots) ||
      !Number(line["spread"], 0, 1 << 20, &spread) || layers * heads > kMostGroups || !line["model"].is_string() ||
      !line["policy"].is_string()) {
    return Bad("the head line lacks the model, the policy or the shape of the pot");
  }
  PotShape& pot = head_.pot;
  pot.n_layers = static_cast<int32_t>(layers);
  pot.n_kv_heads = static_cast<int32_t>(heads);
  if (const json& by_layer = line["layer_kv_heads"]; !by_layer.is_null()) {
    std::vector<LayerShape> shapes;
    int64_t n = 0, most = 0;
    for (const json& value : by_layer) {
      int64_t own = 0;
      if (!Number(value, 1, heads, &own)) return Bad("KV heads of a layer that are no number or too many");
      n += own;
      most = std::max(most, own);
      shapes.push_back({.n_kv_heads = static_cast<int32_t>(own)});
    }
    if (std::ssize(shapes) != layers || most != heads || n > kMostGroups) {
      return Bad("KV heads of other layers than the pot's");
    }
    pot.SetLayers(std::move(shapes));
  }
  pot.n_slots = static_cast<int32_t>(slots);
  pot.spread = static_cast<int32_t>(spread);
  pot.granularity = granularity == "per_head"    ? Granularity::kPerHead
                    : granularity == "per_layer" ? Granularity::kPerLayer
                                                 : Granularity::kGlobal;
  if (granularity != "global" && pot.granularity == Granularity::kGlobal) return Bad("unknown granularity");
  head_.model = line["model"].get<std::string>();
  head_.policy = line["policy"].get<std::string>();
  head_.all_scores = line["all_scores"] == true;
  groups_.resize(static_cast<size_t>(pot.n_groups()));
  return Status();
}

Status TraceReader::Tokens(const Line& line) {
  int64_t seq = 0;
  const json &ids = line["ids"], &times = line["t_src_ms"], &pieces = line["pieces"];
  if (!Number(line["seq"], 0, kLargest, &seq) || !ids.is_array() || !times.is_array())
    return Bad("tokens without seq, ids or times");
  if (seq != n_tokens()) return Bad("the trace does not begin with its stream, or misses a part of it");
  const int64_t n = static_cast<int64_t>(ids.size());
  std::vector<TraceToken> added(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    int64_t id = 0;
    if (!Number(ids[i], -1, std::numeric_limits<int32_t>::max(), &id)) return Bad("a token that is no number");
    added[i].id = static_cast<int32_t>(id);
  }
  int64_t at = 0;
  for (const json& run : times) {
    int64_t value = 0, count = 0;
    if (!run.is_array() || run.size() != 2 || !Number(run[0], -kLargest, kLargest, &value) ||
        !Number(run[1], 1, n - at, &count)) {
      return Bad("times that do not fit the tokens");
    }
    for (const int64_t end = at + count; at < end; ++at) added[static_cast<size_t>(at)].t_src_ms = value;
  }
  if (at != n) return Bad("times that do not fit the tokens");
  for (const char* key : {"pinned", "image", "video"}) {
    const json& runs = line[key];
    if (!runs.is_null() && !runs.is_array()) return Bad("pins, pictures or frames that are no list");
    int64_t next = 0;  // ascending: overlaps would multiply the memory for a file
    for (const json& value : runs) {
      SeqRun run;
      if (!Run(value, n, &run) || run.first < next) return Bad("pins, pictures or frames that do not fit the tokens");
      next = run.first + run.count;
      for (int64_t i = run.first; i < next; ++i) {
        TraceToken& token = added[static_cast<size_t>(i)];
        if (key[0] == 'p') {
          token.pinned = true;
        } else {
          token.modality = key[0] == 'i' ? Modality::kImage : Modality::kVideo;
        }
      }
    }
  }
  if (!pieces.is_null() && !pieces.is_object()) return Bad("pieces that are no object");
  for (const auto& [key, value] : pieces.items()) {
    int32_t id = -1;
    std::string bytes;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || !Bytes(value, &bytes))
      return Bad("a piece that is no text");
    pieces_[id] = std::move(bytes);
  }
  tokens_.insert(tokens_.end(), added.begin(), added.end());
  return Status();
}

Status TraceReader::Select(const Line& line, TraceStep* step) {
  *step = TraceStep();
  const PotShape& pot = head_.pot;
  int64_t layer = -1, head = -1;
  const bool per_layer = pot.granularity != Granularity::kGlobal, per_head = pot.granularity == Granularity::kPerHead;
  if (!Number(line["step"], 0, kLargest, &step->step) || !Number(line["n_seen"], 0, kLargest, &step->n_seen) ||
      !Number(line["layer"], per_layer ? 0 : -1, per_layer ? pot.n_layers - 1 : -1, &layer) ||
      !Number(line["head"], per_head ? 0 : -1, per_head ? pot.n_kv_heads_of(static_cast<int32_t>(layer)) - 1 : -1,
              &head) ||
      !Number(line["n"], 0, kLargest, &step->n_slots) || !Number(line["keep"], 0, step->n_slots, &step->n_keep) ||
      !line["reason"].is_string() || !line["drop"].is_array()) {
    return Bad("a selection that does not fit the head line");
  }
  step->layer = static_cast<int32_t>(layer);
  step->head = static_cast<int32_t>(head);
  step->group = per_layer ? pot.group_of(step->layer, std::max(step->head, 0)) : 0;
  step->reason = line["reason"].get<std::string>();
  step->before = held(step->group);
  int64_t n = 0, n_dropped = 0, next = 0;
  for (const SeqRun& run : step->before) n += run.count;
  if (n != step->n_slots) return Bad("a selection among other slots than the lines before leave");
  for (const json& value : line["drop"]) {
    SeqRun run;
    if (!Run(value, n, &run) || run.first < next) return Bad("dropped slots that are not ascending or not there");
    next = run.first + run.count;
    n_dropped += run.count;
    step->dropped.push_back(run);
  }
  if (n - n_dropped != step->n_keep) return Bad("a selection whose counts do not add up");
  const size_t n_values = static_cast<size_t>(head_.all_scores ? n : n_dropped);
  for (const auto& [key, out] : {std::pair{"score", &step->scores}, {"nll", &step->nll}}) {
    if (line[key].is_null()) continue;
    if (!Floats(line[key], out) || out->size() != n_values) return Bad("scores that do not fit the slots");
  }
  Group& group = groups_[static_cast<size_t>(step->group)];
  group.kept = Without(step->before, step->dropped);
  group.next = n_tokens();
  return Status();
}

Status TraceReader::Attention(const Line& line) {
  TraceAttention out;
  int64_t layer = 0, n_seen = 0, n = 0;
  const PotShape& pot = head_.pot;
  if (pot.granularity == Granularity::kPerHead || !Number(line["n_seen"], 1, n_tokens(), &n_seen) ||
      n_seen != n_tokens() || !Number(line["layer"], 0, pot.n_layers - 1, &layer) ||
      !Floats(line["score"], &out.scores)) {
    return Bad("attention that does not fit the head line or the tokens");
  }
  out.seq = n_seen - 1;
  out.layer = static_cast<int32_t>(layer);
  out.slots = held(pot.group_of(out.layer, 0));
  for (const SeqRun& run : out.slots) n += run.count;
  if (n != std::ssize(out.scores)) return Bad("attention to other slots than the lines before leave");
  if (on_attention_) on_attention_(out);
  return Status();
}

Status TraceReader::End(const Line& line) {
  TraceCounters c;
  if (!Number(line["seen"], 0, kLargest, &c.seen) || !Number(line["kept"], 0, kLargest, &c.kept) ||
      !Number(line["dropped"], 0, kLargest, &c.dropped) || !Number(line["selections"], 0, kLargest, &c.selections)) {
    return Bad("counters that are no numbers");
  }
  counters_ = c;
  return Status();
}

Result<bool> TraceReader::Next(TraceStep* step) {
  for (;;) {
    WEIR_ASSIGN_OR_RETURN(const bool more, ReadLine());
    if (!more) return false;
    Line line;
    line.value = json::parse(text_, nullptr, /*allow_exceptions=*/false);
    if (!line.value.is_object() || !line["type"].is_string()) return Bad("it is no JSON object with a type");
    const std::string type = line["type"].get<std::string>();
    if (counters_.has_value()) return Bad("a line after the end");
    if (type == "tokens") {
      WEIR_RETURN_IF_ERROR(Tokens(line));
    } else if (type == "restart") {
      ++n_restarts_;
      tokens_.clear();
      std::fill(groups_.begin(), groups_.end(), Group());
    } else if (type == "attention") {
      WEIR_RETURN_IF_ERROR(Attention(line));
    } else if (type == "end") {
      WEIR_RETURN_IF_ERROR(End(line));
    } else if (type == "select") {
      WEIR_RETURN_IF_ERROR(Select(line, step));
      return true;
    } else {
      return Bad("unknown type");
    }
  }
}

std::vector<SeqRun> TraceReader::held(int32_t group) const {
  const Group& g = groups_[static_cast<size_t>(group)];
  std::vector<SeqRun> out = g.kept;
  AddRun(&out, {g.next, n_tokens() - g.next});
  return out;
}

const std::string* TraceReader::piece(int32_t id) const {
  const auto at = pieces_.find(id);
  return at == pieces_.end() ? nullptr : &at->second;
}

}  // namespace weir
