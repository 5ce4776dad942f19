// SPDX-License-Identifier: Apache-2.0
#include "serve/session_chat.h"

#include <fmt/core.h>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/answer_sender.h"
#include "serve/history_feed.h"
#include "serve/new_session.h"
#include "serve/openai_request.h"
#include "serve/reply.h"
#include "serve/routes/common.h"
#include "serve/thread_book.h"
#include "serve/visual_input.h"

namespace weir {
namespace {

// Questions, and answers that were given elsewhere, are encoded on the engine's thread. Of a longer question the end is
// asked; what comes before it is appended as any text, and so is a round whose answer is longer.
constexpr size_t kMaxAskedBytes = 1 << 15;

// One message as a session reads it, or several of the assistant's that follow one another.
struct Told {
  std::string role, text, where;
  std::vector<VisualInput> visuals;
  std::vector<uint64_t> hashes;  // of each message
};

constexpr const char* kSpaces = " \t\r\n";

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

// Clients trim answers before they send them back.
uint64_t HashOf(std::string_view role, std::string_view text, std::string_view pictures = "") {
  return std::hash<std::string>()(fmt::format("{}\n{}\n{}", role, Trimmed(text), pictures));
}

Result<Told> ReadMessage(const Host& host, const Json& json, const std::string& where) {
  Fields message(json, where + ".");
  Told out;
  out.where = where;
  message.Get("role", &out.role);
  for (const char* ignored : {"name", "refusal", "audio", "function_call", "reasoning_content"})
    message.Ignore(ignored);
  const Json* const calls = message.Get("tool_calls");
  if (out.role == "tool" || (calls != nullptr && !calls->empty())) {
    return Unsupported("'{}' has calls of tools, which sessions cannot hold; send the conversation without a session",
                       where);
  }
  if (out.role == "developer") out.role = "system";
  if (out.role != "system" && out.role != "user" && out.role != "assistant") {
    message.Fail("role", "must be system, developer, user or assistant");
  }
  const Json* const content = message.Get("content");
  WEIR_RETURN_IF_ERROR(message.Done());
  std::string pictures;
  if (content != nullptr && content->is_string()) {
    out.text = content->get<std::string>();
  } else if (content != nullptr && content->is_array()) {
    for (size_t i = 0; i < content->size(); ++i) {
      if ((*content)[i].is_string()) {
        out.text += (*content)[i].get_ref<const std::string&>();
        continue;
      }
      const std::string part_where = fmt::format("{}.content[{}].", where, i);
      Fields part((*content)[i], part_where);
      std::string type, text;
      part.Get("type", &type);
      part.Get("text", &text);
      const Json* const image = part.Get("image_url");
      if (type != "text" && type != "image_url") part.Fail("type", "must be \"text\" or \"image_url\"");
      if (type == "image_url" && (image == nullptr || out.role != "user" || host.vision() == nullptr)) {
        part.Fail("type", "must be \"text\": only user messages may have pictures, and the server needs --mmproj");
      }
      WEIR_RETURN_IF_ERROR(part.Done());
      out.text += text;
      if (image == nullptr) continue;
      WEIR_ASSIGN_OR_RETURN(VisualInput input, ParsePicture(*image, part_where + "image_url"));
      pictures += input.files[0];
      out.visuals.push_back(std::move(input));
    }
  } else {
    return InvalidArgument("'{}.content' must be a string or a list of parts", where);
  }
  out.hashes = {HashOf(out.role, out.text, pictures)};
  return out;
}

// The part of a message that is too long for a question, cut from its beginning.
std::string TakeHead(std::string* text) {
  if (text->size() <= kMaxAskedBytes) return "";
  text->erase(text->find_last_not_of(kSpaces) + 1);
  if (text->size() <= kMaxAskedBytes) return "";
  size_t cut = text->find('\n', text->size() - kMaxAskedBytes);
  if (cut == text->npos) cut = text->find(' ', text->size() - kMaxAskedBytes);
  if (cut == text->npos) {
    cut = text->size() - kMaxAskedBytes;
    while ((static_cast<unsigned char>((*text)[cut]) & 0xC0) == 0x80) ++cut;  // whole characters
  }
  std::string head = text->substr(0, cut);
  text->erase(0, cut);
  return head;
}

// Messages of the assistant that follow one another are one. An error if what the session has not read cannot be told.
Status CheckOrder(std::vector<Told>* said) {
  std::vector<Told> out;
  for (Told& one : *said) {
    if (one.role != "assistant" || out.empty() || out.back().role != "assistant") {
      out.push_back(std::move(one));
      continue;
    }
    out.back().text += "\n\n" + one.text;
    out.back().hashes.insert(out.back().hashes.end(), one.hashes.begin(), one.hashes.end());
  }
  *said = std::move(out);
  if (said->empty() || said->back().role != "user") {
    return InvalidArgument("'messages' must end with a message of the user that the session has not read");
  }
  if (said->front().role == "assistant") {
    return InvalidArgument("'{}' of the assistant must follow a message of the user, or be the session's own answer",
                           said->front().where);
  }
  if (Trimmed(said->back().text).empty()) {
    return InvalidArgument("'{}' must have a text that asks something", said->back().where);
  }
  return Status();
}

// What comes before the last message, for reading. REQUIRES: CheckOrder() was ok.
void AddHistory(const std::string& id, std::vector<Told>& said, HistoryFeed* feed) {
  const auto show = [&](Told& one) {
    for (VisualInput& visual : one.visuals) feed->Append(std::move(visual));
  };
  for (size_t i = 0; i + 1 < said.size(); ++i) {
    Told& one = said[i];
    Told* const answer = said[i + 1].role == "assistant" ? &said[i + 1] : nullptr;
    show(one);
    if (answer == nullptr) {
      feed->Append(one.text + "\n\n");
    } else if (answer->text.size() > kMaxAskedBytes) {
      feed->Append(one.text + "\n\n" + answer->text + "\n\n");
    } else {
      feed->Append(TakeHead(&one.text));
      feed->Tell(std::move(one.text), std::move(answer->text));
    }
    std::vector<uint64_t> read = one.hashes;
    if (answer != nullptr) read.insert(read.end(), answer->hashes.begin(), answer->hashes.end());
    feed->Note(id, std::move(read));
    if (answer != nullptr) ++i;
  }
  Told& last = said.back();
  show(last);
  feed->Append(TakeHead(&last.text));
}

// The question's request: what the chat asks beside its messages.
Result<CompletionRequest> QuestionOf(const Call& call, const ChatBody& body, const std::string& question) {
  Json ask = body.fields();
  const auto only = [&](const char* key, const Json& value) -> Status {
    const auto it = ask.find(key);
    if (it == ask.end()) return Status();
    if (!it->is_null() && *it != value) {
      return Unsupported("'{}' is not supported in a session with any other value than {}", key, JsonText(value));
    }
    ask.erase(key);
    return Status();
  };
  WEIR_RETURN_IF_ERROR(only("tools", Json::array()));
  for (const char* key : {"tool_choice", "parallel_tool_calls", "service_tier", "store", "modalities",
                          "chat_template_kwargs", "reasoning_effort"}) {
    ask.erase(key);
  }
  if (ask.value("response_format", Json()) == Json{{"type", "text"}}) ask.erase("response_format");
  const Json limit = ask.value("max_completion_tokens", Json());
  ask.erase("max_completion_tokens");
  if (!limit.is_null()) ask["max_tokens"] = limit;
  ask["question"] = question;
  return ParseAsk(call.host, ask, call.options.answers);
}

// Notes what the session said when its answer is whole.
class Remembering : public ReplyShape {
 public:
  Remembering(Host& host, std::string id, uint64_t question, std::unique_ptr<ReplyShape> shape)
      : host_(host), id_(std::move(id)), question_(question), shape_(std::move(shape)) {}

