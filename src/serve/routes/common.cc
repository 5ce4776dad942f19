// SPDX-License-Identifier: Apache-2.0
#include "serve/routes/common.h"

#include <fmt/core.h>
#include <algorithm>
#include <charconv>
#include <system_error>

namespace weir {
namespace {

constexpr size_t kMaxNameBytes = 100;

}  // namespace

bool ClientWaits() { return HttpConnection::Current()->Alive(); }

Json ModelJson(const Host& host) {
  const ModelConfig& config = host.model().model().config();
  Json capabilities = {"completion", "embedding"};
  if (host.chat() != nullptr) capabilities.push_back("chat");
  if (host.chat() != nullptr && host.chat()->Reads("tools")) capabilities.push_back("tools");
  Json modalities = {"text"};
  if (host.vision() != nullptr) {
    capabilities.push_back("vision");
    modalities.push_back("image");
  }
  return {{"id", host.options().model_name},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "weir"},
          {"type", "model"},  // these two for clients of Anthropic's API
          {"display_name", host.options().model_name},
          {"capabilities", std::move(capabilities)},
          {"max_model_len", host.plan().pot_slots},
          {"architecture", {{"input_modalities", std::move(modalities)}, {"output_modalities", {"text"}}}},
          {"meta",
           {{"architecture", config.architecture},
            {"n_ctx", host.plan().pot_slots},
            {"n_ctx_train", config.n_ctx_train},
            {"n_vocab", config.n_vocab},
            {"n_embd", config.n_embd},
            {"n_layers", config.n_layers},
            {"fingerprint", host.fingerprint()}}}};
}

ApiError AdmissionError(const Host& host, const SessionOptions& options, const Status& status) {
  if (status.code() != StatusCode::kOverBudget) return FromStatus(status);
  return {host.admission().CouldFit(options) ? 429 : 400, "budget_exceeded", status.message()};
}

Result<int64_t> NumberParam(const httplib::Request& http, const char* name, int64_t missing, int64_t least,
                            int64_t most) {
  if (!http.has_param(name)) return missing;
  const std::string text = http.get_param_value(name);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    return InvalidArgument("'{}' must be a whole number from {} to {}", name, least, most);
  }
  return value;
}

Result<std::string> SnapshotKey(const ServerOptions& options, const Json& body) {
  if (options.store == nullptr) return InvalidArgument("the server was started without --snapshots FOLDER");
  Fields fields(body);
  std::string name;
  fields.Get("name", &name);
  const bool fine = !name.empty() && name.size() <= kMaxNameBytes && name[0] != '.' &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                             c == '-' || c == '.';
                    });
  if (!fine) {
    fields.Fail("name",
                fmt::format("must be 1 to {} letters, digits, '_', '-' or '.', not beginning with '.'", kMaxNameBytes));
  }
  WEIR_RETURN_IF_ERROR(fields.Done());
  return name + ".weir";
}

}  // namespace weir
