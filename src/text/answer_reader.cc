// SPDX-License-Identifier: Apache-2.0
#include "text/answer_reader.h"

#include <algorithm>
#include <iterator>

#include "text/chat_template.h"

namespace weir {
namespace {

// In the order in which they are looked for. A dialect that tells thoughts apart itself has none of these.
constexpr ThoughtMarks kThoughtMarks[] = {
    {"[THINK]", "[/THINK]"},                        // Magistral, Ministral
    {"<|START_THINKING|>", "<|END_THINKING|>"},     // Command R7B and A
    {"<seed:think>", "</seed:think>"},              // Seed-OSS
    {"<mm:think>", "</mm:think>"},                  // MiniMax-M3
    {"<|inner_prefix|>", "<|inner_suffix|>"},       // Apertus
    {"<|channel>thought\n", "<channel|>"},          // Gemma 4
    {"<think:opensource>", "</think:opensource>"},  // Hunyuan 3
    {"<think>", "</think>"},                        // Qwen3, QwQ, DeepSeek, GLM and most others
};
constexpr size_t kMaxLeadBytes = 256;  // white space before thoughts

constexpr std::string_view kWhiteSpace = " \n\t\r";

}  // namespace

ThoughtMarks ThoughtsOf(std::string_view jinja) {
  for (const ThoughtMarks& marks : kThoughtMarks) {
    // A line's end may be written as one or as an escape.
    const std::string_view open = marks.open.substr(0, marks.open.find('\n'));
    if (jinja.find(marks.close) != jinja.npos && jinja.find(open) != jinja.npos) return marks;
  }
  return jinja.find("</think>") == jinja.npos ? ThoughtMarks{} : ThoughtMarks{"<think>", "</think>"};
}

AnswerForm::AnswerForm(std::string_view jinja, const ChatTemplate* chat, const Tokenizer& tokenizer) {
  if (chat == nullptr || !chat->has_program()) jinja = {};
  dialect_ = &DialectOf(jinja);
  const bool reads_tools = chat != nullptr && chat->Reads("tools");
  // Where a text describes the tools, the model answers in the form that the text asks for.
  if (!reads_tools && !dialect_->thoughts) dialect_ = &DialectOf("");
  shows_tools_ = reads_tools && std::string_view(dialect_->name) != "generic";
  if (!dialect_->thoughts) thoughts_ = ThoughtsOf(jinja);
  // These models write thoughts whether their template's words begin them or not.
  if (chat != nullptr && chat->name().starts_with("deepseek-r1")) thoughts_ = {"<think>", "</think>"};
  if (chat != nullptr) FindShown(*chat);
  for (int32_t id = 0; id < tokenizer.n_tokens(); ++id) {
    if (tokenizer.Type(id) != TokenType::kControl || tokenizer.IsEndOfGeneration(id)) continue;
    const std::string_view text = tokenizer.TokenText(id);
    if (text.empty()) continue;
    const auto within = [&](std::string_view marker) { return marker.find(text) != marker.npos; };
    if (std::any_of(dialect_->markers.begin(), dialect_->markers.end(), within) || within(thoughts_.open) ||
        within(thoughts_.close)) {
      shown_.push_back(id);
    }
  }
}

void AnswerForm::FindShown(const ChatTemplate& chat) {
  const auto shows = [&](const std::vector<ChatMessage>& messages, std::string_view what) {
    const auto pieces = chat.Render(messages, false);
    return pieces.ok() && JoinPieces(*pieces).find(what) != std::string::npos;
  };
  shows_system_ = shows({{"system", "Sample words."}, {"user", "Say."}}, "Sample words.");
  if (!chat.Reads("tool_calls")) return;
  std::vector<ChatMessage> messages = {{"user", "Say."},
                                       {"assistant", "",
                                        R"({"content": null, "tool_calls": [{"type": "function", "id": "call00001",
           "function": {"name": "sample_tool", "arguments": {"sample_key": 1}}}]})"}};
  shows_calls_ = shows(messages, "sample_tool");
  messages.push_back({"tool", "Sample result.", R"({"tool_call_id": "call00001", "name": "sample_tool"})"});
  shows_results_ = shows_calls_ && shows(messages, "Sample result.");
}

