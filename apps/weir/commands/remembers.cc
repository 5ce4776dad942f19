// weir-plugin: command
// SPDX-License-Identifier: Apache-2.0
// weir remembers: how much of a part of the stream was still held when the trace ended, and what of the rest an archive
// has on disk.
#include <fmt/core.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/ascii.h"
#include "base/utf8.h"
#include "commands/command.h"
#include "common.h"
#include "io/json.h"
#include "print.h"
#include "trace_maps.h"
#include "trace_places.h"

namespace weir::app {
namespace {

struct RemembersFlags {
  std::string file, at, find, recall_dir, output = "text";
  double least = 0;
  TraceFilter filter;
};

struct Span {
  int64_t begin = 0, end = 0;  // seqs
};

bool ParseWhole(std::string_view text, int64_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && *out >= 0;
}

// "90", "01:30", "1:01:30" or "01:30.5", as milliseconds.
bool ParseTime(std::string_view text, int64_t* out_ms) {
  double seconds = 0;
  for (int parts = 0; parts < 3; ++parts) {
    const size_t colon = text.find(':');
    const std::string_view part = text.substr(0, colon);
    double value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || end != part.data() + part.size() || !(value >= 0 && value < 1e9)) return false;
    seconds = seconds * 60 + value;
    if (colon == std::string_view::npos) {
      *out_ms = std::llround(seconds * 1000);
      return true;
    }
    text.remove_prefix(colon + 1);
  }
  return false;
}

bool ParsePercent(std::string_view text, double* out) {
  if (!text.ends_with('%')) return false;
  text.remove_suffix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && *out >= 0 && *out <= 100;
}

Status BadSpan(const std::string& text) {
  return InvalidArgument("--at {}: write tokens (1000:1200, 1000), shares (25%, 25%:50%) or times (00:30-01:00)", text);
}

Result<Span> ParseSpan(const std::string& text, const std::vector<TraceToken>& tokens) {
  const int64_t n = static_cast<int64_t>(tokens.size());
  const size_t colon = text.find(':'), dash = text.find('-');
  Span out;
  if (dash != std::string::npos) {
    int64_t from_ms = 0, to_ms = 0;
    if (!ParseTime(std::string_view(text).substr(0, dash), &from_ms) ||
        !ParseTime(std::string_view(text).substr(dash + 1), &to_ms))
      return BadSpan(text);
    if (to_ms <= from_ms) return InvalidArgument("--at {}: the span ends before it begins", text);
    // Times ascend along a stream: the first token at or after each end of the span.
    const auto seq_at = [&](int64_t ms) {
      return std::lower_bound(tokens.begin(), tokens.end(), ms,
                              [](const TraceToken& t, int64_t at) { return t.t_src_ms < at; }) -
             tokens.begin();
    };
    out = {seq_at(from_ms), seq_at(to_ms)};
  } else if (text.find('%') != std::string::npos) {
    double from = 0, to = 0;
    if (!ParsePercent(std::string_view(text).substr(0, colon), &from)) return BadSpan(text);
    to = std::min(100.0, from + 1);  // a single value means a hundredth of the stream
    if (colon != std::string::npos && !ParsePercent(std::string_view(text).substr(colon + 1), &to))
      return BadSpan(text);
    const double all = static_cast<double>(n);
    out = {static_cast<int64_t>(std::floor(all * from / 100)), static_cast<int64_t>(std::ceil(all * to / 100))};
  } else {
    const std::string_view from = std::string_view(text).substr(0, colon);
    if (!(from.empty() && colon != std::string::npos) && !ParseWhole(from, &out.begin)) return BadSpan(text);
    out.end = out.begin + 1;
    if (colon != std::string::npos) {
      const std::string_view to = std::string_view(text).substr(colon + 1);
      out.end = n;
      if (!to.empty() && !ParseWhole(to, &out.end)) return BadSpan(text);
    }
    if (out.begin >= n) return InvalidArgument("--at {}: the stream had {} tokens", text, CountText(n));
    out.end = std::min(out.end, n);
  }
  if (out.begin >= out.end) return InvalidArgument("--at {}: no token of the stream is in that span", text);
  return out;
}

struct Share {
  double least = 1, mean = 0, most = 0;
};
Share ShareOf(const std::vector<double>& shares) {
  Share out;
  for (const double share : shares) {
    out.least = std::min(out.least, share);
    out.most = std::max(out.most, share);
    out.mean += share / static_cast<double>(shares.size());
  }
  return out;
}

// What is held, with "[... 12 tokens ...]" for what is not, and where that is if `on_disk` is known.
std::string HeldText(const TraceReader& reader, const Span& span, const std::vector<TokenPlace>& places,
                     const SeqSet* on_disk) {
  std::string out, run;
  int64_t n_gone = 0;
  TokenPlace gap = TokenPlace::kGone;
  const auto close_gap = [&] {
    if (n_gone > 0) {
      out += fmt::format("[... {} token{}{} ...]", CountText(n_gone), n_gone == 1 ? "" : "s",
                         on_disk == nullptr           ? ""
                         : gap == TokenPlace::kOnDisk ? " on disk"
                                                      : " gone");
    }
    n_gone = 0;
  };
  const auto close_run = [&] {
    out += Printable(SanitizeUtf8(run, nullptr), /*lines=*/true);
    run.clear();
  };
  for (int64_t seq = span.begin; seq < span.end; ++seq) {
    const TokenPlace place = places[static_cast<size_t>(seq - span.begin)];
    if (place != TokenPlace::kHeld) {
      if (on_disk != nullptr && (place == TokenPlace::kOnDisk) != (gap == TokenPlace::kOnDisk)) close_gap();
      gap = place;
      if (n_gone++ == 0) close_run();
      continue;
    }
    close_gap();
    const int32_t id = reader.tokens()[static_cast<size_t>(seq)].id;
    const std::string* piece = reader.piece(id);
    run += piece != nullptr ? *piece : id < 0 ? std::string("<image>") : fmt::format("<{}>", id);
  }
  close_run();
  close_gap();
  return out;
}

// Appends text as --find compares it: small letters, one space where there is white space.
void AppendFolded(std::string_view text, std::string* out) {
  for (const char c : text) {
    if (c == ' ' || (c >= '\t' && c <= '\r')) {
      if (!out->empty() && out->back() != ' ') out->push_back(' ');
    } else {
      out->push_back(AsciiLower(c));
    }
  }
}

// Where the stream has a text, as spans of tokens.
std::vector<Span> FindText(const TraceReader& reader, const std::string& find) {
  std::string text, wanted;
  std::vector<size_t> begins;  // of every token
  begins.reserve(reader.tokens().size());
  for (const TraceToken& token : reader.tokens()) {
    begins.push_back(text.size());
    const std::string* const piece = token.id < 0 ? nullptr : reader.piece(token.id);
    if (piece != nullptr) AppendFolded(*piece, &text);
  }
  AppendFolded(find, &wanted);
  while (wanted.ends_with(' ')) wanted.pop_back();
  std::vector<Span> out;
  if (wanted.empty()) return out;
  for (size_t at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + wanted.size())) {
    // The token of a character is the last one that begins at it or before it, and is not empty.
    const auto seq_of = [&](size_t byte) { return std::ranges::upper_bound(begins, byte) - begins.begin() - 1; };
    out.push_back({seq_of(at), seq_of(at + wanted.size() - 1) + 1});
  }
  return out;
}

