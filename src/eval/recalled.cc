// SPDX-License-Identifier: Apache-2.0
#include "eval/recalled.h"

#include <algorithm>

namespace weir {

void CountRecalled(const Examinee& examinee, const Question& question, const Reply& reply, std::string_view text,
                   Cell* cell) {
  if (!examinee.recalls()) return;
  const auto figure = [cell](const char* name) -> RunningMean& {
    for (auto& [key, mean] : cell->more) {
      if (key == name) return mean;
    }
    return cell->more.emplace_back(name, RunningMean()).second;
  };
  const std::vector<RecalledPassage>& passages = reply.recalled.passages;
  figure("recalled").Add(passages.empty() ? 0 : 1);
  const bool found = !text.empty() && std::ranges::any_of(passages, [&](const RecalledPassage& passage) {
    return passage.text.find(text) != std::string::npos;
  });
  figure("found").Add(found ? 1 : 0);
  if (!question.where.has_value() || question.where->empty()) return;
  const auto n_found = std::ranges::count_if(*question.where, [&](const SeqSpan& span) {
    return std::ranges::any_of(passages, [&](const RecalledPassage& passage) {
      return passage.seq < span.seq_end && span.seq < passage.seq_end;
    });
  });
  figure("span_found").Add(static_cast<double>(n_found) / static_cast<double>(question.where->size()));
}

}  // namespace weir
