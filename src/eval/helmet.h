// SPDX-License-Identifier: Apache-2.0
// HELMET (Yen et al. 2024, arXiv 2410.02694): of its data sets those that are scored by an answer's words in the reply:
// keys and values of a large object (recall), and questions about retrieved passages (RAG).
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "eval/text_tasks.h"

namespace weir {

// A file of HELMET's folder `json_kv`, one object a line with `context`, `question`, `answer` and `demos`, of which the
// first two are shown, as published. kCorrupt names the line and what it lacks.
Result<TextTask> ParseHelmetKv(const std::string& name, std::string_view jsonl);
// A file of its folder `kilt`, with `question`, `answers` and `ctxs`, each of these with `title` and `text`. No
// examples are shown: the published ones are drawn by a program's own random order.
Result<TextTask> ParseHelmetRag(const std::string& name, std::string_view jsonl);

}  // namespace weir
