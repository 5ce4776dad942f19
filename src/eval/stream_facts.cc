// SPDX-License-Identifier: Apache-2.0
#include "eval/stream_facts.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "eval/fact_source.h"
#include "eval/haystack.h"
#include "eval/recalled.h"
#include "eval/text_match.h"

namespace weir {
namespace {

constexpr int64_t kUntold = 64;  // subjects that nothing is told about, at most
constexpr size_t kSet = 4;       // facts about one person

struct Told {
  Fact fact;
  int64_t begin, end;  // tokens of the stream before and after it
  bool asked = false;
};

// Of every person, the first fact in each quarter of those told; people without one are left out.
std::vector<std::vector<const Told*>> SetsOf(const std::deque<Told>& told) {
  std::map<int32_t, std::array<const Told*, kSet>> sets;
  for (size_t i = 0; i < told.size(); ++i) {
    const Told*& one = sets[told[i].fact.person][i * kSet / told.size()];
    if (one == nullptr) one = &told[i];
  }
  std::vector<std::vector<const Told*>> out;
  for (const auto& [person, set] : sets) {
    if (std::ranges::find(set, nullptr) == set.end()) out.emplace_back(set.begin(), set.end());
  }
  return out;
}

// Subjects that a run tells something about, about.
int64_t NumTold(const StreamQaOptions& options) { return StreamQaTokens(options) / options.gap_tokens + 2; }

FactPool PoolOf(const StreamQaOptions& options) {
  if (options.paraphrase) return FactPool::kParaphrase;
  const int64_t n = options.n_subjects > 0 ? options.n_subjects : NumTold(options) + kUntold;
  return n > FactSource::MaxSubjects() || options.n_sets > 0 ? FactPool::kLarge : FactPool::kUsual;
}

FactSource Facts(const StreamQaOptions& options) {
  return FactSource(TrialRng(options.seed, 0).Next(), options.n_subjects, PoolOf(options));
}

// The stream and its facts, as far back as questions go.
class FactStream {
 public:
  FactStream(Examinee& examinee, const StreamQaOptions& options)
      : examinee_(examinee), options_(options), facts_(Facts(options)), haystack_(Open(options)) {
    farthest_ = *std::max_element(options.distances.begin(), options.distances.end());
  }

  // Reads until the stream has n_tokens tokens. Facts go where a sentence ends.
  Status ReadTo(int64_t n_tokens) {
    while (examinee_.n_tokens() < n_tokens) {
      if (examinee_.n_tokens() >= next_fact_) {
        const Fact fact = facts_.Next();
        const int64_t begin = examinee_.n_tokens();
        WEIR_RETURN_IF_ERROR(Read(fact.text() + " "));
        told_.push_back({fact, begin, examinee_.n_tokens()});
        next_fact_ = examinee_.n_tokens() + options_.gap_tokens;
        while (options_.n_sets == 0 && told_.size() > 2 &&
               told_[1].end < examinee_.n_tokens() - farthest_ - 2 * options_.gap_tokens)
          told_.pop_front();
      }
      WEIR_RETURN_IF_ERROR(Read(haystack_.Next()));
    }
    return Status();
  }
  int64_t TokensBack(const Told& told) const { return examinee_.n_tokens() - told.end; }
  const std::deque<Told>& told() const { return told_; }
  Fact Untold(int64_t i) { return facts_.Untold(i); }
  // The fact nearest to `distance` that was not asked for, which then counts as asked for; nullptr: there is none.
  const Told* TakeUnasked(int64_t distance) {
    Told* best = nullptr;
    for (Told& told : told_) {
      if (told.asked) continue;
      if (best == nullptr || std::abs(TokensBack(told) - distance) < std::abs(TokensBack(*best) - distance))
        best = &told;
    }
    if (best != nullptr) best->asked = true;
    return best;
  }
  // The fact whose distance is nearest to `distance`. REQUIRES: something was told.
  const Told& Nearest(int64_t distance) const {
    return *std::min_element(told_.begin(), told_.end(), [&](const Told& a, const Told& b) {
      return std::abs(TokensBack(a) - distance) < std::abs(TokensBack(b) - distance);
    });
  }

