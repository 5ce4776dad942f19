// weir-plugin: command
// SPDX-License-Identifier: Apache-2.0
// weir trace: prints a trace as a table, as one line per forgotten token, or as pictures.
#include <fmt/core.h>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/command.h"
#include "common.h"
#include "io/json.h"
#include "print.h"
#include "trace_attention.h"
#include "trace_maps.h"

namespace weir::app {
namespace {

struct TraceFlags {
  std::string file, output, recall_dir;
  bool summary = false, events = false, attention = false;
  double top = 0.5;
  TraceFilter filter;
};

constexpr int kPatternPanels = 4;

const char* GroupsText(Granularity granularity) {
  return granularity == Granularity::kGlobal     ? "one decision for all layers and heads"
         : granularity == Granularity::kPerLayer ? "a decision per layer"
                                                 : "a decision per layer and head";
}

int64_t Total(const std::vector<SeqRun>& runs) {
  int64_t n = 0;
  for (const SeqRun& run : runs) n += run.count;
  return n;
}

int64_t Overlap(const std::vector<SeqRun>& runs, int64_t begin, int64_t end) {
  int64_t n = 0;
  for (const SeqRun& run : runs)
    n += std::max<int64_t>(0, std::min(end, run.first + run.count) - std::max(begin, run.first));
  return n;
}

// One line per layer (or the only one): its heads' smallest, mean and largest number of tokens.
void PrintLayers(const TraceTotals& totals, const std::vector<int32_t>& groups) {
  const PotShape& pot = totals.head.pot;
  Print(stdout, "{:<6} {:>12} {:>12} {:>12} {:>12} {:>14}\n", "layer", "dropped", "kept least", "mean", "most",
        "unbroken from");
  for (size_t i = 0; i < groups.size();) {
    const int32_t layer = pot.layer_of(groups[i]);
    int64_t dropped = 0, least = INT64_MAX, most = 0, sum = 0, n = 0, unbroken = 0;
    for (; i < groups.size() && pot.layer_of(groups[i]) == layer; ++i, ++n) {
      const std::vector<SeqRun>& held = totals.held[static_cast<size_t>(groups[i])];
      const int64_t kept = Total(held);
      dropped += totals.n_dropped[static_cast<size_t>(groups[i])];
      least = std::min(least, kept);
      most = std::max(most, kept);
      sum += kept;
      if (!held.empty()) unbroken = std::max(unbroken, held.back().first);
    }
    Print(stdout, "{:<6} {:>12} {:>12} {:12.1f} {:>12} {:>14}\n",
          pot.granularity == Granularity::kGlobal ? "all" : std::to_string(layer), CountText(dropped), CountText(least),
          static_cast<double>(sum) / static_cast<double>(n), CountText(most), CountText(unbroken));
  }
}

// How much of each modality is held, and of the tokens that have a time, of each tenth of it. `groups`: those looked
// at.
void PrintModalities(const TraceTotals& totals, const std::vector<int32_t>& groups) {
  constexpr int64_t kParts = 10;
  int64_t seen[kNumModalities] = {}, held[kNumModalities] = {}, n_in_part[kParts] = {}, held_in_part[kParts] = {};
  int64_t last_ms = 0;
  for (const TraceToken& token : totals.tokens) {
    ++seen[static_cast<int>(token.modality)];
    last_ms = std::max(last_ms, token.t_src_ms);
  }
  if (seen[0] == totals.n_tokens) return;
  const auto part_of = [last_ms](const TraceToken& token) {
    return std::clamp<int64_t>(token.t_src_ms * kParts / (last_ms + 1), 0, kParts - 1);
  };
  for (const TraceToken& token : totals.tokens) n_in_part[part_of(token)] += token.modality == Modality::kVideo;
  for (const int32_t group : groups) {
    for (const SeqRun& run : totals.held[static_cast<size_t>(group)]) {
      for (int64_t seq = run.first; seq < run.first + run.count; ++seq) {
        const TraceToken& token = totals.tokens[static_cast<size_t>(seq)];
        ++held[static_cast<int>(token.modality)];
        held_in_part[part_of(token)] += token.modality == Modality::kVideo;
      }
    }
  }
  const auto share = [&groups](int64_t part, int64_t whole) {
    return 100 * static_cast<double>(part) / static_cast<double>(groups.size()) / static_cast<double>(whole);
  };
  Print(stdout, "\n{:<24} {:>12} {:>8}\n", "modality", "seen", "held");
  for (int m = 0; m < kNumModalities; ++m) {
    if (seen[m] == 0) continue;
    Print(stdout, "{:<24} {:>12} {:7.2f}%\n", ModalityName(static_cast<Modality>(m)), CountText(seen[m]),
          share(held[m], seen[m]));
  }
  if (seen[static_cast<int>(Modality::kVideo)] == 0) return;
  Print(stdout, "\n{:<24} {:>12} {:>8}\n", "video, seconds", "seen", "held");
  for (int64_t part = 0; part < kParts; ++part) {
    if (n_in_part[part] == 0) continue;
    const double tenth = static_cast<double>(last_ms + 1) / 1000 / kParts;
    Print(stdout, "{:<24} {:>12} {:7.2f}%\n",
          fmt::format("{:.1f} to {:.1f}", tenth * static_cast<double>(part), tenth * static_cast<double>(part + 1)),
          CountText(n_in_part[part]), share(held_in_part[part], n_in_part[part]));
  }
}

// Of every tenth of the stream: what is held somewhere, what only the archive has, and what is gone.
Status PrintPlaces(const TraceTotals& totals, const std::vector<int32_t>& groups, const std::string& recall_dir) {
  constexpr int64_t kParts = 10;
  WEIR_ASSIGN_OR_RETURN(const SeqSet on_disk, SeqsOnDisk(recall_dir));
  std::vector<bool> held(static_cast<size_t>(totals.n_tokens), false);
  for (const int32_t group : groups) {
    for (const SeqRun& run : totals.held[static_cast<size_t>(group)]) {
      std::fill_n(held.begin() + run.first, run.count, true);
    }
  }
  Print(stdout, "\n{:<24} {:>10} {:>10} {:>10} {:>10}\n", "places of tokens", "held", "on disk", "gone", "taken back");
  for (int64_t part = 0; part < kParts; ++part) {
    const int64_t begin = totals.n_tokens * part / kParts, end = totals.n_tokens * (part + 1) / kParts;
    if (begin == end) continue;
    PlaceCounts n{};
    for (int64_t seq = begin; seq < end; ++seq) {
      const TokenPlace place = PlaceOf(seq, held[static_cast<size_t>(seq)], totals.taken_back.seqs(), &on_disk);
      ++n[static_cast<size_t>(place)];
    }
    Print(stdout, "{:<24} {:>10} {:>10} {:>10} {:>10}\n", CountText(begin) + " to " + CountText(end), CountText(n[0]),
          CountText(n[1]), CountText(n[2]), CountText(n[3]));
  }
  return Status();
}

Status Summary(const TraceFlags& flags) {
  WEIR_ASSIGN_OR_RETURN(const TraceTotals totals, ReadTotals(flags.file));
  const PotShape& pot = totals.head.pot;
  const std::vector<int32_t> groups = flags.filter.Groups(pot);
  if (groups.empty()) return InvalidArgument("{} has no such layer or head", flags.file);
  Print(stdout, "model      {}\npolicy     {}\n", Printable(totals.head.model), Printable(totals.head.policy));
  Print(stdout, "pot        {} tokens x {} layers x {}{} KV heads, {}\n", CountText(pot.n_slots), pot.n_layers,
        pot.layers.empty() ? "" : "up to ", pot.n_kv_heads, GroupsText(pot.granularity));
  if (totals.n_restarts > 0)
    Print(stdout, "restarts   {}; what follows is the last stream\n", CountText(totals.n_restarts));
  if (totals.counters.has_value()) {
    Print(stdout, "tokens     {} seen, {} kept, {} dropped\n", CountText(totals.counters->seen),
          CountText(totals.counters->kept), CountText(totals.counters->dropped));
  } else {
    Print(stdout, "tokens     {} seen; the trace was not closed, so newer ones are missing\n",
          CountText(totals.n_tokens));
  }
  Print(stdout, "selections {}\n", CountText(totals.n_selections));
  for (const auto& [reason, n] : totals.reasons) {
    Print(stdout, "           {} for \"{}\"{}\n", CountText(n), Printable(reason),
          pot.n_groups() > 1 ? ", counted per layer or head" : "");
  }
  Print(stdout, "\n");
  PrintLayers(totals, groups);
  if (totals.n_tokens == 0) return Status();
  if (!flags.recall_dir.empty()) WEIR_RETURN_IF_ERROR(PrintPlaces(totals, groups, flags.recall_dir));
  Print(stdout, "\n{:<24} {:>8}\n", "tokens of the stream", "held");
  constexpr int64_t kParts = 10;
  for (int64_t part = 0; part < kParts; ++part) {
    const int64_t begin = totals.n_tokens * part / kParts, end = totals.n_tokens * (part + 1) / kParts;
    if (begin == end) continue;
    double held = 0;
    for (const int32_t group : groups)
      held += static_cast<double>(Overlap(totals.held[static_cast<size_t>(group)], begin, end));
    Print(stdout, "{:<24} {:7.2f}%\n", (CountText(begin) + " to " + CountText(end)),
          100 * held / static_cast<double>(groups.size()) / static_cast<double>(end - begin));
  }
  PrintModalities(totals, groups);
  return Status();
}

// Every forgotten token as one line of JSON, with all that is known of it.
Status Events(const TraceFlags& flags) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<TraceReader> reader, TraceReader::Open(flags.file));
  const bool all = reader->head().all_scores;
  const auto number = [](const std::vector<float>& values, size_t i) -> nlohmann::ordered_json {
    return i < values.size() && std::isfinite(values[i]) ? nlohmann::ordered_json(values[i]) : nlohmann::ordered_json();
  };
  TraceStep step;
  for (;;) {
    WEIR_ASSIGN_OR_RETURN(const bool more, reader->Next(&step));
    if (!more) return Status();
    if (!flags.filter.Takes(step)) continue;
    size_t n_dropped = 0, at = 0;
    int64_t slot_of_run = 0;  // of step.before[at]
    for (const SeqRun& run : step.dropped) {
      for (int64_t slot = run.first; slot < run.first + run.count; ++slot, ++n_dropped) {
        while (slot >= slot_of_run + step.before[at].count) slot_of_run += step.before[at++].count;
        const int64_t seq = step.before[at].first + (slot - slot_of_run);
        const TraceToken& token = reader->tokens()[static_cast<size_t>(seq)];
        const size_t value = all ? static_cast<size_t>(slot) : n_dropped;
        nlohmann::ordered_json line = {{"step", step.step},
                                       {"policy", reader->head().policy},
                                       {"layer", step.layer},
                                       {"head", step.head},
                                       {"slot", slot},
                                       {"seq", seq},
                                       {"t_src_ms", token.t_src_ms},
                                       {"modality", ModalityName(token.modality)},
                                       {"token", token.id}};
        if (const std::string* piece = reader->piece(token.id); piece != nullptr) line["text"] = *piece;
        if (!step.scores.empty()) line["score"] = number(step.scores, value);
        if (!step.nll.empty()) line["nll"] = number(step.nll, value);
        line["reason"] = step.reason;
        Print(stdout, "{}\n", JsonText(line));
      }
    }
    if (std::ferror(stdout) != 0) return FlushOutput();  // the reader has closed the pipe
  }
}

