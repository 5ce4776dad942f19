// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// The text of token ids.
#include <fmt/core.h>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "serve/reply.h"
#include "serve/routes/route.h"
#include "text/stream.h"

namespace weir {
namespace {

void Handle(const Call& call, httplib::Response& response) {
  const auto ids = [&]() -> Result<std::vector<int32_t>> {
    WEIR_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(call.body));
    Fields fields(body);
    const Json* tokens = fields.Get("tokens");
    fields.Ignore("model");
    if (tokens == nullptr) fields.Fail("tokens", "is missing");
    WEIR_RETURN_IF_ERROR(fields.Done());
    return TokenIds(*tokens, "tokens", call.host.tokenizer().n_tokens());
  }();
  if (!ids.ok()) return SendError(ids.status(), response);
  // A short token may decode to a hundred spaces, so the output is limited like the input.
  StreamDecoder decoder(call.host.tokenizer(), {});
  std::string text;
  for (const int32_t id : *ids) {
    decoder.Push(id, &text);
    if (std::ssize(text) > call.options.http.max_body_bytes) {
      return SendError({400, "",
                        fmt::format("'tokens' decode to more than {} bytes of text; send fewer at once",
                                    call.options.http.max_body_bytes)},
                       response);
    }
  }
  decoder.Finish(&text);
  SendJson({{"content", text}, {"prompt", text}}, response);  // vLLM's name too, which lm_eval reads
}

}  // namespace

extern const RouteInfo kDetokenize;
const RouteInfo kDetokenize = {
    .method = "POST",
    .path = "/detokenize",
    .handle = Handle,
};

}  // namespace weir