 private:
  Status Read(const std::string& text) {
    if (options_.log.read) options_.log.read(text);
    return examinee_.Read(text);
  }
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

Question QuestionAbout(const Told& told, const StreamQaOptions& options) {
  Question question;
  if (options.paraphrase) {
    const std::string subject = ParaphrasedSubject(told.fact);
    question.completion = "\n\n" + subject + " are";
    question.chat = "\n\nAccording to the text, what are t" + subject.substr(1) + "? Answer with the digits.";
  } else {
    const std::string& subject = told.fact.subject;
    question.completion = "\n\n" + subject + " is";
    question.chat = "\n\nAccording to the text, what is t" + subject.substr(1) + "? Answer with the number.";
  }
  question.gold = " " + std::to_string(told.fact.value);
  question.n_answer = options.n_answer;
  question.number = true;
  question.where = {{told.begin, told.end}};
  return question;
}

// "The courier's badge number, room number, seat number and order number are"
Question QuestionAboutAll(const std::vector<const Told*>& set, const StreamQaOptions& options) {
  std::string subject = set[0]->fact.subject;
  Question question;
  question.where.emplace();
  for (size_t i = 0; i < set.size(); ++i) {
    const std::string& one = set[i]->fact.subject;
    if (i > 0) subject += (i + 1 == set.size() ? " and" : ",") + one.substr(one.find("'s ") + 2);
    question.where->push_back({set[i]->begin, set[i]->end});
  }
  question.completion = "\n\n" + subject + " are";
  question.chat = "\n\nAccording to the text, what are t" + subject.substr(1) + "? Answer with the numbers.";
  question.n_answer = options.n_answer * static_cast<int32_t>(set.size());
  return question;
}

// The questions of one run.
class StreamQa {
 public:
  StreamQa(Examinee& examinee, const StreamQaOptions& options, const SuiteHooks& hooks)
      : examinee_(examinee), options_(options), hooks_(hooks), stream_(examinee, options) {
    total_ = static_cast<int64_t>(options.distances.size() + 1 + options.untold) * options.n +
             static_cast<int64_t>(kSet + 1) * options.n_sets;
  }

  // `along`: the newest, every distance, then untold.
  Status AskAlong(std::vector<Cell>* along) {
    const int64_t n = std::ssize(*along) * options_.n;
    // A fact is at most half a gap from the wanted distance; a point counts once that much has been read.
    for (int64_t at = options_.every_tokens; asked_ < n; at += options_.every_tokens) {
      WEIR_RETURN_IF_ERROR(stream_.ReadTo(at));
      marked_ = false;
      if (stream_.told().empty()) continue;
      if (options_.carry) {
        WEIR_RETURN_IF_ERROR(AskRound(along));
        continue;
      }
      for (size_t c = 0; c < along->size(); ++c) {
        Cell& cell = (*along)[c];
        if (cell.score.n() < options_.n) WEIR_RETURN_IF_ERROR(AskOne(c, &cell));
      }
    }
    return Status();
  }

  Status AskSets(Cell* each, Cell* all) {
    marked_ = false;
    std::vector<std::vector<const Told*>> sets = SetsOf(stream_.told());
    sets.resize(std::min(sets.size(), static_cast<size_t>(options_.n_sets)));
    for (const auto& set : sets) {
      for (const Told* told : set) WEIR_RETURN_IF_ERROR(AskAbout(*told, "needle", each));
      const Question question = QuestionAboutAll(set, options_);
      WEIR_ASSIGN_OR_RETURN(const Reply reply, Ask(question, "needles", stream_.TokensBack(*set[0])));
      const auto contains = [](const std::string& text, const Told* told) {
        return text.find(std::to_string(told->fact.value)) != std::string::npos;
      };
      const auto n_right = std::ranges::count_if(set, [&](const Told* told) { return contains(reply.text, told); });
      all->score.Add(n_right == std::ssize(set) ? 1 : 0);
      if (all->more.empty()) all->more = {{"values", {}}};
      all->more[0].second.Add(static_cast<double>(n_right) / static_cast<double>(set.size()));
      CountRecalled(examinee_, question, reply, "", all);
      all->tokens_back.Add(static_cast<double>(stream_.TokensBack(*set[0])));
    }
    return Status();
  }