  void Add(size_t index, const AnswerEvent& event) override {
    Hear(event);
    shape_->Add(index, event);
  }
  Json Whole() override { return shape_->Whole(); }
  std::string Stream(size_t index, const AnswerEvent& event) override {
    Hear(event);
    return shape_->Stream(index, event);
  }
  std::string End() override { return shape_->End(); }
  std::string Failed(const ApiError& error) override { return shape_->Failed(error); }
  std::string Waiting(int64_t n_read, int64_t n_prompt) override { return shape_->Waiting(n_read, n_prompt); }
  const char* stream_type() const override { return shape_->stream_type(); }

 private:
  void Hear(const AnswerEvent& event) {
    answer_ += event.text;
    if (!event.last || !event.status.ok()) return;
    host_.threads().Read(id_, std::vector<uint64_t>{question_, HashOf("assistant", answer_)});
  }

  Host& host_;
  const std::string id_;
  const uint64_t question_;
  const std::unique_ptr<ReplyShape> shape_;
  std::string answer_;
};

// A conversation as sessions read it.
struct Talk {
  std::string system;
  std::vector<Told> said;
};

Result<Talk> ReadTalk(const Host& host, const ChatBody& body) {
  Talk out;
  for (size_t i = 0; i < body.messages().size(); ++i) {
    WEIR_ASSIGN_OR_RETURN(Told one, ReadMessage(host, body.messages()[i], body.where(i)));
    if (one.role == "system") {
      out.system += (out.system.empty() ? "" : "\n\n") + one.text;
    } else {
      out.said.push_back(std::move(one));
    }
  }
  if (out.said.size() > ThreadBook::kMaxMessages) {
    return InvalidArgument("'messages' may have at most {} messages: send the newest ones", ThreadBook::kMaxMessages);
  }
  return out;
}

// Whether a new session can hold the conversation; its system message.
Status CheckTalk(const Call& call, const ChatBody& body, std::string* system) {
  auto talk = ReadTalk(call.host, body);
  Status status = talk.status();
  if (status.ok()) status = CheckOrder(&talk->said);
  if (status.ok()) status = QuestionOf(call, body, "?").status();
  if (!status.ok()) return body.InTheirWords(status);
  *system = std::move(talk->system);
  if (system->size() <= kMaxAskedBytes) return Status();
  return InvalidArgument("the system message may have at most {} bytes in a session", kMaxAskedBytes);
}

}  // namespace

// Everything is checked before anything is read.
void AnswerInSession(const Call& call, const std::string& id, const ChatBody& body, const MakeShape& make_shape,
                     httplib::Response& response) {
  // What is known of it is kept: it may only be on its way to the folder of sessions that are handed over.
  if (!call.host.sessions().Has(id)) return SendError(NotFound("there is no session '{}'", id), response);
  ThreadBook& book = call.host.threads();
  auto talk = ReadTalk(call.host, body);
  if (!talk.ok()) return SendError(body.InTheirWords(talk.status()), response);
  std::vector<Told>& said = talk->said;
  std::vector<uint64_t> hashes;
  for (const Told& one : said) hashes.push_back(one.hashes[0]);
  said.erase(said.begin(), said.begin() + static_cast<ptrdiff_t>(book.NumRead(id, hashes)));
  Status status = CheckOrder(&said);
  if (status.ok()) status = QuestionOf(call, body, "?").status();
  if (!status.ok()) return SendError(body.InTheirWords(status), response);
  const uint64_t hash = said.back().hashes[0];
  auto feed = std::make_unique<HistoryFeed>(call.host, id, body.Words(), ClientWaits);
  const std::vector<uint64_t> system = {HashOf("system", talk->system)};
  if (!talk->system.empty() && book.NumRead(ThreadBook::SystemOf(id), system) == 0) {
    feed->Append(talk->system + "\n\n");
    feed->Note(ThreadBook::SystemOf(id), system);
  }
  AddHistory(id, said, feed.get());
  auto request = QuestionOf(call, body, said.back().text);
  if (!request.ok()) return SendError(body.InTheirWords(request.status()), response);
  response.set_header("x-session-id", id);
  auto shape = std::make_unique<Remembering>(call.host, id, hash, make_shape(*request));
  SendAnswers(call.host, id, *std::move(request), std::move(shape), response, std::move(feed));
  if (response.status >= 400) response.headers.erase("x-session-id");
}

Status CheckForSession(const Call& call, const ChatBody& body) {
  std::string system;
  return CheckTalk(call, body, &system);
}

ApiError SessionFor(const Call& call, const ChatBody& body, std::string* id) {
  NewSession wish;
  if (const Status bad = CheckTalk(call, body, &wish.system); !bad.ok()) return FromStatus(bad);
  Json state;
  if (const ApiError error = MakeSession(call.host, call.options, wish, ClientWaits, &state); error.http != 0) {
    return error;
  }
  *id = state["id"];
  if (!wish.system.empty()) {
    call.host.threads().Read(ThreadBook::SystemOf(*id), std::vector<uint64_t>{HashOf("system", wish.system)});
  }
  return {0, "", ""};
}

}  // namespace weir
