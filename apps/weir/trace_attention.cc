// SPDX-License-Identifier: Apache-2.0
#include "trace_attention.h"

#include <fmt/core.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "common.h"
#include "print.h"

namespace weir::app {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kEnough = 0.8;  // of the attention, for the table: what the paper counts tokens for

// One row in one layer, split by what it attended to.
struct Cell {
  std::vector<std::pair<float, int64_t>> visual;  // (s, seq), best first
  std::vector<int64_t> top;                       // ascending
};

using Row = std::map<int32_t, TraceAttention>;  // by layer

int Bin(int64_t distance) { return distance == 0 ? 0 : std::bit_width(static_cast<uint64_t>(distance)); }

std::string BinText(int bin) {
  if (bin < 2) return std::to_string(bin);
  return CountText(int64_t{1} << (bin - 1)) + " to " + CountText((int64_t{1} << bin) - 1);
}

double Ppci(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  if (a.empty() || b.empty()) return kNan;
  std::vector<int64_t> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return static_cast<double>(both.size()) / static_cast<double>(std::max(a.size(), b.size()));
}

// Mean of the values present.
class Mean {
 public:
  void Add(double value) {
    if (std::isnan(value)) return;
    sum_ += value;
    ++n_;
  }
  double value() const { return n_ == 0 ? kNan : sum_ / n_; }

 private:
  double sum_ = 0;
  int64_t n_ = 0;
};

// The rows of the last stream that have all layers, and the tokens of it.
struct Rows {
  TraceHead head;
  std::vector<TraceToken> tokens;
  std::vector<Row> rows;
};
Result<Rows> ReadRows(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<TraceReader> reader, TraceReader::Open(path));
  Rows out;
  out.head = reader->head();
  int64_t n_restarts = 0;
  const auto forget_earlier = [&] {
    if (reader->n_restarts() != n_restarts) out.rows.clear();
    n_restarts = reader->n_restarts();
  };
  reader->OnAttention([&](const TraceAttention& line) {
    forget_earlier();
    if (out.rows.empty() || out.rows.back().begin()->second.seq != line.seq) out.rows.emplace_back();
    out.rows.back()[line.layer] = line;
  });
  TraceStep step;
  for (bool more = true; more;) {
    WEIR_ASSIGN_OR_RETURN(more, reader->Next(&step));
  }
  forget_earlier();
  std::erase_if(out.rows, [&](const Row& row) { return std::ssize(row) != out.head.pot.n_layers; });
  out.tokens = reader->tokens();
  return out;
}

// Calls visit(seq, s) for every slot whose score is a number.
template <typename Visit>
void ForSlots(const TraceAttention& line, const Visit& visit) {
  size_t slot = 0;
  for (const SeqRun& run : line.slots) {
    for (int64_t seq = run.first; seq < run.first + run.count; ++seq, ++slot) {
      if (!std::isnan(line.scores[slot])) visit(seq, line.scores[slot]);
    }
  }
}

// The cumulated share of the attention that the best tokens receive, at every hundredth of them.
void AddSparsity(const Cell& cell, std::vector<Mean>* out) {
  const double n = static_cast<double>(cell.visual.size());
  double whole = 0;
  for (const auto& [score, seq] : cell.visual) whole += score;
  if (!(whole > 0)) return;
  std::vector<double> sums = {0};
  for (const auto& [score, seq] : cell.visual) sums.push_back(sums.back() + score);
  for (int part = 0; part <= kSparsityParts; ++part) {
    // Between two tokens a part of the next one.
    const double at = n * part / kSparsityParts;
    const size_t i = std::min(static_cast<size_t>(at), cell.visual.size() - 1);
    (*out)[static_cast<size_t>(part)].Add((sums[i] + (at - static_cast<double>(i)) * cell.visual[i].first) / whole);
  }
}

Panel Square(const std::string& title, const std::string& axis, double first, double last,
             const std::vector<std::vector<double>>& values) {
  Panel out;
  out.title = title;
  out.x_label = out.y_label = axis;
  out.x_first = out.y_first = first;
  out.x_last = out.y_last = last;
  const int n = static_cast<int>(values.size());
  out.map = HeatMap(n, n);
  for (int y = 0; y < n; ++y) {
    for (int x = 0; x < n; ++x) {
      out.map.at(x, y) = static_cast<float>(values[static_cast<size_t>(y)][static_cast<size_t>(x)]);
    }
  }
  return out;
}

}  // namespace

