// SPDX-License-Identifier: Apache-2.0
#include "text/chat_program.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>

#include "io/json.h"
#include "text/jinja/from_json.h"
#include "text/jinja/lexer.h"
#include "text/jinja/parser.h"
#include "text/jinja/program.h"

namespace weir {

struct ChatProgram::Parsed {
  jinja::Program program;
  std::string source;
};

namespace {

using jinja::MakeDict;
using jinja::MakeSeq;
using jinja::Value;

constexpr int64_t kWorkOfMessage = 1 << 16;  // a thousand steps for each, beside what its bytes pay for

constexpr const char *kSampleSystem = "Sys.", *kSampleUser = "Question one?", *kSampleAnswer = "Answer one.",
                     *kSampleNext = "Question two?";

// Words that templates write into control tokens.
bool IsKnownRole(std::string_view role) {
  static constexpr std::array<std::string_view, 11> kRoles = {"system",    "user",        "assistant", "tool",
                                                              "developer", "function",    "ipython",   "observation",
                                                              "model",     "environment", "context"};
  return std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end();
}

std::tm Now() {
  const std::time_t now = std::time(nullptr);
  std::tm out{};
  localtime_r(&now, &out);
  return out;
}

// A message's tool calls, with their arguments as an object or as a text.
Json WithArguments(Json calls, bool as_text) {
  if (!calls.is_array()) return calls;
  for (Json& call : calls) {
    Json* function = call.is_object() && call.contains("function") ? &call["function"] : nullptr;
    if (function == nullptr || !function->is_object() || !function->contains("arguments")) continue;
    Json& arguments = (*function)["arguments"];
    if (as_text && arguments.is_object()) {
      arguments = JsonText(arguments);
    } else if (!as_text && arguments.is_string()) {
      auto parsed = ParseJsonObject(arguments.get_ref<const std::string&>());
      if (parsed.ok()) arguments = *std::move(parsed);
    }
  }
  return calls;
}

Value Given(std::string_view text) { return jinja::Text(std::string(text), true); }
Value Own(std::string_view text) { return jinja::Text(std::string(text)); }

std::vector<TextPiece> PiecesOf(const jinja::Text& text) {
  std::vector<TextPiece> out;
  for (const jinja::Text::Run& run : text.Runs()) {
    out.push_back({text.bytes().substr(run.begin, run.end - run.begin), !run.given});
  }
  return out;
}

// The part of a rendering between two places, in bytes.
std::vector<TextPiece> Cut(const std::vector<TextPiece>& pieces, size_t begin, size_t end) {
  std::vector<TextPiece> out;
  size_t at = 0;
  for (const TextPiece& piece : pieces) {
    const size_t from = std::max(begin, at), to = std::min(end, at + piece.text.size());
    if (from < to) out.push_back({piece.text.substr(from - at, to - from), piece.parse_special});
    at += piece.text.size();
  }
  return out;
}

// Bytes up to the end of the last piece that holds `content` alone; 0 if there is none.
size_t EndOf(const std::vector<TextPiece>& pieces, std::string_view content) {
  size_t at = 0, out = 0;
  for (const TextPiece& piece : pieces) {
    at += piece.text.size();
    if (!piece.parse_special && piece.text == content) out = at;
  }
  return out;
}

}  // namespace

Result<AroundContent> SplitAtContent(std::span<const TextPiece> pieces, std::string_view content) {
  const auto at = std::find_if(pieces.rbegin(), pieces.rend(),
                               [&](const TextPiece& piece) { return !piece.parse_special && piece.text == content; });
  if (at == pieces.rend()) return Internal("the chat template lost the user's text");
  return AroundContent{{pieces.begin(), at.base() - 1}, {at.base(), pieces.end()}};
}

static_assert(kMaxChatProgramBytes == static_cast<int64_t>(jinja::kMaxSourceBytes));

bool IsChatProgram(std::string_view text) { return text.find("{%") != text.npos || text.find("{{") != text.npos; }

std::string JoinPieces(const std::vector<TextPiece>& pieces) {
  std::string out;
  for (const TextPiece& piece : pieces) out += piece.text;
  return out;
}

Result<ChatProgram> ChatProgram::Make(std::string_view jinja, ChatWords words, std::string_view defaults) {
  if (!defaults.empty()) {
    if (const auto parsed = ParseJsonObject(defaults); !parsed.ok()) {
      return InvalidArgument("--chat-template-kwargs must be a JSON object: {}", parsed.status().message());
    }
  }
  WEIR_ASSIGN_OR_RETURN(jinja::Program program, jinja::Program::Parse(jinja));
  ChatProgram out;
  out.parsed_ = std::make_shared<const Parsed>(Parsed{std::move(program), std::string(jinja)});
  out.words_ = std::move(words);
  out.defaults_ = defaults;
  out.FindForms();
  WEIR_RETURN_IF_ERROR(out.FindTurns());
  out.work_ = jinja::Limits().work;
  return out;
}

bool ChatProgram::Reads(std::string_view name) const {
  if (name.empty() || name.size() > jinja::kMaxNameBytes) return false;
  const std::string_view source = parsed_->source;
  const auto goes_on = [&](size_t at) {
    return at < source.size() && (std::isalnum(static_cast<unsigned char>(source[at])) || source[at] == '_');
  };
  for (size_t at = source.find(name); at != source.npos; at = source.find(name, at + 1)) {
    if ((at == 0 || !goes_on(at - 1)) && !goes_on(at + name.size())) return true;
  }
  return false;
}

Result<std::vector<TextPiece>> ChatProgram::Render(const std::vector<ChatMessage>& messages, bool add_generation_prompt,
                                                   const ChatArguments& arguments) const {
  std::vector<Value> list;
  jinja::Limits limits;
  auto given = static_cast<int64_t>(arguments.tools.size() + arguments.named.size());
  for (const ChatMessage& message : messages) {
    given += static_cast<int64_t>(message.content.size() + message.more.size());
    Value content = Given(message.content);
    if (content_parts_) {
      content = MakeSeq({MakeDict({{Own("type"), Own("text")}, {Own("text"), content}})});
    }
    std::vector<std::pair<Value, Value>> fields = {
        {Own("role"), IsKnownRole(message.role) ? Own(message.role) : Given(message.role)}, {Own("content"), content}};
    if (!message.more.empty()) {
      WEIR_ASSIGN_OR_RETURN(const Json more, ParseJsonObject(message.more));
      for (const auto& [key, value] : more.items()) {
        if (key == "role" || (key == "content" && !value.is_null())) continue;
        const Json shown = key == "tool_calls" ? WithArguments(value, text_arguments_) : value;
        Value field = jinja::FromJson(shown, true);
        if (key == "content") {  // a message of calls alone
          fields[1].second = field;
          continue;
        }
        // Templates have read a model's thoughts under two names.
        if (key == "reasoning_content") fields.emplace_back(Own("thinking"), field);
        fields.emplace_back(Given(key), std::move(field));
      }
    }
    list.push_back(MakeDict(std::move(fields)));
  }
  jinja::Context context;
  const auto put = [&](const std::string& name, Value value) {
    const auto there =
        std::find_if(context.begin(), context.end(), [&](const auto& item) { return item.first == name; });
    if (there == context.end()) {
      context.emplace_back(name, std::move(value));
    } else {
      there->second = std::move(value);
    }
  };
  put("bos_token", Own(words_.bos));
  put("eos_token", Own(words_.eos));
  put("documents", jinja::None{});
  for (const std::string_view named : {std::string_view(defaults_), std::string_view(arguments.named)}) {
    if (named.empty()) continue;
    WEIR_ASSIGN_OR_RETURN(const Json object, ParseJsonObject(named));
    for (const auto& [key, value] : object.items()) put(key, jinja::FromJson(value, true));
  }
  put("tools", jinja::None{});
  if (!arguments.tools.empty()) {
    WEIR_ASSIGN_OR_RETURN(const Json tools, ParseJsonObject("{\"tools\":" + arguments.tools + "}"));
    put("tools", jinja::FromJson(tools.at("tools"), true));
  }
  put("messages", MakeSeq(std::move(list)));
  put("add_generation_prompt", add_generation_prompt);
  limits.work = work_ + 64 * given + kWorkOfMessage * static_cast<int64_t>(messages.size());
  limits.output_bytes += 8 * given;
  WEIR_ASSIGN_OR_RETURN(const jinja::Text text, parsed_->program.Render(context, Now(), limits));
  return PiecesOf(text);
}

// Tries which form of contents and of calls the template shows.
void ChatProgram::FindForms() {
  const auto shows = [&](const std::vector<ChatMessage>& messages, std::string_view what) {
    const auto pieces = Render(messages, false);
    return pieces.ok() && JoinPieces(*pieces).find(what) != std::string::npos;
  };
  const std::vector<ChatMessage> plain = {{"user", kSampleUser}};
  if (!shows(plain, kSampleUser)) {
    content_parts_ = true;
    if (!shows(plain, kSampleUser)) content_parts_ = false;
  }
  if (!Reads("tool_calls")) return;
  const std::vector<ChatMessage> calls = {{"user", kSampleUser},
                                          {"assistant", "",
                                           R"({"content": null, "tool_calls": [{"type": "function", "id": "call00001",
           "function": {"name": "sample", "arguments": {"sample_key": 1}}}]})"}};
  if (shows(calls, "\"sample_key\"")) return;
  text_arguments_ = true;
  if (!shows(calls, "\"sample_key\"")) text_arguments_ = false;
}

