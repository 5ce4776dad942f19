// SPDX-License-Identifier: Apache-2.0
#include "eval/text_tasks.h"

#include <algorithm>

#include "eval/recalled.h"
#include "kv/held.h"

namespace weir {
namespace {

// Room for the words that a template puts around question and answer, where a prompt is cut to fit.
constexpr int64_t kTemplateRoom = 64;

RunningMean& Figure(const char* name, Cell* cell) {
  for (auto& [key, mean] : cell->more) {
    if (key == name) return mean;
  }
  return cell->more.emplace_back(name, RunningMean()).second;
}

// A context as tokens, and which of them are evidence.
struct Context {
  std::vector<int32_t> tokens;
  std::vector<SeqSpan> evidence;  // places in `tokens`
};

// Evidence is encoded apart from what surrounds it: a token belongs to one of them.
Result<Context> EncodeContext(const Examinee& examinee, const TextSample& sample) {
  Context out;
  size_t at = 0;
  const auto add = [&](size_t end) {
    const std::vector<int32_t> tokens = examinee.Encode(std::string_view(sample.context).substr(at, end - at));
    out.tokens.insert(out.tokens.end(), tokens.begin(), tokens.end());
    at = end;
  };
  for (const TextSpan& span : sample.evidence) {
    if (span.begin < at || span.end < span.begin || span.end > sample.context.size()) {
      return Corrupt("evidence at bytes {} to {} of a text of {}", span.begin, span.end, sample.context.size());
    }
    add(span.begin);
    const int64_t begin = std::ssize(out.tokens);
    add(span.end);
    out.evidence.push_back({begin, std::ssize(out.tokens)});
  }
  add(sample.context.size());
  return out;
}

// Removes the middle so that at most n_tokens stay; what is left of the evidence moves along.
void Cut(int64_t n_tokens, Context* context) {
  const int64_t n = std::ssize(context->tokens);
  if (n <= n_tokens) return;
  const int64_t head = n_tokens / 2, tail = n - (n_tokens - head);
  context->tokens.erase(context->tokens.begin() + head, context->tokens.begin() + tail);
  std::vector<SeqSpan> left;
  for (const SeqSpan& span : context->evidence) {
    const SeqSpan before = {span.seq, std::min(span.seq_end, head)};
    const SeqSpan behind = {std::max(span.seq, tail) - (tail - head), span.seq_end - (tail - head)};
    for (const SeqSpan& part : {before, behind}) {
      if (part.seq < part.seq_end) left.push_back(part);
    }
  }
  context->evidence = std::move(left);
}

int64_t Length(const std::vector<SeqSpan>& spans) {
  int64_t n = 0;
  for (const SeqSpan& span : spans) n += span.seq_end - span.seq;
  return n;
}

// How many tokens of the spans any layer and head holds.
int64_t CountHeld(const Pot& pot, const std::vector<SeqSpan>& spans) {
  int64_t n = 0;
  ForEachHeldWindow(pot, [&](int64_t begin, const HeldMarks& marks) {
    const int64_t end = begin + std::ssize(marks.front()) * 64;
    for (const SeqSpan& span : spans) {
      for (int64_t seq = std::max(span.seq, begin); seq < std::min(span.seq_end, end); ++seq) {
        const uint64_t at = static_cast<uint64_t>(seq - begin);
        n += std::ranges::any_of(marks, [&](const auto& of_one) { return (of_one[at / 64] >> (at % 64) & 1) != 0; });
      }
    }
  });
  return n;
}

Question ToQuestion(const TextQuestion& from, const TextTask& task, const Examinee& examinee,
                    const std::vector<SeqSpan>& where) {
  Question out;
  out.chat = from.text;
  out.completion = from.text + from.lead;
  // The space before the answer is its first token's, where a template ends in its own words.
  out.lead = examinee.chat() ? from.lead.substr(std::min(from.lead.find_first_not_of(' '), from.lead.size())) : "";
  out.n_answer = task.n_answer;
  if (!where.empty()) out.where = where;
  return out;
}

Status RunSample(Examinee& examinee, const TextTask& task, const TextSample& sample, const TextRunOptions& options,
                 Cell* cell) {
  if (sample.questions.empty()) return Corrupt("{}: a sample without a question", task.name);
  WEIR_RETURN_IF_ERROR(examinee.Begin());
  WEIR_ASSIGN_OR_RETURN(Context context, EncodeContext(examinee, sample));
  const int64_t n_evidence = Length(context.evidence);
  if (options.cut > 0) {
    int64_t longest = 0;
    for (const TextQuestion& question : sample.questions) {
      longest = std::max<int64_t>(longest, std::ssize(examinee.Encode(question.text + question.lead)));
    }
    Cut(std::max<int64_t>(options.cut - longest - task.n_answer - kTemplateRoom, 0), &context);
  }
  const int64_t first = examinee.n_tokens();
  for (SeqSpan& span : context.evidence) span = {span.seq + first, span.seq_end + first};
  const bool alone = sample.questions.size() == 1;
  if (alone) WEIR_RETURN_IF_ERROR(examinee.Expect(ToQuestion(sample.questions[0], task, examinee, {})));
  WEIR_RETURN_IF_ERROR(examinee.ReadTokens(context.tokens));
  if (!alone) WEIR_RETURN_IF_ERROR(examinee.Mark());
  for (size_t i = 0; i < sample.questions.size(); ++i) {
    const TextQuestion& asked = sample.questions[i];
    const Question question = ToQuestion(asked, task, examinee, context.evidence);
    WEIR_ASSIGN_OR_RETURN(const Reply reply, alone ? examinee.Ask(question) : examinee.AskAside(question));
    WEIR_ASSIGN_OR_RETURN(const double score, TextScore(task.metric, reply.text, asked.answers));
    cell->score.Add(score);
    CountRecalled(examinee, question, reply, {}, cell);
  }
  if (n_evidence > 0) {
    const int64_t n_held = CountHeld(examinee.session().pot(), context.evidence);
    Figure("evidence_held", cell).Add(static_cast<double>(n_held) / static_cast<double>(n_evidence));
  }
  return Status();
}

}  // namespace

Status RunTextTasks(Examinee& examinee, std::span<const TextTask> tasks, const TextRunOptions& options,
                    const SuiteHooks& hooks) {
  int64_t total = 0, done = 0;
  for (const TextTask& task : tasks) total += task.n;
  for (const TextTask& task : tasks) {
    Cell cell;
    cell.task = task.name;
    cell.metric = task.metric;
    cell.numbers = task.numbers;
    if (hooks.finished && hooks.finished(cell)) {
      done += task.n;
      continue;
    }
    cell.n_wanted = task.n;
    Status status;
    int64_t n_asked = 0;
    for (; n_asked < task.n && status.ok(); ++n_asked) {
      Result<TextSample> sample = task.sample(n_asked);
      status = sample.ok() ? RunSample(examinee, task, *sample, options, &cell) : sample.status();
      if (status.ok() && hooks.progress) hooks.progress(++done, total);
    }
    // Of several questions each counts.
    if (status.ok()) cell.n_wanted = cell.score.n();
    ReportAll({cell}, hooks);
    WEIR_RETURN_IF_ERROR(status);
  }
  return Status();
}

}  // namespace weir
