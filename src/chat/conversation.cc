// SPDX-License-Identifier: Apache-2.0
#include "chat/conversation.h"

#include <algorithm>
#include <utility>

namespace weir {
namespace {

bool EndsInSpace(std::string_view text) { return text.empty() || text.back() == ' ' || text.back() == '\n'; }

}  // namespace

RoundForm RoundForm::Default(const ChatTemplate* chat) {
  if (chat != nullptr) return {.question = std::string(kQuestionMark), .gap = ""};
  return {.question = "Question: " + std::string(kQuestionMark) + "\nAnswer:", .gap = "\n\n"};
}

Conversation::Conversation(const Tokenizer& tokenizer, const ChatTemplate* chat, RoundForm form)
    : tokenizer_(&tokenizer), chat_(chat), form_(std::move(form)) {}

ChatRounds Conversation::Rounds() const {
  ChatRounds rounds(*chat_);
  (void)rounds.System(system_);
  if (asked_) (void)rounds.Turn();
  return rounds;
}

std::vector<TextPiece> Conversation::SystemWords() const {
  if (chat_ != nullptr) return ChatRounds(*chat_).System(system_);
  std::vector<TextPiece> pieces;
  if (system_) pieces.push_back({*system_ + "\n\n", false});
  return pieces;
}

std::vector<int32_t> Conversation::Begin(std::optional<std::string> system) {
  SetSystem(std::move(system));
  std::vector<int32_t> tokens = tokenizer_->EncodePieces(SystemWords(), adds_special());
  begun_ = true;
  return tokens;
}

std::vector<TextPiece> Conversation::Due() const {
  std::vector<TextPiece> pieces;
  if (turn_open_) return pieces;
  if (!begun_) pieces = SystemWords();
  if (chat_ == nullptr) {
    if (asked_) pieces.push_back({form_.gap, false});
    return pieces;
  }
  ChatRounds rounds = Rounds();
  const auto add = [&pieces](const std::vector<TextPiece>& more) {
    pieces.insert(pieces.end(), more.begin(), more.end());
  };
  if (asked_) add(rounds.EndAnswer(end_token_read_));
  add(rounds.Turn().before);
  return pieces;
}

std::vector<int32_t> Conversation::TurnHead(std::string_view text, EncodeReport* report) const {
  std::vector<TextPiece> pieces = Due();
  pieces.push_back({std::string(text), false});
  return tokenizer_->EncodePieces(pieces, adds_special(), report);
}

Conversation::Question Conversation::Ask(const std::string& question, EncodeReport* report) const {
  const size_t last = form_.question.rfind(kQuestionMark);
  const size_t n_head = last == std::string::npos ? form_.question.size() : last + kQuestionMark.size();
  std::vector<TextPiece> after = {{form_.question.substr(n_head), false}};
  if (chat_ != nullptr) {
    const std::vector<TextPiece>& words = Rounds().Turn().after;
    after.insert(after.end(), words.begin(), words.end());
  }
  std::vector<TextPiece> pieces = Due();
  pieces.push_back(
      {(has_text_ ? "\n\n" : "") + PutQuestion(std::string_view(form_.question).substr(0, n_head), question), false});
  pieces.insert(pieces.end(), after.begin(), after.end());
  Question out;
  out.tokens = tokenizer_->EncodePieces(pieces, adds_special(), report);
  // Words at the boundary may merge into one token: one more than the template's own.
  out.n_tail = std::min(out.tokens.size(), tokenizer_->EncodePieces(after, false).size() + 1);
  return out;
}

void Conversation::Asked() {
  turn_open_ = has_text_ = end_token_read_ = false;
  begun_ = asked_ = true;
}

std::vector<int32_t> Conversation::Tell(const std::string& answer) {
  // A word of its own, unless the words before it bring the space.
  bool space = !EndsInSpace(form_.question);
  if (chat_ != nullptr) {
    for (const TextPiece& piece : Rounds().Turn().after) {
      if (!piece.text.empty()) space = !EndsInSpace(piece.text);
    }
  }
  std::vector<int32_t> tokens =
      tokenizer_->EncodePieces(std::vector<TextPiece>{{(space ? " " : "") + answer, false}}, false);
  const bool ends = tokenizer_->eos_id() >= 0;
  if (ends) tokens.push_back(tokenizer_->eos_id());
  Answered(ends);
  return tokens;
}

Json Conversation::Save() const {
  return {{"template", chat_ == nullptr ? "" : std::string(chat_->name())},
          {"system", system_ ? Json(*system_) : Json(nullptr)},
          {"turn_open", turn_open_},
          {"has_text", has_text_},
          {"asked", asked_},
          {"end_token_read", end_token_read_}};
}

Result<Conversation> Conversation::Restore(const Tokenizer& tokenizer, const ChatTemplate* chat, const Json& saved) {
  Conversation out(tokenizer, chat);
  out.begun_ = true;
  Fields fields(saved, "conversation.");
  std::string name;
  fields.Get("template", &name);
  if (const Json* system = fields.Get("system"); system != nullptr) {
    out.system_.emplace();
    fields.Get("system", &*out.system_);
  }
  fields.Get("turn_open", &out.turn_open_);
  fields.Get("has_text", &out.has_text_);
  fields.Get("asked", &out.asked_);
  fields.Get("end_token_read", &out.end_token_read_);
  WEIR_RETURN_IF_ERROR(fields.Done());
  if (name != (chat == nullptr ? std::string_view() : chat->name())) {
    return InvalidArgument("the snapshot was made with the chat template '{}', the session here uses '{}'", name,
                           chat == nullptr ? "" : std::string(chat->name()));
  }
  return out;
}

}  // namespace weir
