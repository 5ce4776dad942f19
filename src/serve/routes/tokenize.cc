// weir-plugin: route
// SPDX-License-Identifier: Apache-2.0
// Token ids of a text.
#include <charconv>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "serve/reply.h"
#include "serve/routes/route.h"

namespace weir {
namespace {

// {"tokens":[1,2,...]}. As values of JSON the ids would take four times their memory.
std::string TokensText(std::span<const int32_t> ids, int32_t n_vocab) {
  std::string out = "{\"tokens\":[";
  out.reserve(out.size() + ids.size() * (std::to_string(n_vocab).size() + 1) + 4);
  char digits[16];
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    out.append(digits, std::to_chars(digits, std::end(digits), ids[i]).ptr);
  }
  out += "]}\n";
  return out;
}

void Handle(const Call& call, httplib::Response& response) {
  // The parsed request is freed before the answer is built.
  const auto ids = [&]() -> Result<std::vector<int32_t>> {
    WEIR_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(call.body));
    Fields fields(body);
    EncodeOptions options;
    options.add_special = false;
    const Json* content = fields.Get("content");
    if (content == nullptr) {  // vLLM's names, which lm_eval uses; there control tokens are recognised
      content = fields.Get("prompt");
      options.parse_special = content != nullptr;
    }
    if (content == nullptr) fields.Fail("content", "is missing");
    if (content != nullptr && !content->is_string()) fields.Fail("content", "must be a string");
    fields.Get("add_special", &options.add_special);
    fields.Get("add_special_tokens", &options.add_special);
    fields.Get("parse_special", &options.parse_special);
    fields.Ignore("model");
    WEIR_RETURN_IF_ERROR(fields.Done());
    return call.host.tokenizer().Encode(content->get_ref<const std::string&>(), options);
  }();
  if (!ids.ok()) return SendError(ids.status(), response);
  SendJsonText(TokensText(*ids, call.host.tokenizer().n_tokens()), response);
}

}  // namespace

extern const RouteInfo kTokenize;
const RouteInfo kTokenize = {
    .method = "POST",
    .path = "/tokenize",
    .handle = Handle,
};

}  // namespace weir