// Everything that is asked of one trace.
struct Memory {
  const TraceReader& reader;
  std::vector<int32_t> groups;
  int32_t least = 1;  // groups that must hold a token
  TakenBack taken_back;
  std::optional<SeqSet> on_disk;

  const SeqSet* disk() const { return on_disk ? &*on_disk : nullptr; }
  std::vector<TokenPlace> Places(const Span& span, std::vector<double>* shares) const {
    const int64_t n = span.end - span.begin;
    std::vector<int32_t> holders(static_cast<size_t>(n), 0);
    for (const int32_t group : groups) {
      int64_t n_held = 0;
      for (const SeqRun& run : reader.held(group)) {
        const int64_t from = std::max(span.begin, run.first), to = std::min(span.end, run.first + run.count);
        for (int64_t seq = from; seq < to; ++seq) ++holders[static_cast<size_t>(seq - span.begin)];
        n_held += std::max<int64_t>(0, to - from);
      }
      if (shares != nullptr) shares->push_back(static_cast<double>(n_held) / static_cast<double>(n));
    }
    std::vector<TokenPlace> out;
    for (int64_t seq = span.begin; seq < span.end; ++seq) {
      out.push_back(PlaceOf(seq, holders[static_cast<size_t>(seq - span.begin)] >= least, taken_back.seqs(), disk()));
    }
    return out;
  }
};

