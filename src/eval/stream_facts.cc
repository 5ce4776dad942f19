// SPDX-License-Identifier: Apache-2.0
#include "eval/stream_facts.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "eval/haystack.h"
#include "eval/text_match.h"
#include "eval/words.h"

namespace weir {
namespace {

struct Told {
  Fact fact;
  int64_t end;  // tokens of the stream when it had been told
};

// The stream and its facts, as far back as questions go.
class FactStream {
 public:
  FactStream(Examinee& examinee, const StreamQaOptions& options)
      : examinee_(examinee),
        options_(options),
        facts_(TrialRng(options.seed, 0).Next(), options.n_subjects),
        haystack_(Open(options)) {
    farthest_ = *std::max_element(options.distances.begin(), options.distances.end());
  }

  // Reads until the stream has n_tokens tokens. Facts go where a sentence ends.
  Status ReadTo(int64_t n_tokens) {
    while (examinee_.n_tokens() < n_tokens) {
      if (examinee_.n_tokens() >= next_fact_) {
        const Fact fact = facts_.Next();
        WEIR_RETURN_IF_ERROR(examinee_.Read(fact.text() + " "));
        told_.push_back({fact, examinee_.n_tokens()});
        next_fact_ = examinee_.n_tokens() + options_.gap_tokens;
        while (told_.size() > 2 && told_[1].end < examinee_.n_tokens() - farthest_ - 2 * options_.gap_tokens)
          told_.pop_front();
      }
      WEIR_RETURN_IF_ERROR(examinee_.Read(haystack_.Next()));
    }
    return Status();
  }
  int64_t TokensBack(const Told& told) const { return examinee_.n_tokens() - told.end; }
  const std::deque<Told>& told() const { return told_; }
  Fact Untold(int64_t i) { return facts_.Untold(i); }
  // The fact whose distance is nearest to `distance`. REQUIRES: something was told.
  const Told& Nearest(int64_t distance) const {
    return *std::min_element(told_.begin(), told_.end(), [&](const Told& a, const Told& b) {
      return std::abs(TokensBack(a) - distance) < std::abs(TokensBack(b) - distance);
    });
  }

 private:
  static Haystack Open(const StreamQaOptions& options) {
    const uint64_t start = TrialRng(options.seed, 1).Next();
    return options.text.empty() ? Haystack::Prose(start) : Haystack::Of(options.text, start);
  }
  Examinee& examinee_;
  const StreamQaOptions& options_;
  FactSource facts_;
  Haystack haystack_;
  std::deque<Told> told_;
  int64_t next_fact_ = 0, farthest_ = 0;
};

Question QuestionAbout(const Fact& fact, int32_t n_answer) {
  Question question;
  question.completion = "\n\n" + fact.subject + " is";
  question.chat = "\n\nAccording to the text, what is t" + fact.subject.substr(1) + "? Answer with the number.";
  question.gold = " " + std::to_string(fact.value);
  question.n_answer = n_answer;
  question.number = true;
  return question;
}

// With recall: how often something was brought back, and how often the answer was in it.
void CountRecalled(const Examinee& examinee, const Question& question, const Reply& reply, Cell* cell) {
  if (!examinee.recalls()) return;
  if (cell->more.empty()) cell->more = {{"recalled", {}}, {"found", {}}};
  const bool found = !question.gold.empty() && std::ranges::any_of(reply.recalled.passages, [&](const auto& passage) {
    return passage.text.find(question.gold) != std::string::npos;
  });
  cell->more[0].second.Add(reply.recalled.passages.empty() ? 0 : 1);
  cell->more[1].second.Add(found ? 1 : 0);
}

Status Read(Examinee& examinee, const StreamQaOptions& options, const SuiteHooks& hooks, std::vector<Cell>* cells) {
  WEIR_RETURN_IF_ERROR(examinee.Begin());
  FactStream stream(examinee, options);
  const int64_t total = static_cast<int64_t>(cells->size()) * options.n;
  int64_t asked = 0;
  // A fact is at most half a gap from the wanted distance; a point counts once that much has been read.
  for (int64_t at = options.every_tokens; asked < total; at += options.every_tokens) {
    WEIR_RETURN_IF_ERROR(stream.ReadTo(at));
    bool marked = false;
    for (size_t c = 0; c < cells->size(); ++c) {
      Cell& cell = (*cells)[c];
      if (cell.score.n() >= options.n || stream.told().empty()) continue;
      if (options.untold && c + 1 == cells->size()) {
        if (!marked) WEIR_RETURN_IF_ERROR(examinee.Mark());
        marked = true;
        Question question = QuestionAbout(stream.Untold(cell.score.n() % 64), options.n_answer);
        question.gold.clear();
        WEIR_ASSIGN_OR_RETURN(const Reply reply, examinee.AskAside(question));
        cell.score.Add(FirstInteger(reply.text).has_value() ? 1 : 0);
        CountRecalled(examinee, question, reply, &cell);
        ++asked;
        continue;
      }
      const bool present = c == 0;
      if (!present && stream.TokensBack(stream.told().front()) + options.gap_tokens / 2 < options.distances[c - 1])
        continue;
      const Told& told = present ? stream.told().back() : stream.Nearest(options.distances[c - 1]);
      if (!marked) WEIR_RETURN_IF_ERROR(examinee.Mark());
      marked = true;
      const Question question = QuestionAbout(told.fact, options.n_answer);
      WEIR_ASSIGN_OR_RETURN(const Reply reply, examinee.AskAside(question));
      cell.score.Add(FirstInteger(reply.text) == told.fact.value ? 1 : 0);
      CountRecalled(examinee, question, reply, &cell);
      if (reply.has_gold_nll) cell.gold_nll.Add(reply.gold_nll);
      cell.tokens_back.Add(static_cast<double>(stream.TokensBack(told)));
      ++asked;
      if (hooks.progress) hooks.progress(asked, total);
    }
  }
  return Status();
}

}  // namespace

FactSource::FactSource(uint64_t seed, int64_t n_subjects)
    : n_subjects_(n_subjects > 0 ? std::min(n_subjects, MaxSubjects()) : MaxSubjects()),
      rng_(seed),
      order_(static_cast<size_t>(MaxSubjects())) {
  std::iota(order_.begin(), order_.end(), 0);
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[rng_.Below(i)]);
}

