// SPDX-License-Identifier: Apache-2.0
#include "thoughts.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "print.h"
#include "text/chat_program.h"

namespace weir::app {

CLI::Option* AddThoughtsFlag(CLI::App& app, ThoughtFlags* flags) {
  return app
      .add_option("--thoughts", flags->where,
                  "where the model's thoughts go: apart (to standard error), hide, or inline (in the answer, with "
                  "their marks)")
      ->check(CLI::IsMember({"apart", "hide", "inline"}))
      ->capture_default_str();
}

namespace {

AnswerForm FormOf(const GgufFile& file, const ModelFlags& model, const ChatTemplate& chat, const Tokenizer& tokenizer) {
  const auto jinja = file.StringOr("tokenizer.chat_template", "");
  const bool own = IsChatProgram(model.chat_template);
  return AnswerForm(own ? model.chat_template : jinja.ok() ? *jinja : "", &chat, tokenizer);
}

// https://no-color.org
bool WantsColour() {
  const char* const no = std::getenv("NO_COLOR");
  return no == nullptr || *no == '\0';
}

}  // namespace

ThoughtReading::ThoughtReading(const GgufFile& file, const ModelFlags& model, const ChatTemplate& chat,
                               const Tokenizer& tokenizer, std::string where)
    : where(std::move(where)), form(FormOf(file, model, chat, tokenizer)) {
  in_thoughts = form.OpensThoughts(ChatRounds(chat).Turn().after);
}

ThoughtPrinter::ThoughtPrinter(const ThoughtReading* reading)
    : reading_(reading), terminal_(isatty(STDERR_FILENO) == 1), faint_(terminal_ && WantsColour()) {
  if (reading == nullptr || !reading->takes_apart()) return;
  ReadingOptions options;
  options.in_thoughts = reading->in_thoughts;
  reader_ = std::make_unique<AnswerReader>(reading->form, options);
}

std::span<const int32_t> ThoughtPrinter::shown() const {
  if (reader_ == nullptr) return {};
  return reading_->form.shown();
}

std::string ThoughtPrinter::Take(std::string_view text, bool last) {
  if (reader_ == nullptr) return std::string(text);
  reader_->Push(text);
  if (last) reader_->Finish();
  std::string answer;
  const auto end_thoughts = [&] {
    if (std::exchange(thinking_, false)) Print(stderr, "{}\n\n", faint_ ? "\x1b[0m" : "");
  };
  for (const AnswerPart& part : reader_->Take()) {
    if (part.kind == AnswerPart::Kind::kReasoning) {
      thoughts_ += part.text;
      if (reading_->where != "apart") continue;
      // Faint on a terminal, where control sequences of the model's own must not act.
      if (!std::exchange(thinking_, true) && faint_) Print(stderr, "\x1b[2m");
      Print(stderr, "{}", terminal_ ? Printable(part.text, /*lines=*/true) : part.text);
      std::fflush(stderr);
    } else {
      end_thoughts();
      answer += part.text;
    }
  }
  if (last) end_thoughts();
  return answer;
}

}  // namespace weir::app