bool AnswerForm::OpensThoughts(const std::vector<TextPiece>& prompt) const {
  if (thoughts_.open.empty() || prompt.empty() || !prompt.back().parse_special) return false;
  const std::string_view words = prompt.back().text;
  const size_t open = words.rfind(thoughts_.open);
  return open != words.npos && words.find_first_not_of(kWhiteSpace, open + thoughts_.open.size()) == words.npos;
}

AnswerReader::AnswerReader(const AnswerForm& form, const ReadingOptions& options)
    : thoughts_(form.thoughts()),
      apart_(options.thoughts_apart),
      sink_({.calls = options.tools != nullptr, .single = !options.parallel, .new_id = options.new_id}) {
  if (options.tools != nullptr || form.dialect().thoughts) {
    dialect_ = form.dialect().make({options.tools, apart_, options.held}, sink_);
  }
  if (!thoughts_.open.empty()) {
    stage_ = options.in_thoughts ? Stage::kThoughts : Stage::kStart;
    opened_ = options.in_thoughts;
  }
  if (!options.begun.empty()) {
    Push(options.begun);
    (void)sink_.Take();  // the caller has it already
  }
}

void AnswerReader::PushAnswer(std::string_view text) {
  if (text.empty()) return;
  if (dialect_ != nullptr) {
    dialect_->Push(text);
  } else {
    sink_.Content(text);
  }
}

bool AnswerReader::Step(bool last) {
  if (stage_ == Stage::kStart || opened_) {
    const size_t begin = std::min(held_.find_first_not_of(kWhiteSpace), held_.size());
    const std::string_view here = std::string_view(held_).substr(begin);
    if (!last && begin <= kMaxLeadBytes && here.size() < thoughts_.open.size() && thoughts_.open.starts_with(here)) {
      return false;
    }
    if (begin <= kMaxLeadBytes && here.starts_with(thoughts_.open)) {
      if (!apart_) sink_.Content(std::string_view(held_).substr(0, begin + thoughts_.open.size()));
      held_.erase(0, begin + thoughts_.open.size());
      stage_ = Stage::kThoughts;
    } else if (!opened_) {
      stage_ = Stage::kAnswer;
    }
    opened_ = false;
    return true;
  }
  if (stage_ == Stage::kThoughts) {
    const auto say = [&](std::string_view text) { apart_ ? sink_.Reasoning(text) : sink_.Content(text); };
    const size_t close = held_.find(thoughts_.close);
    if (close != held_.npos) {
      say(std::string_view(held_).substr(0, close));
      if (!apart_) sink_.Content(thoughts_.close);
      held_.erase(0, close + thoughts_.close.size());
      stage_ = Stage::kAnswer;
      return true;
    }
    size_t n_kept = last ? 0 : std::min(held_.size(), thoughts_.close.size() - 1);
    while (n_kept > 0 && !thoughts_.close.starts_with(std::string_view(held_).substr(held_.size() - n_kept))) --n_kept;
    say(std::string_view(held_).substr(0, held_.size() - n_kept));
    held_.erase(0, held_.size() - n_kept);
    return false;
  }
  PushAnswer(held_);
  held_.clear();
  return false;
}

void AnswerReader::Push(std::string_view text) {
  if (done()) return;
  if (stage_ == Stage::kAnswer && held_.empty()) return PushAnswer(text);
  held_ += text;
  while (Step(false)) {
  }
}

void AnswerReader::Finish() {
  while (Step(true)) {
  }
  if (dialect_ != nullptr) dialect_->Finish();
  sink_.Finish();
}

}  // namespace weir