// Writes the file of -o, in the format of its extension.
Status WriteFigure(const TraceFlags& flags, const Figure& figure) {
  const bool png = flags.output.ends_with(".png");
  WEIR_ASSIGN_OR_RETURN(const std::string bytes, png ? FigurePng(figure) : FigureSvg(figure));
  std::FILE* file = std::fopen(flags.output.c_str(), "wb");
  if (file == nullptr) return IoError("cannot write {}: {}", flags.output, std::strerror(errno));
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (std::fclose(file) != 0 || !written) return IoError("cannot write {}: {}", flags.output, std::strerror(errno));
  return Status();
}

Status Draw(const TraceFlags& flags) {
  WEIR_ASSIGN_OR_RETURN(const TraceTotals totals, ReadTotals(flags.file));
  Figure figure;
  figure.title = "Pot of " + CountText(totals.head.pot.n_slots) + ", " + totals.head.model;
  figure.subtitle = totals.head.policy;
  figure.legend_low = "few";
  figure.legend_high = "all";
  WEIR_ASSIGN_OR_RETURN(Panel kept, KeptMap(flags.file, totals, flags.filter));
  figure.panels.push_back(std::move(kept));
  WEIR_ASSIGN_OR_RETURN(std::vector<Panel> patterns, Patterns(flags.file, totals, flags.filter, kPatternPanels));
  if (!patterns.empty()) {
    figure.legend_low = "few, low score";
    figure.legend_high = "all, high score";
  }
  const size_t n_patterns = patterns.size();
  for (Panel& panel : patterns) figure.panels.push_back(std::move(panel));
  WEIR_RETURN_IF_ERROR(WriteFigure(flags, figure));
  std::string drawn = "what was kept";
  if (n_patterns > 0) {
    drawn += fmt::format(", and the scores of {} layer{}", n_patterns, n_patterns == 1 ? "" : "s");
  } else if (!totals.head.all_scores) {
    drawn += " (a trace written with --trace-scores shows scores too)";
  }
  Print(stderr, "wrote {}: {}\n", Printable(flags.output), drawn);
  return Status();
}

