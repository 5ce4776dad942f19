// SPDX-License-Identifier: Apache-2.0
// Any program is read and run, or refused with one line, within its bounds; what it prints of a request's bytes stays
// marked as the request's.
//
// Input: the program, and after a 0 byte a text that it sees as `messages[0].content` and as `x`.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/jinja/from_json.h"
#include "text/jinja/program.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using weir::jinja::Text;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = std::min(input.find('\0'), input.size());
  const std::string given(input.substr(std::min(zero + 1, input.size())));
  const auto program = weir::jinja::Program::Parse(input.substr(0, zero));
  const auto one_line = [](const weir::Status& status) {
    if (status.message().empty() || status.message().find('\n') != std::string::npos) std::abort();
  };
  if (!program.ok()) {
    one_line(program.status());
    return 0;
  }
  const weir::Json message = {{"role", "user"}, {"content", given}, {"n", 3}, {"l", {1, "b", nullptr}}};
  const weir::jinja::Context context = {
      {"messages", weir::jinja::FromJson(weir::Json::array({message, message}), true)},
      {"x", Text(given, true)},
      {"tools", weir::jinja::FromJson(weir::Json::array({message}), true)},
      {"bos_token", Text("<s>")},
      {"add_generation_prompt", true},
  };
  weir::jinja::Limits limits;
  limits.work = 1 << 20;
  limits.output_bytes = 1 << 16;
  const std::tm now{};
  const auto text = program->Render(context, now, limits);
  if (!text.ok()) {
    one_line(text.status());
    return 0;
  }
  if (static_cast<int64_t>(text->size()) > limits.output_bytes) std::abort();
  size_t end = 0;
  for (const Text::Run& run : text->Runs()) {
    if (run.begin != end || run.end <= run.begin) std::abort();
    end = run.end;
  }
  if (end != text->size()) std::abort();
  return 0;
}