PlaceCounts CountPlaces(const std::vector<TokenPlace>& places) {
  PlaceCounts out{};
  for (const TokenPlace place : places) ++out[static_cast<size_t>(place)];
  return out;
}

// One word if all tokens are in one place, otherwise how many are where.
std::string PlacesText(const PlaceCounts& n) {
  constexpr const char* kNames[] = {"held", "on disk", "gone", "a copy for an answer, taken back"};
  int64_t all = 0;
  for (const int64_t count : n) all += count;
  std::string out;
  for (size_t i = 0; i < n.size(); ++i) {
    if (n[i] == all) return kNames[i];
    if (n[i] > 0)
      out += fmt::format("{}{} of {} {}", out.empty() ? "" : ", ", CountText(n[i]), CountText(all), kNames[i]);
  }
  return out;
}

// Where each occurrence of a text is.
Status RemembersText(const RemembersFlags& flags, const Memory& memory) {
  constexpr size_t kMostShown = 100;
  const std::vector<Span> found = FindText(memory.reader, flags.find);
  if (found.empty()) return InvalidArgument("--find: the stream of {} does not say \"{}\"", flags.file, flags.find);
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (size_t i = 0; i < std::min(found.size(), kMostShown); ++i) {
    const PlaceCounts n = CountPlaces(memory.Places(found[i], nullptr));
    if (flags.output == "json") {
      list.push_back({{"begin", found[i].begin},
                      {"end", found[i].end},
                      {"held", n[0]},
                      {"on_disk", n[1]},
                      {"gone", n[2]},
                      {"taken_back", n[3]}});
    } else {
      Print(stdout, "tokens {} to {}: {}\n", CountText(found[i].begin), CountText(found[i].end), PlacesText(n));
    }
  }
  if (flags.output == "json") {
    Print(stdout, "{}\n", JsonText(nlohmann::ordered_json{{"n_found", found.size()}, {"found", std::move(list)}}));
  } else if (found.size() > kMostShown) {
    Print(stdout, "... and {} more\n", CountText(std::ssize(found) - static_cast<int64_t>(kMostShown)));
  }
  return Status();
}

