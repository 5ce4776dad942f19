// SPDX-License-Identifier: Apache-2.0
#include "eval/hits.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "eval/haystack.h"

namespace weir {
namespace {

using Seqs = std::vector<int64_t>;  // ascending

// A session that reads a text from its beginning, with the likelihood of every token.
class Reader {
 public:
  Reader(Session& session, std::span<const int32_t> tokens, const std::atomic<bool>* stop)
      : session_(session), tokens_(tokens), stop_(stop) {
    session.Reset();
  }

  // Reads until the pot is full, and one token more.
  Status ReadThroughSelection() {
    const SessionPlan& plan = session_.plan();
    const int64_t n_selections = session_.counters().selections;
    WEIR_RETURN_IF_ERROR(Read(plan.pot_slots - plan.probe_slots - session_.pot().n_used()));
    WEIR_RETURN_IF_ERROR(Read(1));
    if (session_.counters().selections > n_selections) return Status();
    return InvalidArgument("policy {} forgets nothing when its pot is full", session_.policy().info->name);
  }

  // Tokens that a head held when the newest one was about to be read.
  Seqs Held(int32_t layer, int32_t head) const {
    const Pot& pot = session_.pot();
    Seqs out;
    for (const SlotMeta& slot : pot.meta(pot.shape().group_of(layer, head))) out.push_back(slot.seq);
    if (!out.empty() && out.back() == session_.n_seen() - 1) out.pop_back();
    return out;
  }
  double NllOf(const Seqs& seqs) const {
    double sum = 0;
    for (const int64_t seq : seqs) sum += nll_[static_cast<size_t>(seq)];
    return sum;
  }
  int64_t n_read() const { return std::ssize(nll_); }

 private:
  Status Read(int64_t n) {
    const size_t at = nll_.size();
    if (n < 0 || at + static_cast<size_t>(n) > tokens_.size()) {
      return Internal("{} tokens were wanted of {}", at + static_cast<size_t>(n), tokens_.size());
    }
    nll_.resize(at + static_cast<size_t>(n));
    Session::AppendOptions append;
    append.nll = nll_.data() + at;
    append.stop = stop_;
    return n == 0 ? Status() : session_.Append(tokens_.subspan(at, static_cast<size_t>(n)), append);
  }

  Session& session_;
  const std::span<const int32_t> tokens_;
  const std::atomic<bool>* stop_;
  std::vector<float> nll_;
};

double SharedWith(const Seqs& some, const Seqs& others) {
  Seqs common;
  std::ranges::set_intersection(some, others, std::back_inserter(common));
  return others.empty() ? 0 : static_cast<double>(common.size()) / static_cast<double>(others.size());
}

// One trial's figures after a selection.
void Count(const Reader& pot, const Reader& global, const PotShape& shape, Cell* cell) {
  RunningMean hits, held, overlap, nll, nll_global;
  for (int32_t layer = 0; layer < shape.n_layers; ++layer) {
    std::vector<Seqs> heads;
    for (int32_t head = 0; head < shape.n_kv_heads_of(layer); ++head) {
      heads.push_back(pot.Held(layer, head));
      const Seqs wanted = global.Held(layer, head);
      hits.Add(SharedWith(heads.back(), wanted));
      held.Add(static_cast<double>(heads.back().size()));
      nll.Add(pot.NllOf(heads.back()));
      nll_global.Add(global.NllOf(wanted));
      for (int32_t other = 0; other < head; ++other) {
        overlap.Add(SharedWith(heads[static_cast<size_t>(other)], heads.back()));
      }
    }
  }
  cell->score.Add(hits.mean());
  const std::pair<const char*, double> more[] = {{"held", held.mean()},
                                                 {"tokens_read", static_cast<double>(pot.n_read())},
                                                 {"nll", nll.mean()},
                                                 {"nll_global", nll_global.mean()},
                                                 {"overlap", overlap.mean()}};
  const size_t n = std::size(more) - (overlap.n() == 0 ? 1 : 0);
  if (cell->more.empty()) {
    for (size_t i = 0; i < n; ++i) cell->more.emplace_back(more[i].first, RunningMean());
  }
  for (size_t i = 0; i < n; ++i) cell->more[i].second.Add(more[i].second);
}

std::vector<int32_t> HitsText(const HitsOptions& options, int32_t trial, const Tokenizer& tokenizer, int64_t n_tokens) {
  const uint64_t start = TrialRng(options.seed, static_cast<uint64_t>(trial)).Next();
  Haystack haystack = options.text.empty() ? Haystack::Prose(start) : Haystack::Of(options.text, start);
  EncodeOptions plain;
  plain.add_special = false;
  std::string text;
  std::vector<int32_t> tokens;
  while (std::ssize(tokens) < n_tokens) {
    text += haystack.NextBytes(4 * n_tokens);
    tokens = tokenizer.Encode(text, plain);
  }
  tokens.resize(static_cast<size_t>(n_tokens));
  return tokens;
}

}  // namespace

Status RunHits(Session& session, const Tokenizer& tokenizer, const MakeGlobal& make_global, const HitsOptions& options,
               const std::atomic<bool>* stop, const SuiteHooks& hooks) {
  if (options.n < 1 || options.n_cycles < 1) return InvalidArgument("trials and cycles must be at least 1");
  std::vector<Cell> cells(static_cast<size_t>(options.n_cycles));
  for (size_t c = 0; c < cells.size(); ++c) {
    cells[c].task = "hits";
    cells[c].metric = "hit_rate";
    cells[c].numbers = {{"cycle", static_cast<double>(c + 1)}};
  }
  const int64_t n_slots = session.plan().pot_slots - session.plan().probe_slots;
  const auto run = [&]() -> Status {
    for (int32_t trial = 0; trial < options.n; ++trial) {
      const std::vector<int32_t> tokens = HitsText(options, trial, tokenizer, n_slots * options.n_cycles + 1);
      Reader pot(session, tokens, stop);
      for (int32_t cycle = 0; cycle < options.n_cycles; ++cycle) {
        WEIR_RETURN_IF_ERROR(pot.ReadThroughSelection());
        const int64_t n_before = pot.n_read() - 1;
        const auto n_keep = static_cast<int32_t>(pot.Held(0, 0).size());
        WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<Session> all, make_global(static_cast<int32_t>(n_before), n_keep));
        Reader global(*all, tokens, stop);
        WEIR_RETURN_IF_ERROR(global.ReadThroughSelection());
        Count(pot, global, session.pot().shape(), &cells[static_cast<size_t>(cycle)]);
        if (hooks.progress) {
          hooks.progress(int64_t{trial} * options.n_cycles + cycle + 1, int64_t{options.n} * options.n_cycles);
        }
      }
    }
    return Status();
  };
  const Status status = run();
  ReportAll(cells, hooks);
  return status;
}

}  // namespace weir
