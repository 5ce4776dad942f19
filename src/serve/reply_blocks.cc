// SPDX-License-Identifier: Apache-2.0
#include "serve/reply_blocks.h"

#include <utility>

namespace weir {
namespace {

// An answer that is not taken apart is a text.
std::vector<AnswerPart> PartsOf(const AnswerEvent& event) {
  if (!event.parts.empty() || event.text.empty()) return event.parts;
  return {{AnswerPart::Kind::kContent, event.text, ""}};
}

}  // namespace

void ReplyBlocks::End(std::vector<Step>* steps) {
  if (!std::exchange(open_, false)) return;
  Block& block = blocks_.back();
  if (block.kind == AnswerPart::Kind::kCall && block.text.empty()) {
    block.text = "{}";  // a call without arguments
    steps->push_back({Step::What::kMore, blocks_.size() - 1, block.text});
  }
  steps->push_back({Step::What::kEnd, blocks_.size() - 1, ""});
}

void ReplyBlocks::Begin(const AnswerPart& part, std::vector<Step>* steps) {
  End(steps);
  const bool call = part.kind == AnswerPart::Kind::kCall;
  blocks_.push_back({part.kind, "", call ? part.text : "", part.id});
  open_ = true;
  n_calls_ += call;
  steps->push_back({Step::What::kBegin, blocks_.size() - 1, ""});
}

std::vector<ReplyBlocks::Step> ReplyBlocks::Add(const AnswerEvent& event) {
  std::vector<Step> steps;
  for (const AnswerPart& part : PartsOf(event)) {
    if (part.kind == AnswerPart::Kind::kCall) {
      Begin(part, &steps);
      continue;
    }
    if (part.text.empty()) continue;
    const bool arguments = part.kind == AnswerPart::Kind::kArguments;
    const auto kind = arguments ? AnswerPart::Kind::kCall : part.kind;
    if (!open_ || blocks_.back().kind != kind) {
      if (arguments) continue;  // of no call
      Begin(part, &steps);
    }
    blocks_.back().text += part.text;
    steps.push_back({Step::What::kMore, blocks_.size() - 1, part.text});
  }
  if (event.last) {
    if (blocks_.empty()) Begin({}, &steps);
    End(&steps);
  }
  return steps;
}

}  // namespace weir
