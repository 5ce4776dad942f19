// SPDX-License-Identifier: Apache-2.0
// An answer as blocks, one after another: a text, thoughts, or a call of a tool. Several APIs tell it that way.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "serve/answer_job.h"
#include "text/answer_part.h"

namespace weir {

class ReplyBlocks {
 public:
  struct Block {
    AnswerPart::Kind kind = AnswerPart::Kind::kContent;  // kContent, kReasoning or kCall
    std::string text;                                    // of a call: its arguments, JSON
    std::string name, id;                                // of a call
  };
  // What an event adds. Exactly one block is open between its kBegin and its kEnd.
  struct Step {
    enum class What { kBegin, kMore, kEnd };
    What what;
    size_t block;
    std::string text;  // kMore: never empty
  };
  // The last event ends the open block; of an answer without any, an empty text is the only block.
  std::vector<Step> Add(const AnswerEvent& event);

  const std::vector<Block>& all() const { return blocks_; }
  int n_calls() const { return n_calls_; }

 private:
  void End(std::vector<Step>* steps);
  void Begin(const AnswerPart& part, std::vector<Step>* steps);

  std::vector<Block> blocks_;
  bool open_ = false;
  int n_calls_ = 0;
};

}  // namespace weir