Result<AttentionStudy> StudyAttention(const std::string& path, const TraceFilter& filter, double top) {
  WEIR_ASSIGN_OR_RETURN(const Rows read, ReadRows(path));
  if (read.rows.empty()) {
    return InvalidArgument("{} contains no attention; record it with --trace-attention N", path);
  }
  AttentionStudy out;
  out.head = read.head;
  out.top = top;
  for (int32_t layer = 0; layer < read.head.pot.n_layers; ++layer) {
    if (filter.layer < 0 || filter.layer == layer) out.layers.push_back(layer);
  }
  if (out.layers.empty()) return InvalidArgument("{} has no such layer", path);
  const size_t n_layers = out.layers.size(), n_rows = read.rows.size();
  const size_t n_bins = static_cast<size_t>(Bin(std::ssize(read.tokens)) + 1);
  std::vector<std::vector<Cell>> cells(n_rows, std::vector<Cell>(n_layers));
  std::vector<Mean> visual_attention(n_layers), visual_tokens(n_layers), decay_share(n_bins);
  std::vector<std::vector<Mean>> sparsity(n_layers, std::vector<Mean>(kSparsityParts + 1));
  for (size_t r = 0; r < n_rows; ++r) {
    std::vector<double> sums(n_bins, 0), counts(n_bins, 0);
    const int64_t row = read.rows[r].begin()->second.seq;
    out.rows.push_back(row);
    for (size_t l = 0; l < n_layers; ++l) {
      Cell& cell = cells[r][l];
      double visual = 0, all = 0, n_all = 0;
      ForSlots(read.rows[r].at(out.layers[l]), [&](int64_t seq, float score) {
        all += score;
        ++n_all;
        if (read.tokens[static_cast<size_t>(seq)].modality != Modality::kText) {
          cell.visual.push_back({score, seq});
          visual += score;
          return;
        }
        const size_t bin = static_cast<size_t>(Bin(row - seq));
        sums[bin] += score;
        ++counts[bin];
      });
      if (cell.visual.empty()) continue;
      const double n = static_cast<double>(cell.visual.size());
      std::sort(cell.visual.begin(), cell.visual.end(), [](const auto& a, const auto& b) {
        return a.first != b.first ? a.first > b.first : a.second > b.second;
      });
      const size_t n_top = static_cast<size_t>(std::clamp(std::floor(top * n + 0.5), 1.0, n));
      for (size_t i = 0; i < n_top; ++i) cell.top.push_back(cell.visual[i].second);
      std::sort(cell.top.begin(), cell.top.end());
      if (all > 0) visual_attention[l].Add(visual / all);
      visual_tokens[l].Add(n / n_all);
      AddSparsity(cell, &sparsity[l]);
    }
    const auto saw_some = [](const Cell& cell) { return !cell.visual.empty(); };
    out.n_visual_rows += std::any_of(cells[r].begin(), cells[r].end(), saw_some);
    const double text = std::accumulate(sums.begin(), sums.end(), 0.0);
    out.decay.emplace_back();
    for (size_t bin = 0; bin < n_bins; ++bin) {
      out.decay.back().push_back(counts[bin] == 0 ? kNan : sums[bin] / counts[bin]);
      if (text > 0) decay_share[bin].Add(sums[bin] / text);
    }
  }
  for (size_t l = 0; l < n_layers; ++l) {
    out.visual_attention.push_back(visual_attention[l].value());
    out.visual_tokens.push_back(visual_tokens[l].value());
    out.sparsity.emplace_back();
    for (const Mean& part : sparsity[l]) out.sparsity.back().push_back(part.value());
    out.layer_ppci.emplace_back();
    for (size_t other = 0; other < n_layers; ++other) {
      Mean mean;
      for (size_t r = 0; r < n_rows; ++r) mean.Add(Ppci(cells[r][l].top, cells[r][other].top));
      out.layer_ppci.back().push_back(mean.value());
    }
  }
  for (size_t r = 0; r < n_rows; ++r) {
    out.row_ppci.emplace_back();
    for (size_t other = 0; other < n_rows; ++other) {
      Mean mean;
      for (size_t l = 0; l < n_layers; ++l) mean.Add(Ppci(cells[r][l].top, cells[other][l].top));
      out.row_ppci.back().push_back(mean.value());
    }
  }
  for (const Mean& share : decay_share) out.decay_share.push_back(share.value());
  return out;
}

