// SPDX-License-Identifier: Apache-2.0
// RULER (Hsieh et al. 2024, arXiv 2404.06654): 13 tasks of any length, generated: needles in a haystack, chains of
// variables, the most common and the most frequent words, questions about documents.
//
// Prompts, sizes, counts and scores are those of the published generator (NVIDIA/RULER, scripts/synthetic.yaml); the
// random material is ours: words come from eval/words.h and, beyond those, are made of syllables; without a file of
// essays the haystack is generated prose; a sentence ends with a word that ends in . ? or !. Questions about documents
// need the published files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "eval/text_tasks.h"

namespace weir {

// One with its answer: its documents are shown among others.
struct RulerQuestion {
  std::string text;
  std::vector<std::string> answers;
  std::vector<int32_t> documents, more;  // that it needs; of the same article, shown before others
};
struct RulerDocuments {
  std::vector<std::string> texts;
  std::vector<RulerQuestion> questions;
};
// SQuAD 2.0's file (dev-v2.0.json; its questions without an answer are left out) and HotpotQA's
// (hotpot_dev_distractor_v1.json). kCorrupt says what is missing.
Result<RulerDocuments> ParseSquad(std::string_view json);
Result<RulerDocuments> ParseHotpot(std::string_view json);

struct RulerMaterial {
  std::string essays;                            // a text; empty: prose
  std::vector<std::string> words;                // for common words; empty: ours
  std::shared_ptr<const RulerDocuments> squad;   // of qa_1; nullptr: the task is left out
  std::shared_ptr<const RulerDocuments> hotpot;  // of qa_2
};

// Names of all tasks, in the published order: niah_single_1 ... qa_2.
std::vector<std::string> RulerTaskNames();

// One task of one length: tokens of prompt and answer together, as `count` counts a text's. Its samples are made when
// they are asked for. kNotFound for an unknown name; kInvalidArgument for a length that has no room for the task, or
// a task whose files are missing. `count` must outlive the result.
Result<TextTask> MakeRulerTask(const std::string& name, int64_t length, int64_t n, uint64_t seed,
                               std::shared_ptr<const RulerMaterial> material,
                               const std::function<int64_t(std::string_view)>& count);

}  // namespace weir
