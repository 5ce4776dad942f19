// SPDX-License-Identifier: Apache-2.0
#include "eval/picture_suite.h"

#include <algorithm>
#include <map>

#include "eval/answer_metrics.h"
#include "eval/cider.h"

namespace weir {
namespace {

struct Answered {
  const PictureQuestion* question;
  ViewerReply reply;
};

Status AskAll(Viewer& viewer, std::span<const PictureQuestion> questions, const SuiteHooks& hooks,
              std::vector<Answered>* out) {
  const PictureQuestion* shown = nullptr;
  for (const PictureQuestion& question : questions) {
    if (!question.pictures.empty()) {
      // Pictures shown again are still in the session, because questions leave no trace.
      const bool same = shown != nullptr && shown->pictures == question.pictures && shown->lead == question.lead;
      shown = &question;
      if (!same) {
        WEIR_RETURN_IF_ERROR(viewer.Begin());
        WEIR_RETURN_IF_ERROR(viewer.Show(question.lead, question.pictures));
      }
    }
    WEIR_ASSIGN_OR_RETURN(ViewerReply reply, viewer.AskAside(question.question));
    out->push_back({&question, std::move(reply)});
    if (hooks.progress) hooks.progress(std::ssize(*out), std::ssize(questions));
  }
  return Status();
}

Result<std::vector<double>> Scores(const std::string& metric, std::span<const Answered> answered) {
  if (metric == "cider") {
    Cider cider;
    for (const Answered& a : answered) cider.Add(a.reply.text, a.question->answers);
    return cider.Scores();
  }
  std::vector<double> out;
  for (const Answered& a : answered) {
    WEIR_ASSIGN_OR_RETURN(const double score, AnswerScore(metric, a.reply.text, a.question->answers));
    out.push_back(score);
  }
  return out;
}

Cell MakeCell(const std::string& metric, const std::string& kind) {
  Cell cell;
  cell.task = "vqa";
  cell.metric = metric;
  cell.labels = {{"kind", kind}};
  for (const char* key : {"stored_share", "stored_visual_share", "used_share", "kv_bytes", "ms_per_token"}) {
    cell.more.emplace_back(key, RunningMean());
  }
  return cell;
}

void Count(double score, const ViewerReply& reply, Cell* cell) {
  cell->score.Add(score);
  const double costs[] = {reply.stored_share, reply.stored_visual_share, reply.used_share,
                          static_cast<double>(reply.kv_bytes), reply.ms_per_token};
  for (size_t i = 0; i < std::size(costs); ++i) cell->more[i].second.Add(costs[i]);
}

}  // namespace

Status RunPictureSuite(Viewer& viewer, std::span<const PictureQuestion> questions, const PictureSuiteOptions& options,
                       const SuiteHooks& hooks) {
  if (options.metrics.empty()) return InvalidArgument("no metric was given");
  for (const std::string& metric : options.metrics) WEIR_RETURN_IF_ERROR(CheckAnswerMetric(metric));
  if (options.n > 0) questions = questions.first(std::min(questions.size(), static_cast<size_t>(options.n)));
  std::vector<Answered> answered;
  const Status status = AskAll(viewer, questions, hooks, &answered);
  std::vector<Cell> cells;
  for (const std::string& metric : options.metrics) {
    WEIR_ASSIGN_OR_RETURN(const std::vector<double> scores, Scores(metric, answered));
    Cell all = MakeCell(metric, "all");
    std::map<std::string, Cell> by_kind;
    for (size_t i = 0; i < scores.size(); ++i) {
      const std::string& kind = answered[i].question->kind;
      Count(scores[i], answered[i].reply, &all);
      Count(scores[i], answered[i].reply, &by_kind.try_emplace(kind, MakeCell(metric, kind)).first->second);
    }
    cells.push_back(std::move(all));
    for (auto& [kind, cell] : by_kind) {
      if (options.by_kind && by_kind.size() > 1) cells.push_back(std::move(cell));
    }
  }
  ReportAll(cells, hooks);
  return status;
}

}  // namespace weir
