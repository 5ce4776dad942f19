// SPDX-License-Identifier: Apache-2.0
// What recall brought back for a suite's questions, counted apart from the answers.
#pragma once

#include <string_view>

#include "eval/examinee.h"
#include "eval/suite.h"

namespace weir {

// With recall, adds to Cell::more: `recalled`, the share of questions for which something was brought back; `found`,
// the share for which `text` was in it, word for word; and, if the suite knows where the answer is, `span_found`, the
// mean share of these places that the passages overlap (recall@k). Without recall, nothing. Call it for every question
// of a cell.
void CountRecalled(const Examinee& examinee, const Question& question, const Reply& reply, std::string_view text,
                   Cell* cell);

}  // namespace weir