Status ChatProgram::FindTurns() {
  WEIR_RETURN_IF_ERROR(FindTurnsAfter(false));
  if (!FindTurnsAfter(true).ok()) {
    has_system_ = false;
    opened_ = {{}, first_.after};
  }
  return Status();
}

Status ChatProgram::FindTurnsAfter(bool has_system) {
  std::vector<ChatMessage> messages;
  if (has_system) messages.push_back({"system", kSampleSystem});
  const auto before = Render(messages, false);
  messages.push_back({"user", kSampleUser});
  const auto one = Render(messages, true);
  if (!one.ok()) return one.status();
  const auto around = SplitAtContent(*one, kSampleUser);
  if (!around.ok()) return InvalidArgument("the chat template does not show what a user says");
  const std::string head = JoinPieces(around->before);
  // A system text that the template has lost, or has put behind the user's: it has no place of its own.
  const size_t system_end = has_system ? EndOf(around->before, kSampleSystem) : 0;
  if (has_system && system_end == 0) return InvalidArgument("the chat template has no system text");

  if (!has_system) {
    messages.push_back({"assistant", kSampleAnswer});
    const auto answered = Render(messages, false);
    messages.push_back({"user", kSampleNext});
    const auto two = Render(messages, true);
    auto next = two.ok() ? SplitAtContent(*two, kSampleNext) : Result<AroundContent>(two.status());
    const size_t answer_end = next.ok() ? EndOf(next->before, kSampleAnswer) : 0;
    if (answer_end > 0) {
      const std::string until_next = JoinPieces(next->before);
      const std::string until_answered = answered.ok() ? JoinPieces(*answered) : "";
      size_t seam = answer_end;
      if (until_answered.size() >= answer_end && until_next.starts_with(until_answered)) {
        seam = until_answered.size();
      } else {  // the answer's end token, and a line's end behind it
        for (const std::string& end : words_.ends) {
          const size_t at = end.empty() ? std::string::npos : until_next.find(end, answer_end);
          if (at == std::string::npos) continue;
          seam = at + end.size();
          if (until_next.substr(seam, 1) == "\n") ++seam;
          break;
        }
      }
      end_ = Cut(next->before, answer_end, seam);
      later_ = {Cut(next->before, seam, until_next.size()), next->after};
    } else {  // a template of one round: the next one is like the first
      end_ = {{words_.eos, true}};
      later_ = *around;
    }
    const std::string end_text = JoinPieces(end_);
    size_t after_token = 0;
    for (const std::string& end : words_.ends) {
      const size_t at = end.empty() ? std::string::npos : end_text.find(end);
      if (at != std::string::npos && (after_token == 0 || at + end.size() < after_token)) after_token = at + end.size();
    }
    end_after_token_ = Cut(end_, after_token, end_text.size());
  }

  // Where the turn begins: behind what the template writes without it, or as any later turn does.
  size_t seam = system_end;
  const std::string words_before = before.ok() ? JoinPieces(*before) : "";
  const std::string later = JoinPieces(later_.before);
  if (before.ok() && words_before.size() >= system_end && words_before.size() < head.size() &&
      head.starts_with(words_before)) {
    seam = words_before.size();
  } else if (!later.empty() && head.size() >= later.size() + system_end && head.ends_with(later)) {
    seam = head.size() - later.size();
  }
  AroundContent turn = {Cut(around->before, seam, head.size()), around->after};
  if (has_system) {
    opened_ = std::move(turn);
  } else {
    system_ = Cut(around->before, 0, seam);
    first_ = std::move(turn);
  }
  return Status();
}

std::vector<TextPiece> ChatProgram::System(const std::optional<std::string>& system) const {
  if (!system) return system_;
  if (has_system_) {
    const auto pieces = Render({{"system", *system}, {"user", kSampleUser}}, true);
    const auto around = pieces.ok() ? SplitAtContent(*pieces, kSampleUser) : Result<AroundContent>(pieces.status());
    if (around.ok()) {
      const std::string head = JoinPieces(around->before), turn = JoinPieces(opened_.before);
      if (head.ends_with(turn)) return Cut(around->before, 0, head.size() - turn.size());
    }
  }
  std::vector<TextPiece> out = system_;
  if (!has_system_) out.insert(out.end(), first_.before.begin(), first_.before.end());
  out.push_back({*system + "\n\n", false});
  return out;
}

std::vector<TextPiece> ChatProgram::EndAnswer(bool end_token_read) const {
  return end_token_read ? end_after_token_ : end_;
}

}  // namespace weir