void PrintAttention(const AttentionStudy& study) {
  Print(stdout, "model      {}\npolicy     {}\n", Printable(study.head.model), Printable(study.head.policy));
  Print(stdout, "rows       {} tokens, from token {} to {}\n", study.rows.size(), CountText(study.rows.front()),
        CountText(study.rows.back()));
  const auto number = [](double value) { return std::isnan(value) ? std::string("-") : fmt::format("{:.4f}", value); };
  if (study.n_visual_rows > 0) {
    const double percent = 100 * study.top;
    Print(stdout, "\n{:<6} {:>16} {:>16} {:>16} {:>12} {:>12}\n", "layer", "visual tokens", "their attention",
          "for 80% of it", fmt::format("top {:g}% has", percent), fmt::format("PPCI layer {}", study.layers[0]));
    for (size_t l = 0; l < study.layers.size(); ++l) {
      const std::vector<double>& curve = study.sparsity[l];
      const auto enough = std::find_if(curve.begin(), curve.end(), [](double share) { return share >= kEnough; });
      const double at = study.top * kSparsityParts;
      const size_t i = std::min(static_cast<size_t>(at), curve.size() - 2);
      Print(stdout, "{:<6} {:>16} {:>16} {:>16} {:>12} {:>12}\n", study.layers[l], number(study.visual_tokens[l]),
            number(study.visual_attention[l]),
            number(enough == curve.end() ? kNan : static_cast<double>(enough - curve.begin()) / kSparsityParts),
            number(curve[i] + (at - static_cast<double>(i)) * (curve[i + 1] - curve[i])),
            number(study.layer_ppci[0][l]));
    }
    Print(stdout, "\n{:<24} {:>16} {:>16}\n", "token", "PPCI with first", "with the last");
    for (size_t r = 0; r < study.rows.size(); ++r) {
      Print(stdout, "{:<24} {:>16} {:>16}\n", CountText(study.rows[r]), number(study.row_ppci[0][r]),
            number(r == 0 ? kNan : study.row_ppci[r - 1][r]));
    }
  }
  Print(stdout, "\n{:<24} {:>16} {:>16} {:>16}\n", "text, distance", "share of text's", "a token, first",
        "a token, last");
  for (size_t bin = 0; bin < study.decay_share.size(); ++bin) {
    const double first = study.decay.front()[bin], last = study.decay.back()[bin];
    if (std::isnan(first) && std::isnan(last)) continue;
    Print(stdout, "{:<24} {:>16} {:>16} {:>16}\n", BinText(static_cast<int>(bin)), number(study.decay_share[bin]),
          number(first), number(last));
  }
}

std::vector<Panel> AttentionPanels(const AttentionStudy& study) {
  std::vector<Panel> out;
  const double first_layer = study.layers.front(), last_layer = study.layers.back() + 1;
  const int n_layers = static_cast<int>(study.layers.size()), n_rows = static_cast<int>(study.rows.size());
  if (study.n_visual_rows > 0) {
    Panel sparsity;
    sparsity.title = "Share of the attention on pictures that their best tokens receive";
    sparsity.x_label = "share of the tokens, percent, best first";
    sparsity.y_label = "layer";
    sparsity.x_last = 100;
    sparsity.y_first = first_layer;
    sparsity.y_last = last_layer;
    sparsity.map = HeatMap(kSparsityParts + 1, n_layers);
    for (int l = 0; l < n_layers; ++l) {
      for (int x = 0; x <= kSparsityParts; ++x) {
        sparsity.map.at(x, l) = static_cast<float>(study.sparsity[static_cast<size_t>(l)][static_cast<size_t>(x)]);
      }
    }
    out.push_back(std::move(sparsity));
    const double percent = 100 * study.top;
    out.push_back(Square(fmt::format("PPCI at {:g}%: visual tokens that layers have in common", percent), "layer",
                         first_layer, last_layer, study.layer_ppci));
    out.push_back(Square(fmt::format("PPCI at {:g}%: visual tokens that moments have in common", percent),
                         "token of the answer", 0, n_rows, study.row_ppci));
  }
  Panel decay;
  decay.title = "Attention per token of text by its distance, square root";
  decay.x_label = "token of the answer";
  decay.y_label = "distance, powers of two";
  decay.x_last = n_rows;
  decay.y_last = static_cast<double>(study.decay_share.size());
  decay.map = HeatMap(n_rows, static_cast<int>(study.decay_share.size()));
  double most = 0;
  for (const std::vector<double>& row : study.decay) {
    for (double value : row) most = std::isnan(value) ? most : std::max(most, value);
  }
  for (int x = 0; x < n_rows; ++x) {
    for (int y = 0; y < decay.map.height && most > 0; ++y) {
      const double value = study.decay[static_cast<size_t>(x)][static_cast<size_t>(y)];
      decay.map.at(x, y) = static_cast<float>(std::sqrt(value / most));
    }
  }
  out.push_back(std::move(decay));
  return out;
}

}  // namespace weir::app