int64_t FactSource::MaxSubjects() { return static_cast<int64_t>(People().size() * NumberedThings().size()); }

Fact FactSource::About(int32_t idx) {
  const auto n_people = static_cast<int32_t>(People().size());
  Fact fact;
  fact.subject = "The " + std::string(People()[idx % n_people]) + "'s " + std::string(NumberedThings()[idx / n_people]);
  return fact;
}

Fact FactSource::Next() {
  Fact fact = About(order_[static_cast<size_t>(n_++ % n_subjects_)]);
  fact.value = 10000 + static_cast<int32_t>(rng_.Below(90000));
  return fact;
}

Fact FactSource::Untold(int64_t i) { return About(order_[order_.size() - 1 - static_cast<size_t>(i)]); }

Status RunStreamQa(Examinee& examinee, const StreamQaOptions& options, const SuiteHooks& hooks) {
  if (options.distances.empty() || options.n < 1 || options.n_answer < 1 || options.gap_tokens < 16 ||
      options.every_tokens < 16) {
    return InvalidArgument(
        "distances, questions, and at least 16 tokens between facts and between questions are needed");
  }
  const int64_t n_subjects =
      options.n_subjects > 0 ? std::min(options.n_subjects, FactSource::MaxSubjects()) : FactSource::MaxSubjects();
  const int64_t farthest = (n_subjects - 2) * options.gap_tokens;
  std::vector<Cell> cells(options.distances.size() + 1 + options.untold);
  if (options.untold) {
    cells.back().task = "stream";
    cells.back().labels = {{"kind", "untold"}};
    cells.back().numbers = {{"distance", 0}};
    cells.back().metric = "answered_wrong";
  }
  cells[0].task = "stream";
  cells[0].labels = {{"kind", "present"}};
  cells[0].numbers = {{"distance", 0}};
  for (size_t d = 0; d < options.distances.size(); ++d) {
    if (options.distances[d] < options.gap_tokens || options.distances[d] > farthest) {
      return InvalidArgument("a distance of {} tokens: with facts every {}, expected {} to {}", options.distances[d],
                             options.gap_tokens, options.gap_tokens, farthest);
    }
    Cell& cell = cells[d + 1];
    cell.task = "stream";
    cell.labels = {{"kind", "memory"}};
    cell.numbers = {{"distance", static_cast<double>(options.distances[d])}};
  }
  const Status status = Read(examinee, options, hooks, &cells);
  ReportAll(cells, hooks);
  return status;
}

}  // namespace weir
