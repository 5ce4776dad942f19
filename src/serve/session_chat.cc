// SPDX-License-Identifier: Apache-2.0
#include "serve/session_chat.h"

#include <fmt/core.h>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/answer_sender.h"
#include "serve/new_session.h"
#include "serve/openai_request.h"
#include "serve/reply.h"
#include "serve/routes/common.h"
#include "serve/session_job.h"
#include "serve/tell_job.h"
#include "serve/thread_book.h"
#include "serve/visual_input.h"

namespace weir {
namespace {

// A question is encoded on the engine's thread. Of a longer message the end is the question; what comes before it is
// appended as any text.
constexpr size_t kMaxAskedBytes = 1 << 15;

// One message as a session reads it.
struct Told {
  std::string role, text, where;
  std::vector<VisualInput> visuals;
  uint64_t hash = 0;
};

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

// Clients trim answers before they send them back.
uint64_t HashOf(std::string_view role, std::string_view text, std::string_view pictures = "") {
  return std::hash<std::string>()(fmt::format("{}\n{}\n{}", role, Trimmed(text), pictures));
}

std::string KeyOfSystem(const std::string& id) { return id + "/system"; }

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
  out.hash = HashOf(out.role, out.text, pictures);
  return out;
}

// Waits for a job that has one event. Cancels it when the client has gone.
template <typename JobType>
Status Wait(Host& host, const std::shared_ptr<JobType>& job) {
  WEIR_RETURN_IF_ERROR(host.scheduler().Post(job));
  for (;;) {
    if (const auto result = job->events.Pop(kLookAtClient)) return result->status();
    if (!ClientWaits()) job->Cancel();
  }
}

Status Append(Host& host, const std::string& id, const std::string& text) {
  if (text.empty()) return Status();
  EncodeOptions options;
  options.add_special = false;
  return Wait(host, std::make_shared<AppendJob>(host, id, host.tokenizer().Encode(text, options), false));
}

Status Append(Host& host, const std::string& id, std::vector<VisualInput> visuals) {
  for (VisualInput& one : visuals) {
    WEIR_RETURN_IF_ERROR(Wait(host, std::make_shared<AppendJob>(host, id, std::move(one), false, -1)));
  }
  return Status();
}

// The part of a message that is too long for a question is appended.
Status AppendHead(Host& host, const std::string& id, std::string* text) {
  if (text->size() <= kMaxAskedBytes) return Status();
  size_t cut = text->find('\n', text->size() - kMaxAskedBytes);
  if (cut == text->npos || cut + 1 == text->size()) cut = text->find(' ', text->size() - kMaxAskedBytes);
  if (cut == text->npos || cut + 1 == text->size()) {
    cut = text->size() - kMaxAskedBytes;
    while ((static_cast<unsigned char>((*text)[cut]) & 0xC0) == 0x80) ++cut;  // whole characters
  }
  WEIR_RETURN_IF_ERROR(Append(host, id, text->substr(0, cut)));
  text->erase(0, cut);
  return Status();
}

// Reads what comes before the last message.
Status ReadHistory(Host& host, const std::string& id, std::vector<Told>& said) {
  ThreadBook& book = host.threads();
  for (size_t i = 0; i + 1 < said.size(); ++i) {
    Told& one = said[i];
    if (one.role == "assistant") {
      return InvalidArgument("'{}' of the assistant must follow a message of the user, or be the session's own answer",
                             one.where);
    }
    WEIR_RETURN_IF_ERROR(Append(host, id, std::move(one.visuals)));
    if (said[i + 1].role == "assistant") {
      WEIR_RETURN_IF_ERROR(AppendHead(host, id, &one.text));
      WEIR_RETURN_IF_ERROR(Wait(host, std::make_shared<TellJob>(host, id, one.text, said[i + 1].text)));
      book.Read(id, std::vector<uint64_t>{one.hash, said[i + 1].hash});
      ++i;
    } else {
      WEIR_RETURN_IF_ERROR(Append(host, id, one.text + "\n\n"));
      book.Read(id, std::vector<uint64_t>{one.hash});
    }
  }
  return Status();
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
  if (const auto it = ask.find("max_completion_tokens"); it != ask.end()) {
    ask["max_tokens"] = *it;
    ask.erase("max_completion_tokens");
  }
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

struct Prepared {
  CompletionRequest request;
  uint64_t hash = 0;  // of the question
};

Result<Prepared> Prepare(const Call& call, const std::string& id, const ChatBody& body) {
  Host& host = call.host;
  std::vector<Told> said;
  std::string system;
  for (size_t i = 0; i < body.messages().size(); ++i) {
    WEIR_ASSIGN_OR_RETURN(Told one, ReadMessage(host, body.messages()[i], body.where(i)));
    if (one.role == "system") {
      system += (system.empty() ? "" : "\n\n") + one.text;
    } else {
      said.push_back(std::move(one));
    }
  }
  if (said.size() > ThreadBook::kMaxMessages) {
    return InvalidArgument("'messages' may have at most {} messages: send the newest ones", ThreadBook::kMaxMessages);
  }
  std::vector<uint64_t> hashes;
  for (const Told& one : said) hashes.push_back(one.hash);
  said.erase(said.begin(), said.begin() + static_cast<ptrdiff_t>(host.threads().NumRead(id, hashes)));
  if (said.empty() || said.back().role != "user") {
    return InvalidArgument("'messages' must end with a message of the user that the session has not read");
  }
  Told& last = said.back();
  if (Trimmed(last.text).empty()) return InvalidArgument("'{}' must have a text that asks something", last.where);
  Prepared out;
  out.hash = last.hash;
  // Checked before anything is read.
  WEIR_RETURN_IF_ERROR(QuestionOf(call, body, "?").status());
  const std::vector<uint64_t> system_hash = {HashOf("system", system)};
  if (!system.empty() && host.threads().NumRead(KeyOfSystem(id), system_hash) == 0) {
    WEIR_RETURN_IF_ERROR(Append(host, id, system + "\n\n"));
    host.threads().Read(KeyOfSystem(id), system_hash);
  }
  WEIR_RETURN_IF_ERROR(ReadHistory(host, id, said));
  WEIR_RETURN_IF_ERROR(Append(host, id, std::move(last.visuals)));
  WEIR_RETURN_IF_ERROR(AppendHead(host, id, &last.text));
  WEIR_ASSIGN_OR_RETURN(out.request, QuestionOf(call, body, last.text));
  return out;
}

}  // namespace

void AnswerInSession(const Call& call, const std::string& id, const ChatBody& body, const MakeShape& make_shape,
                     httplib::Response& response) {
  if (!call.host.sessions().Has(id)) {
    call.host.threads().Forget(id);
    return SendError(NotFound("there is no session '{}'", id), response);
  }
  auto prepared = Prepare(call, id, body);
  if (!prepared.ok()) return SendError(body.InTheirWords(prepared.status()), response);
  response.set_header("x-session-id", id);
  auto shape = std::make_unique<Remembering>(call.host, id, prepared->hash, make_shape(prepared->request));
  SendAnswers(call.host, id, std::move(prepared->request), std::move(shape), response);
}

ApiError SessionFor(const Call& call, const ChatBody& body, std::string* id) {
  NewSession wish;
  for (size_t i = 0; i < body.messages().size(); ++i) {
    const auto said = ReadMessage(call.host, body.messages()[i], body.where(i));
    if (!said.ok()) return FromStatus(body.InTheirWords(said.status()));
    if (said->role == "system") wish.system += (wish.system.empty() ? "" : "\n\n") + said->text;
  }
  if (wish.system.size() > kMaxAskedBytes) {
    return {400, "", fmt::format("the system message may have at most {} bytes in a session", kMaxAskedBytes)};
  }
  Json state;
  if (const ApiError error = MakeSession(call.host, call.options, wish, ClientWaits, &state); error.http != 0) {
    return error;
  }
  *id = state["id"];
  if (!wish.system.empty()) {
    call.host.threads().Read(KeyOfSystem(*id), std::vector<uint64_t>{HashOf("system", wish.system)});
  }
  return {0, "", ""};
}

}  // namespace weir
