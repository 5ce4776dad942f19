// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// What a client needs to count tokens as the model does, with vLLM's names: lm_eval's remote tokenizer reads it.
#include "serve/reply.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) {
  const Tokenizer& tokenizer = call.host.tokenizer();
  const auto spelling = [&](int32_t id) { return id < 0 ? Json() : Json(tokenizer.TokenText(id)); };
  const auto jinja = call.host.model().file().StringOr("tokenizer.chat_template", "");
  SendJson({{"tokenizer_class", "weir"},
            {"n_vocab", tokenizer.n_tokens()},
            {"bos_token", spelling(tokenizer.bos_id())},
            {"bos_token_id", tokenizer.bos_id() < 0 ? Json() : Json(tokenizer.bos_id())},
            {"eos_token", spelling(tokenizer.eos_id())},
            {"eos_token_id", tokenizer.eos_id() < 0 ? Json() : Json(tokenizer.eos_id())},
            {"pad_token", spelling(tokenizer.eos_id())},
            {"add_bos_token", tokenizer.add_bos()},
            {"chat_template", jinja.ok() && !jinja->empty() ? Json(*jinja) : Json()}},
           response);
}

}  // namespace

extern const RouteInfo kTokenizerInfo;
const RouteInfo kTokenizerInfo = {
    .method = "GET",
    .path = "/tokenizer_info",
    .handle = Handle,
};

}  // namespace weir