Status Attention(const TraceFlags& flags) {
  WEIR_ASSIGN_OR_RETURN(const AttentionStudy study, StudyAttention(flags.file, flags.filter, flags.top));
  if (!flags.output.empty()) {
    Figure figure;
    figure.title = "Attention of " + CountText(std::ssize(study.rows)) + " tokens, " + study.head.model;
    figure.subtitle = study.head.policy;
    figure.legend_low = "0";
    figure.legend_high = "1 (of text: the most)";
    figure.panels = AttentionPanels(study);
    WEIR_RETURN_IF_ERROR(WriteFigure(flags, figure));
    Print(stderr, "wrote {}: the attention of {} tokens\n", Printable(flags.output), CountText(std::ssize(study.rows)));
  }
  if (flags.summary || flags.output.empty()) PrintAttention(study);
  return Status();
}

Status Trace(const TraceFlags& flags) {
  if (!flags.output.empty() && !flags.output.ends_with(".png") && !flags.output.ends_with(".svg")) {
    return InvalidArgument("-o {}: expected a file name that ends in .svg or .png", flags.output);
  }
  if (flags.attention) return Attention(flags);
  if (!flags.output.empty()) WEIR_RETURN_IF_ERROR(Draw(flags));
  if (flags.events) return Events(flags);
  return flags.summary || flags.output.empty() ? Summary(flags) : Status();
}