 private:
  Status AskOne(size_t c, Cell* cell) {
    if (c == 0) return AskAbout(stream_.told().back(), "present", cell);
    if (c > options_.distances.size()) return AskUntold(cell);
    const int64_t distance = options_.distances[c - 1];
    if (stream_.TokensBack(stream_.told().front()) + options_.gap_tokens / 2 < distance) return Status();
    return AskAbout(stream_.Nearest(distance), "memory", cell);
  }

  // One question of the cells in turn: the round's.
  Status AskRound(std::vector<Cell>* along) {
    const size_t c = turn_ % along->size();
    Cell& cell = (*along)[c];
    const int64_t distance = c == 0 ? 0 : options_.distances[c - 1];
    if (stream_.TokensBack(stream_.told().front()) + options_.gap_tokens / 2 < distance) return Status();
    const Told* told = stream_.TakeUnasked(distance);
    if (told == nullptr) return Status();
    ++turn_;
    return AskAbout(*told, c == 0 ? "present" : "memory", &cell);
  }

  Status AskAbout(const Told& told, std::string_view kind, Cell* cell) {
    const Question question = QuestionAbout(told, options_);
    const int64_t tokens_back = stream_.TokensBack(told);
    WEIR_ASSIGN_OR_RETURN(const Reply reply, Ask(question, kind, tokens_back));
    cell->score.Add(FirstInteger(reply.text) == told.fact.value ? 1 : 0);
    CountRecalled(examinee_, question, reply, question.gold, cell);
    if (reply.has_gold_nll) cell->gold_nll.Add(reply.gold_nll);
    cell->tokens_back.Add(static_cast<double>(tokens_back));
    return Status();
  }

  Status AskUntold(Cell* cell) {
    Question question = QuestionAbout({stream_.Untold(cell->score.n() % kUntold), 0, 0}, options_);
    question.gold.clear();
    question.where->clear();
    WEIR_ASSIGN_OR_RETURN(const Reply reply, Ask(question, "untold", 0));
    cell->score.Add(FirstInteger(reply.text).has_value() ? 1 : 0);
    CountRecalled(examinee_, question, reply, "", cell);
    return Status();
  }

  Result<Reply> Ask(const Question& question, std::string_view kind, int64_t tokens_back) {
    if (!marked_ && !options_.carry) WEIR_RETURN_IF_ERROR(examinee_.Mark());
    marked_ = true;
    if (options_.log.asked) options_.log.asked(question, kind, tokens_back);
    auto reply = options_.carry ? examinee_.AskRound(question) : examinee_.AskAside(question);
    if (!reply.ok()) return reply;
    // After a chat's answer the next turn's head has already been read.
    if (options_.carry && !examinee_.chat()) WEIR_RETURN_IF_ERROR(examinee_.Read("\n\n"));
    ++asked_;
    if (hooks_.progress) hooks_.progress(asked_, total_);
    return reply;
  }

