// SPDX-License-Identifier: Apache-2.0
// Renders templates for tools/golden/jinja.py: one JSON object a line, {"template", "context"} -> {"text"} or
// {"error"}. Its argument is a budget of work instead of the usual one.
#include <cstdlib>
#include <iostream>
#include <string>

#include "text/jinja/from_json.h"
#include "text/jinja/program.h"

namespace {

// The oracle's clock.
std::tm Clock() {
  std::tm now{};
  now.tm_year = 126;
  now.tm_mon = 10;
  now.tm_mday = 22;
  now.tm_yday = 325;
  now.tm_hour = 21;
  now.tm_min = 4;
  now.tm_sec = 5;
  return now;
}

weir::Json Answer(const weir::Json& request, const weir::jinja::Limits& limits) {
  const auto program = weir::jinja::Program::Parse(request.at("template").get<std::string>());
  if (!program.ok()) return {{"error", program.status().message()}};
  weir::jinja::Context context;
  for (const auto& [key, value] : request.at("context").items()) {
    context.emplace_back(key, weir::jinja::FromJson(value, true));
  }
  const auto text = program->Render(context, Clock(), limits);
  if (!text.ok()) return {{"error", text.status().message()}};
  return {{"text", text->bytes()}};
}

}  // namespace

int main(int argc, char** argv) {
  weir::jinja::Limits limits;
  if (argc > 1) limits.work = std::atoll(argv[1]);
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto request = weir::ParseJsonObject(line);
    if (!request.ok()) {
      std::cerr << request.status().message() << "\n";
      return 2;
    }
    std::cout << weir::JsonText(Answer(*request, limits)) << std::endl;
  }
  return 0;
}