Status Remembers(const RemembersFlags& flags) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<TraceReader> reader, TraceReader::Open(flags.file));
  if (flags.at.empty() == flags.find.empty()) {
    return InvalidArgument("say what to look for: --at SPAN, or --find TEXT");
  }
  Memory memory = {.reader = *reader};
  int64_t n_restarts = 0;
  TraceStep step;
  for (bool more = true; more;) {
    WEIR_ASSIGN_OR_RETURN(more, reader->Next(&step));
    if (std::exchange(n_restarts, reader->n_restarts()) != reader->n_restarts()) memory.taken_back.Restart();
    if (more) memory.taken_back.Note(step);
  }
  if (!reader->counters().has_value()) {
    Print(stderr, "weir: warning: the trace was not closed; tokens after its last selection are missing\n");
  }
  if (!flags.recall_dir.empty()) {
    WEIR_ASSIGN_OR_RETURN(memory.on_disk, SeqsOnDisk(flags.recall_dir));
  }
  const PotShape& pot = reader->head().pot;
  memory.groups = flags.filter.Groups(pot);
  const std::vector<int32_t>& groups = memory.groups;
  if (groups.empty()) return InvalidArgument("{} has no such layer or head", flags.file);
  memory.least =
      std::max<int32_t>(1, static_cast<int32_t>(std::ceil(flags.least * static_cast<double>(groups.size()))));
  if (!flags.find.empty()) return RemembersText(flags, memory);
  WEIR_ASSIGN_OR_RETURN(const Span span, ParseSpan(flags.at, reader->tokens()));
  const int32_t least = memory.least;
  const int64_t n = span.end - span.begin;
  std::vector<double> shares;
  const std::vector<TokenPlace> places = memory.Places(span, &shares);
  const PlaceCounts n_in = CountPlaces(places);
  const int64_t n_held = n_in[0];
  int64_t n_pinned = 0;
  for (int64_t seq = span.begin; seq < span.end; ++seq) n_pinned += reader->tokens()[static_cast<size_t>(seq)].pinned;
  const Share share = ShareOf(shares);
  const std::string text = HeldText(*reader, span, places, memory.disk());
  const auto layer_of = [&](size_t i) { return pot.layer_of(groups[i]); };

  if (flags.output == "json") {
    nlohmann::ordered_json json = {{"begin", span.begin}, {"end", span.end},    {"seen", reader->n_tokens()},
                                   {"held", n_held},      {"pinned", n_pinned}, {"groups", groups.size()}};
    if (memory.on_disk) {
      json["on_disk"] = n_in[1];
      json["gone"] = n_in[2];
    }
    if (n_in[3] > 0) json["taken_back"] = n_in[3];
    json["share"] = {{"min", share.least}, {"mean", share.mean}, {"max", share.most}};
    for (size_t i = 0; i < groups.size(); ++i) {
      const int32_t group = groups[i];
      json["by_group"].push_back({{"layer", pot.layer_of(group)}, {"head", pot.head_of(group)}, {"share", shares[i]}});
    }
    json["text"] = text;
    Print(stdout, "{}\n", JsonText(json));
    return Status();
  }
  Print(stdout, "tokens {} to {} of {}: {} tokens, {} pinned\n", CountText(span.begin), CountText(span.end),
        CountText(reader->n_tokens()), CountText(n), CountText(n_pinned));
  Print(stdout, "held by {}: {} ({:.1f}%)\n",
        least <= 1 ? "at least one layer or head"
                   : fmt::format("at least {} of {} layers or heads", least, groups.size()),
        CountText(n_held), 100 * static_cast<double>(n_held) / static_cast<double>(n));
  if (memory.on_disk) Print(stdout, "on disk: {}, gone: {}\n", CountText(n_in[1]), CountText(n_in[2]));
  if (n_in[3] > 0) Print(stdout, "copies for answers, taken back: {}\n", CountText(n_in[3]));
  if (groups.size() > 1) {
    Print(stdout, "share held, {} layers or heads: least {:.1f}%, mean {:.1f}%, most {:.1f}%\n", groups.size(),
          100 * share.least, 100 * share.mean, 100 * share.most);
    Print(stdout, "{:<6} {:>8} {:>8} {:>8}\n", "layer", "least", "mean", "most");
    for (size_t i = 0; i < groups.size();) {
      const int32_t layer = layer_of(i);
      std::vector<double> heads;
      for (; i < groups.size() && layer_of(i) == layer; ++i) heads.push_back(shares[i]);
      const Share of_layer = ShareOf(heads);
      Print(stdout, "{:<6} {:7.1f}% {:7.1f}% {:7.1f}%\n", layer, 100 * of_layer.least, 100 * of_layer.mean,
            100 * of_layer.most);
    }
  }
  Print(stdout, "\n{}\n", text);
  return Status();
}

Action AddRemembers(CLI::App& sub) {
  auto flags = std::make_shared<RemembersFlags>();
  sub.add_option("file,-f,--file", flags->file, "trace file, with or without -f")->required()->type_name("FILE");
  CLI::Option* const at =
      sub.add_option("--at", flags->at,
                     "part of the stream: tokens (1000:1200, or 1000), shares (25%, 25%:50%), or times in the "
                     "source (00:30-01:00)")
          ->check(NotEmpty())
          ->type_name("SPAN");
  sub.add_option("--find", flags->find, "the part that says this, wherever it does: where each occurrence is now")
      ->excludes(at)
      ->check(NotEmpty())
      ->type_name("TEXT");
  sub.add_option("--recall-dir", flags->recall_dir, "an archive of the same stream: says what of the rest is on disk")
      ->check(NotEmpty())
      ->type_name("FOLDER");
  sub.add_option("--least", flags->least,
                 "count a token as held if at least this share of layers and heads hold it; 0 = any of them")
      ->check(Between(0.0, 1.0))
      ->capture_default_str();
  sub.add_option("--layer", flags->filter.layer, "only this layer; -1 = all")
      ->check(Between(-1, 1 << 20))
      ->capture_default_str();
  sub.add_option("--head", flags->filter.head, "only this KV head; -1 = all")
      ->check(Between(-1, 1 << 20))
      ->capture_default_str();
  sub.add_option("-o,--output", flags->output, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  return [=] { return Remembers(*flags); };
}

}  // namespace

extern const CommandInfo kRemembers;
const CommandInfo kRemembers = {
    .name = "remembers",
    .summary = "show what of a part of a stream was held, on disk or gone at the end, from a --trace file",
    .group = CommandGroup::kInspect,
    .add = AddRemembers};

}  // namespace weir::app
