// weir-plugin: command
// SPDX-License-Identifier: Apache-2.0
// weir remembers: how much of a part of the stream was still held when the trace ended.
#include <fmt/core.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "commands/command.h"
#include "common.h"
#include "io/json.h"
#include "print.h"
#include "trace_maps.h"

namespace weir::app {
namespace {

struct RemembersFlags {
  std::string file, at, output = "text";
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

// What is held, with "[... 12 tokens ...]" for what is not.
std::string HeldText(const TraceReader& reader, const Span& span, const std::vector<int32_t>& holders, int32_t least) {
  std::string out, run;
  int64_t n_gone = 0;
  const auto close_gap = [&] {
    if (n_gone > 0) out += fmt::format("[... {} token{} ...]", CountText(n_gone), n_gone == 1 ? "" : "s");
    n_gone = 0;
  };
  const auto close_run = [&] {
    out += Printable(SanitizeUtf8(run, nullptr), /*lines=*/true);
    run.clear();
  };
  for (int64_t seq = span.begin; seq < span.end; ++seq) {
    if (holders[static_cast<size_t>(seq - span.begin)] < least) {
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

Status Remembers(const RemembersFlags& flags) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<TraceReader> reader, TraceReader::Open(flags.file));
  TraceStep step;
  for (bool more = true; more;) {
    WEIR_ASSIGN_OR_RETURN(more, reader->Next(&step));
  }
  if (!reader->counters().has_value()) {
    Print(stderr, "weir: warning: the trace was not closed; tokens after its last selection are missing\n");
  }
  WEIR_ASSIGN_OR_RETURN(const Span span, ParseSpan(flags.at, reader->tokens()));
  const PotShape& pot = reader->head().pot;
  const std::vector<int32_t> groups = flags.filter.Groups(pot);
  if (groups.empty()) return InvalidArgument("{} has no such layer or head", flags.file);
  const int64_t n = span.end - span.begin;
  std::vector<int32_t> holders(static_cast<size_t>(n), 0);
  std::vector<double> shares;
  for (const int32_t group : groups) {
    int64_t n_held = 0;
    for (const SeqRun& run : reader->held(group)) {
      const int64_t from = std::max(span.begin, run.first), to = std::min(span.end, run.first + run.count);
      for (int64_t seq = from; seq < to; ++seq) ++holders[static_cast<size_t>(seq - span.begin)];
      n_held += std::max<int64_t>(0, to - from);
    }
    shares.push_back(static_cast<double>(n_held) / static_cast<double>(n));
  }
  const int32_t least =
      std::max<int32_t>(1, static_cast<int32_t>(std::ceil(flags.least * static_cast<double>(groups.size()))));
  const int64_t n_held = std::count_if(holders.begin(), holders.end(), [&](int32_t h) { return h >= least; });
  int64_t n_pinned = 0;
  for (int64_t seq = span.begin; seq < span.end; ++seq) n_pinned += reader->tokens()[static_cast<size_t>(seq)].pinned;
  const Share share = ShareOf(shares);
  const std::string text = HeldText(*reader, span, holders, least);
  const auto layer_of = [&](size_t i) {
    return pot.granularity == Granularity::kPerHead ? groups[i] / pot.n_kv_heads : groups[i];
  };

  if (flags.output == "json") {
    nlohmann::ordered_json json = {{"begin", span.begin}, {"end", span.end},    {"seen", reader->n_tokens()},
                                   {"held", n_held},      {"pinned", n_pinned}, {"groups", groups.size()}};
    json["share"] = {{"min", share.least}, {"mean", share.mean}, {"max", share.most}};
    for (size_t i = 0; i < groups.size(); ++i) {
      const int32_t layer = pot.granularity == Granularity::kGlobal ? -1 : layer_of(i);
      const int32_t head = pot.granularity == Granularity::kPerHead ? groups[i] % pot.n_kv_heads : -1;
      json["by_group"].push_back({{"layer", layer}, {"head", head}, {"share", shares[i]}});
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
  sub.add_option(
         "--at", flags->at,
         "part of the stream: tokens (1000:1200, or 1000), shares (25%, 25%:50%), or times in the source (00:30-01:00)")
      ->required()
      ->check(NotEmpty())
      ->type_name("SPAN");
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
    .summary = "show how much of a part of a stream was still held at the end, from a --trace file",
    .group = CommandGroup::kInspect,
    .add = AddRemembers};

}  // namespace weir::app
