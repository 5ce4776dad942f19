#include "chat/conversation.h"

#include <algorithm>

namespace weir {
namespace {

// Stands for the content of a turn while the template's words around it are looked for.
constexpr const char* kContent = "text";

struct Around {
  std::vector<TextPiece> before, after;
};

Around SplitAtContent(const std::vector<TextPiece>& pieces) {
  const auto content = std::find_if(pieces.rbegin(), pieces.rend(), [](const TextPiece& piece) {
    return !piece.parse_special && piece.text == kContent;
  });
  if (content == pieces.rend()) return {pieces, {}};
  return {{pieces.begin(), content.base() - 1}, {content.base(), pieces.end()}};
}

}  // namespace

Conversation::Conversation(const Tokenizer& tokenizer, const ChatTemplate* chat)
    : tokenizer_(&tokenizer), chat_(chat) {}

ChatRounds Conversation::Rounds() const {
  ChatRounds rounds(*chat_);
  (void)rounds.System(system_);
  if (asked_) (void)rounds.User(kContent);
  return rounds;
}

std::vector<int32_t> Conversation::Begin(const std::optional<std::string>& system) {
  system_ = system;
  if (chat_ == nullptr) {
    std::vector<TextPiece> pieces;
    if (system) pieces.push_back({*system + "\n\n", false});
    return tokenizer_->EncodePieces(pieces, true);
  }
  return tokenizer_->EncodePieces(ChatRounds(*chat_).System(system), !chat_->includes_bos());
}

std::vector<int32_t> Conversation::TurnHead() const {
  if (turn_open_) return {};
  if (chat_ == nullptr) {
    if (!asked_) return {};
    return tokenizer_->EncodePieces(std::vector<TextPiece>{{"\n\n", false}}, false);
  }
  ChatRounds rounds = Rounds();
  std::vector<TextPiece> pieces;
  if (asked_) pieces = rounds.EndAnswer(end_token_read_);
  const Around around = SplitAtContent(rounds.User(kContent));
  pieces.insert(pieces.end(), around.before.begin(), around.before.end());
  return tokenizer_->EncodePieces(pieces, false);
}

Conversation::Question Conversation::Ask(const std::string& question, EncodeReport* report) const {
  std::vector<TextPiece> after;
  std::string text = has_text_ ? "\n\n" : "";
  if (chat_ == nullptr) {
    text += "Question: " + question;
    after.push_back({"\nAnswer:", false});
  } else {
    text += question;
    after = SplitAtContent(Rounds().User(kContent)).after;
  }
  std::vector<TextPiece> pieces = {{std::move(text), false}};
  pieces.insert(pieces.end(), after.begin(), after.end());
  Question out;
  out.tokens = tokenizer_->EncodePieces(pieces, false, report);
  // The words at the seam may be one token: one more than the template's own.
  out.n_tail = std::min(out.tokens.size(), tokenizer_->EncodePieces(after, false).size() + 1);
  return out;
}

void Conversation::Asked() {
  turn_open_ = has_text_ = end_token_read_ = false;
  asked_ = true;
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
    return InvalidArgument("the snapshot was made with the chat template '%s', the server uses '%s'", name.c_str(),
                           chat == nullptr ? "" : std::string(chat->name()).c_str());
  }
  return out;
}

}  // namespace weir
