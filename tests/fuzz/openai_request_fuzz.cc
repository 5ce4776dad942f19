// SPDX-License-Identifier: Apache-2.0
// Any JSON as the body of a chat, a completion or a question, and as the rounds of a saved session: refused in one
// line, or read as something that can be answered.
//
// Input: one byte choosing which, then the text.
#include <cstdlib>
#include <memory>
#include <string>

#include "chat/conversation.h"
#include "engine/loaded_model.h"
#include "serve/host.h"
#include "serve/openai_request.h"
#include "support/build_paths.h"

namespace {

class Hosts {
 public:
  Hosts() {
    auto model =
        weir::LoadedModel::Load({.path = weir::SourceDir() + "/tests/golden/models/llama.gguf", .n_threads = 1});
    if (!model.ok()) std::abort();
    model_ = std::move(model).value();
    weir::HostOptions options;
    auto policy = weir::ParsePolicySpec("streaming_llm");
    if (!policy.ok()) std::abort();
    options.session.policy = *std::move(policy);
    options.session.pot_slots = 32;
    options.chat_template = "chatml";
    auto host = weir::Host::Make(*model_, options);
    if (!host.ok() || (*host)->chat() == nullptr) std::abort();
    host_ = std::move(host).value();
  }
  weir::Host& get() { return *host_; }

 private:
  std::unique_ptr<weir::LoadedModel> model_;
  std::unique_ptr<weir::Host> host_;
};

void OneLine(const weir::Status& status) {
  if (!status.ok() && (status.message().empty() || status.message().find('\n') != std::string::npos)) std::abort();
}

void CheckRequest(const weir::Host& host, const weir::Result<weir::CompletionRequest>& request) {
  OneLine(request.status());
  if (!request.ok()) return;
  if (request->n < 1 || request->answers.empty() || request->n_top < 0) std::abort();
  if (!request->echoes.empty() && request->echoes.size() != request->answers.size()) std::abort();
  for (const weir::AnswerRequest& answer : request->answers) {
    for (const weir::PromptPart& part : answer.prompt) {
      for (const int32_t id : part.tokens) {
        if (id < 0 || id >= host.tokenizer().n_tokens()) std::abort();
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Hosts hosts;
  weir::Host& host = hosts.get();
  if (size < 1) return 0;
  const auto body = weir::ParseJsonObject({reinterpret_cast<const char*>(data) + 1, size - 1});
  OneLine(body.status());
  if (!body.ok()) return 0;
  switch (data[0] % 4) {
    case 0:
      CheckRequest(host, weir::ParseChat(host, *body, {}));
      break;
    case 1:
      CheckRequest(host, weir::ParseCompletion(host, *body, {}));
      break;
    case 2:
      CheckRequest(host, weir::ParseAsk(host, *body, {}));
      break;
    default: {
      auto rounds = weir::Conversation::Restore(host.tokenizer(), host.chat(), *body);
      OneLine(rounds.status());
      if (!rounds.ok()) return 0;
      (void)rounds->TurnHead();
      rounds->TurnOpened();
      (void)rounds->Ask("And then?");
      const auto again = weir::Conversation::Restore(host.tokenizer(), host.chat(), rounds->Save());
      if (!again.ok() || again->Save() != rounds->Save()) std::abort();
    }
  }
  return 0;
}