  Examinee& examinee_;
  const StreamQaOptions& options_;
  const SuiteHooks& hooks_;
  FactStream stream_;
  bool marked_ = false;  // at this point
  int64_t asked_ = 0, total_ = 0;
  size_t turn_ = 0;  // of the next round's question
};

// Sets that the beginning of a stream is sure to have.
int64_t NumSets(const StreamQaOptions& options) {
  FactSource facts = Facts(options);
  std::deque<Told> told;
  // Facts and sentences are read whole, so that facts lie further apart than the gap.
  constexpr int64_t kWhole = 64;
  for (int64_t i = 0; i < StreamQaTokens(options) / (options.gap_tokens + kWhole); ++i)
    told.push_back({facts.Next(), 0, 0});
  return std::ssize(SetsOf(told));
}

Cell MakeCell(const char* kind, int64_t distance) {
  Cell cell;
  cell.task = "stream";
  cell.labels = {{"kind", kind}};
  cell.numbers = {{"distance", static_cast<double>(distance)}};
  return cell;
}

}  // namespace

int64_t StreamQaTokens(const StreamQaOptions& options) {
  const int64_t n_rounds = options.n * (options.carry ? std::ssize(options.distances) + 1 : 1);
  return *std::max_element(options.distances.begin(), options.distances.end()) + n_rounds * options.every_tokens;
}

Status RunStreamQa(Examinee& examinee, const StreamQaOptions& options, const SuiteHooks& hooks) {
  if (options.distances.empty() || options.n < 1 || options.n_answer < 1 || options.gap_tokens < 16 ||
      options.every_tokens < 16 || options.n_sets < 0) {
    return InvalidArgument(
        "distances, questions, and at least 16 tokens between facts and between questions are needed");
  }
  const int64_t most = FactSource::MaxSubjects(PoolOf(options));
  const int64_t n_subjects = options.n_subjects > 0 ? std::min(options.n_subjects, most) : most;
  const int64_t farthest = (n_subjects - 2) * options.gap_tokens;
  std::vector<Cell> cells = {MakeCell("present", 0)};
  for (const int64_t distance : options.distances) {
    if (distance < options.gap_tokens || distance > farthest) {
      return InvalidArgument("a distance of {} tokens: with facts every {}, expected {} to {}", distance,
                             options.gap_tokens, options.gap_tokens, farthest);
    }
    cells.push_back(MakeCell("memory", distance));
  }
  if (options.carry && (options.untold || options.n_sets > 0)) {
    return InvalidArgument("in rounds that stay in the stream, only facts that were told are asked for, one by one");
  }
  if (options.carry && options.every_tokens < 2 * options.gap_tokens) {
    return InvalidArgument(
        "a question every {} tokens with a fact every {}: rounds ask for no fact twice and need two of them each, so "
        "at "
        "least {} tokens",
        options.every_tokens, options.gap_tokens, 2 * options.gap_tokens);
  }
  if (options.paraphrase && options.n_sets > 0) return InvalidArgument("sets of facts have no paraphrased questions");
  if (options.n_sets > 0 && options.n_subjects > 0) {
    return InvalidArgument("sets need facts about everybody, not about {} subjects", options.n_subjects);
  }
  if (options.n_sets > 0 && NumSets(options) < options.n_sets) {
    return InvalidArgument(
        "{} people with a fact in each quarter of a stream of {} tokens: this stream has {}; ask for a larger "
        "distance, "
        "or for fewer",
        options.n_sets, StreamQaTokens(options), NumSets(options));
  }
  if (options.untold) {
    if (options.n_subjects == 0 && NumTold(options) + kUntold > most) {
      return InvalidArgument("facts that were never told: a stream of {} tokens tells all {} there are",
                             StreamQaTokens(options), most);
    }
    cells.push_back(MakeCell("untold", 0));
    cells.back().metric = "answered_wrong";
  }
  WEIR_RETURN_IF_ERROR(examinee.Begin());
  StreamQa run(examinee, options, hooks);
  Status status = run.AskAlong(&cells);
  std::vector<Cell> sets = {MakeCell("needle", 0), MakeCell("needles", 0)};
  if (status.ok() && options.n_sets > 0) status = run.AskSets(&sets[0], &sets[1]);
  cells.insert(cells.end(), sets.begin(), sets.end());
  ReportAll(cells, hooks);
  return status;
}

}  // namespace weir
