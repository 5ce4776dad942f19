// SPDX-License-Identifier: Apache-2.0
#include "rules/rule_words.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace weir {
namespace {

// How a model is asked for a condition, up to the condition and after it.
constexpr const char* kBefore = "Is the following true at this moment? ";
constexpr const char* kAfter = "\nAnswer with yes or no.";

std::string WordsOf(const Rule& rule, const std::string& text) {
  return rule.answer.empty() ? kBefore + text + kAfter : text;
}

bool IsBlank(const Tokenizer& tokenizer, int32_t id) {
  return tokenizer.TokenBytes(id).find_first_not_of(" \n") == std::string::npos;
}

// Tokens that are one of these words as a whole, with or without the space before it.
std::vector<int32_t> WholeWords(const Tokenizer& tokenizer, std::initializer_list<const char*> words) {
  std::set<int32_t> out;
  for (const char* word : words) {
    for (const std::string& text : {std::string(word), " " + std::string(word)}) {
      std::vector<int32_t> ids = tokenizer.EncodePieces(std::vector<TextPiece>{{text, false}}, false);
      if (ids.size() == 2 && IsBlank(tokenizer, ids[0])) ids.erase(ids.begin());
      if (ids.size() == 1 && !IsBlank(tokenizer, ids[0])) out.insert(ids[0]);
    }
  }
  return {out.begin(), out.end()};
}

// The logarithm of a sum of exponentials, which grows by one value after another.
class LogSum {
 public:
  void Add(double value) {
    if (value == -std::numeric_limits<double>::infinity()) return;
    if (value <= most_) {
      sum_ += std::exp(value - most_);
    } else {
      sum_ = sum_ * std::exp(most_ - value) + 1;
      most_ = value;
    }
  }
  double value() const { return std::isinf(most_) ? most_ : most_ + std::log(sum_); }

 private:
  double most_ = -std::numeric_limits<double>::infinity(), sum_ = 0;
};

double LogSumOf(std::span<const float> logits, const std::vector<int32_t>& ids) {
  LogSum out;
  for (const int32_t id : ids) out.Add(logits[static_cast<size_t>(id)]);
  return out.value();
}

}  // namespace

Result<RuleAnswers> AnswersOf(const Rule& rule, const Tokenizer& tokenizer, const Conversation& conversation) {
  RuleAnswers out;
  if (rule.answer.empty()) {
    out.for_it = WholeWords(tokenizer, {"yes", "Yes", "YES"});
    out.against = WholeWords(tokenizer, {"no", "No", "NO"});
    if (out.for_it.empty() || out.against.empty()) {
      return Unsupported(
          "this model's vocabulary has no words for yes and no; watch for the answer to a question: 'QUESTION => "
          "ANSWER'");
    }
    return out;
  }
  Conversation asked = conversation;
  asked.Asked();
  for (const int32_t id : asked.Tell(rule.answer)) {
    if (!IsBlank(tokenizer, id)) {
      out.for_it = {id};
      return out;
    }
    out.before.push_back(id);
  }
  return InvalidArgument("the vocabulary has no token for the answer '{}'", rule.answer);
}

double LogOdds(std::span<const float> logits, const RuleAnswers& answers) {
  const double for_it = LogSumOf(logits, answers.for_it);
  if (!answers.against.empty()) return for_it - LogSumOf(logits, answers.against);
  LogSum others;
  for (int32_t id = 0; id < std::ssize(logits); ++id) {
    if (!std::ranges::binary_search(answers.for_it, id)) others.Add(logits[static_cast<size_t>(id)]);
  }
  return for_it - others.value();
}

RuleQuestion QuestionOf(const Rule& rule, const RuleAnswers& answers, const Conversation& conversation) {
  // What does not depend on the text: the same for all rules of the kind, whichever they are.
  const std::vector<int32_t> one = conversation.Ask(WordsOf(rule, "A")).tokens;
  const std::vector<int32_t> other = conversation.Ask(WordsOf(rule, "7")).tokens;
  const auto n_same = std::ranges::mismatch(one, other).in1 - one.begin();
  std::vector<int32_t> whole = conversation.Ask(WordsOf(rule, rule.text)).tokens;
  whole.insert(whole.end(), answers.before.begin(), answers.before.end());
  RuleQuestion out;
  const bool shares = std::ssize(whole) > n_same && std::equal(one.begin(), one.begin() + n_same, whole.begin());
  out.head.assign(whole.begin(), whole.begin() + (shares ? n_same : 0));
  out.tail.assign(whole.begin() + std::ssize(out.head), whole.end());
  return out;
}

int64_t MostTokens(const Rule& rule, const RuleAnswers& answers, const Conversation& conversation) {
  Conversation open = conversation, answered = conversation;
  open.TurnOpened();
  open.TextRead();
  answered.Asked();  // an answer that was cut, whose end is then among the question's words
  int64_t most = 0;
  for (const Conversation* talk :
       {&conversation, const_cast<const Conversation*>(&open), const_cast<const Conversation*>(&answered)}) {
    const RuleQuestion question = QuestionOf(rule, answers, *talk);
    most = std::max(most, std::ssize(question.head) + std::ssize(question.tail));
  }
  return most;
}

}  // namespace weir
