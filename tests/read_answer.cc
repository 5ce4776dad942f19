// SPDX-License-Identifier: Apache-2.0
// Takes answers apart for tools/golden/dialects.py: one JSON object a line, {"template", "text", "tools",
// "in_thoughts"} -> {"dialect", "content", "reasoning", "calls"}.
#include <iostream>
#include <memory>
#include <string>

#include "text/answer_reader.h"
#include "text/tool_table.h"

namespace {

weir::Json Answer(const weir::Json& request) {
  const std::string jinja = request.at("template");
  const weir::DialectInfo& dialect = weir::DialectOf(jinja);
  const weir::AnswerForm form(dialect, dialect.thoughts ? weir::ThoughtMarks{} : weir::ThoughtsOf(jinja));
  weir::ReadingOptions options;
  options.tools = std::make_shared<const weir::ToolTable>(request.at("tools"));
  options.in_thoughts = request.at("in_thoughts");
  weir::AnswerReader reader(form, options);
  for (const char byte : request.at("text").get<std::string>()) reader.Push({&byte, 1});
  reader.Finish();
  weir::Json out = {{"dialect", dialect.name}, {"content", ""}, {"reasoning", ""}, {"calls", weir::Json::array()}};
  const auto add = [](const std::string& text, weir::Json* to) { *to = to->get<std::string>() + text; };
  for (const weir::AnswerPart& part : reader.Take()) {
    switch (part.kind) {
      case weir::AnswerPart::Kind::kContent:
        add(part.text, &out["content"]);
        break;
      case weir::AnswerPart::Kind::kReasoning:
        add(part.text, &out["reasoning"]);
        break;
      case weir::AnswerPart::Kind::kCall:
        out["calls"].push_back({{"name", part.text}, {"arguments", ""}});
        break;
      case weir::AnswerPart::Kind::kArguments:
        add(part.text, &out["calls"].back()["arguments"]);
    }
  }
  return out;
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto request = weir::ParseJsonObject(line);
    if (!request.ok()) {
      std::cerr << request.status().message() << "\n";
      return 2;
    }
    std::cout << weir::JsonText(Answer(*request)) << std::endl;
  }
  return 0;
}