Action AddTrace(CLI::App& sub) {
  auto flags = std::make_shared<TraceFlags>();
  sub.add_option("file,-f,--file", flags->file, "trace file, with or without -f")->required()->type_name("FILE");
  sub.add_option(
         "-o,--output", flags->output,
         "draw what was kept, and with --trace-scores where attention went: .svg, or .png for the maps without text")
      ->check(NotEmpty())
      ->type_name("FILE");
  CLI::Option* summary = sub.add_flag("--summary", flags->summary, "print the table (the default without -o)");
  sub.add_flag("--events", flags->events, "print one line of JSON per evicted token")->excludes(summary);
  CLI::Option* attention =
      sub.add_flag("--attention", flags->attention,
                   "for a trace with --trace-attention: show how sparse attention to pictures is, how similar it is "
                   "across layers and answer tokens, and how attention to text decays; a table, or pictures with -o")
          ->excludes("--events");
  sub.add_option("--top", flags->top, "with --attention: share of a picture's tokens that counts as important")
      ->needs(attention)
      ->check(CLI::Range(0.0, 1.0).description(""))
      ->capture_default_str();
  sub.add_option("--recall-dir", flags->recall_dir,
                 "an archive of the same stream: the table says what of the forgotten is on disk")
      ->check(NotEmpty())
      ->type_name("FOLDER");
  sub.add_option("--layer", flags->filter.layer, "only this layer; -1 = all")
      ->check(Between(-1, 1 << 20))
      ->capture_default_str();
  sub.add_option("--head", flags->filter.head, "only this KV head; -1 = all")
      ->check(Between(-1, 1 << 20))
      ->capture_default_str();
  return [=] { return Trace(*flags); };
}

}  // namespace

extern const CommandInfo kTrace;
const CommandInfo kTrace = {.name = "trace",
                            .summary = "show what was evicted, from a --trace file: a table, events, or pictures",
                            .group = CommandGroup::kInspect,
                            .add = AddTrace};

}  // namespace weir::app
