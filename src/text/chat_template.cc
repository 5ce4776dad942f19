// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <algorithm>
#include <iterator>

#include "base/utf8.h"

namespace weir {

enum class SystemPlace {
  kBlock,      // a block of its own, before the first turn
  kFirstUser,  // inside the first user turn, before the user's words
  kLastUser,   // the same in the last user turn of the rendering
};
enum Trim { kTrimNone = 0, kTrimSystem = 1, kTrimUser = 2, kTrimAssistant = 4, kTrimAll = 7 };

// A format as the words around the messages. "{bos}" and "{eos}" stand for the vocabulary's tokens.
struct ChatFormat {
  const char* name = "";
  const char* start = "";  // once, before everything
  SystemPlace system_place = SystemPlace::kBlock;
  const char *system_open = "", *system_close = "";
  const char *user_first = "", *user_next = "", *user_close = "";  // user_first opens the first user turn
  const char *answer_open = "", *answer_before_end = "", *answer_end = "", *answer_after_end = "";
  const char* generation = "";  // the prompt for an answer
  const char* unfinished = "";  // ends a rendering without a prompt for an answer
  int trim = 0;                 // bits of kTrimUser ...
  bool must_alternate = false;
  bool any_role = false;  // roles are written unchanged, in the user's form with the role's name
};

namespace {

using enum SystemPlace;
#define WEIR_IM(role) "<|im_start|>" role "\n"
#define WEIR_SEP(role) "<|im_start|>" role "<|im_sep|>"
#define WEIR_HEADER(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
#define WEIR_DEEPSEEK(format, thoughts)                                                                               \
  {                                                                                                                   \
    .name = format, .start = "{bos}", .user_first = "<｜User｜>", .user_next = "<｜User｜>",                          \
    .answer_open = "<｜Assistant｜>", .answer_end = "<｜end▁of▁sentence｜>", .generation = "<｜Assistant｜>" thoughts \
  }
constexpr ChatFormat kFormats[] = {
    {.name = "chatml",
     .system_open = WEIR_IM("system"),
     .system_close = "<|im_end|>\n",
     .user_first = WEIR_IM("user"),
     .user_next = WEIR_IM("user"),
     .user_close = "<|im_end|>\n",
     .answer_open = WEIR_IM("assistant"),
     .answer_end = "<|im_end|>",
     .answer_after_end = "\n",
     .generation = WEIR_IM("assistant"),
     .any_role = true},
    {.name = "llama2",
     .start = "{bos}",
     .system_place = kFirstUser,
     .system_open = "<<SYS>>\n",
     .system_close = "\n<</SYS>>\n\n",
     .user_first = "[INST] ",
     .user_next = "{bos}[INST] ",
     .user_close = " [/INST]",
     .answer_open = " ",
     .answer_before_end = " ",
     .answer_end = "{eos}",
     .trim = kTrimUser | kTrimAssistant,
     .must_alternate = true},
    {.name = "llama3",
     .start = "{bos}",
     .system_open = WEIR_HEADER("system"),
     .system_close = "<|eot_id|>",
     .user_first = WEIR_HEADER("user"),
     .user_next = WEIR_HEADER("user"),
     .user_close = "<|eot_id|>",
     .answer_open = WEIR_HEADER("assistant"),
     .answer_end = "<|eot_id|>",
     .generation = WEIR_HEADER("assistant"),
     .trim = kTrimAll},
    // Its template always writes a system block with two dates; the second is a fixed one when no clock is available.
    {.name = "llama3.1",
     .start = "{bos}",
     .system_open = WEIR_HEADER("system") "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
     .system_close = "<|eot_id|>",
     .user_first = WEIR_HEADER("user"),
     .user_next = WEIR_HEADER("user"),
     .user_close = "<|eot_id|>",
     .answer_open = WEIR_HEADER("assistant"),
     .answer_end = "<|eot_id|>",
     .generation = WEIR_HEADER("assistant"),
     .trim = kTrimAll},
    {.name = "vicuna",
     .system_close = " ",
     .user_first = "USER: ",
     .user_next = "USER: ",
     .user_close = " ",
     .answer_open = "ASSISTANT: ",
     .answer_end = "{eos}",
     .generation = "ASSISTANT:",
     .must_alternate = true},
    {.name = "vicuna-newline",
     .system_close = "\n\n",
     .user_first = "USER: ",
     .user_next = "USER: ",
     .user_close = "\n",
     .answer_open = "ASSISTANT: ",
     .answer_end = "{eos}",
     .answer_after_end = "\n",
     .generation = "ASSISTANT:"},
    {.name = "mistral-v1",
     .start = "{bos}",
     .system_place = kFirstUser,
     .system_close = "\n\n",
     .user_first = " [INST] ",
     .user_next = " [INST] ",
     .user_close = " [/INST]",
     .answer_open = " ",
     .answer_end = "{eos}",
     .must_alternate = true},
    {.name = "mistral-v2",
     .start = "{bos}",
     .system_place = kFirstUser,
     .system_close = "\n\n",
     .user_first = "[INST] ",
     .user_next = "[INST] ",
     .user_close = " [/INST]",
     .answer_end = "{eos}",
     .must_alternate = true},
    {.name = "mistral-v3",
     .start = "{bos}",
     .system_place = kLastUser,
     .system_close = "\n\n",
     .user_first = "[INST] ",
     .user_next = "[INST] ",
     .user_close = "[/INST]",
     .answer_open = " ",
     .answer_end = "{eos}",
     .trim = kTrimAssistant,
     .must_alternate = true},
    {.name = "mistral-v3-tekken",
     .start = "{bos}",
     .system_place = kLastUser,
     .system_close = "\n\n",
     .user_first = "[INST]",
     .user_next = "[INST]",
     .user_close = "[/INST]",
     .answer_end = "{eos}",
     .must_alternate = true},
    {.name = "mistral-v7",
     .start = "{bos}",
     .system_open = "[SYSTEM_PROMPT] ",
     .system_close = "[/SYSTEM_PROMPT]",
     .user_first = "[INST] ",
     .user_next = "[INST] ",
     .user_close = "[/INST]",
     .answer_open = " ",
     .answer_end = "{eos}"},
    {.name = "mistral-v7-tekken",
     .start = "{bos}",
     .system_open = "[SYSTEM_PROMPT]",
     .system_close = "[/SYSTEM_PROMPT]",
     .user_first = "[INST]",
     .user_next = "[INST]",
     .user_close = "[/INST]",
     .answer_end = "{eos}"},
    {.name = "zephyr",
     .system_open = "<|system|>\n",
     .system_close = "{eos}\n",
     .user_first = "<|user|>\n",
     .user_next = "<|user|>\n",
     .user_close = "{eos}\n",
     .answer_open = "<|assistant|>\n",
     .answer_end = "{eos}",
     .answer_after_end = "\n",
     .generation = "<|assistant|>\n"},
    // Gemma has no system role; as in Gemma 3's template the text opens the first user turn.
    {.name = "gemma",
     .start = "{bos}",
     .system_place = kFirstUser,
     .system_close = "\n\n",
     .user_first = "<start_of_turn>user\n",
     .user_next = "<start_of_turn>user\n",
     .user_close = "<end_of_turn>\n",
     .answer_open = "<start_of_turn>model\n",
     .answer_end = "<end_of_turn>",
     .answer_after_end = "\n",
     .generation = "<start_of_turn>model\n",
     .trim = kTrimUser | kTrimAssistant,
     .must_alternate = true},
    {.name = "phi3",
     .system_open = "<|system|>\n",
     .system_close = "<|end|>\n",
     .user_first = "<|user|>\n",
     .user_next = "<|user|>\n",
     .user_close = "<|end|>\n",
     .answer_open = "<|assistant|>\n",
     .answer_end = "<|end|>",
     .answer_after_end = "\n",
     .generation = "<|assistant|>\n",
     .unfinished = "{eos}"},
    {.name = "phi4-mini",
     .system_open = "<|system|>",
     .system_close = "<|end|>",
     .user_first = "<|user|>",
     .user_next = "<|user|>",
     .user_close = "<|end|>",
     .answer_open = "<|assistant|>",
     .answer_end = "<|end|>",
     .generation = "<|assistant|>",
     .unfinished = "{eos}"},
    {.name = "phi4",
     .system_open = WEIR_SEP("system"),
     .system_close = "<|im_end|>",
     .user_first = WEIR_SEP("user"),
     .user_next = WEIR_SEP("user"),
     .user_close = "<|im_end|>",
     .answer_open = WEIR_SEP("assistant"),
     .answer_end = "<|im_end|>",
     .generation = WEIR_SEP("assistant")},
    {.name = "deepseek",
     .start = "{bos}",
     .user_first = "### Instruction:\n",
     .user_next = "### Instruction:\n",
     .user_close = "\n",
     .answer_open = "### Response:\n",
     .answer_before_end = "\n",
     .answer_end = "<|EOT|>",
     .answer_after_end = "\n",
     .generation = "### Response:\n"},
    {.name = "deepseek2",
     .start = "{bos}",
     .system_close = "\n\n",
     .user_first = "User: ",
     .user_next = "User: ",
     .user_close = "\n\n",
     .answer_open = "Assistant: ",
     .answer_end = "{eos}",
     .generation = "Assistant:"},
    WEIR_DEEPSEEK("deepseek3", ""),
    // These drop the reasoning of earlier answers; the first begins it.
    WEIR_DEEPSEEK("deepseek-r1", "<think>\n"),
    WEIR_DEEPSEEK("deepseek-r1-0528", ""),
    // Not ChatML, although it begins like it.
    {.name = "smolvlm",
     .start = "<|im_start|>",
     .system_open = "System: ",
     .system_close = "<end_of_utterance>\n",
     .user_first = "User: ",
     .user_next = "User: ",
     .user_close = "<end_of_utterance>\n",
     .answer_open = "Assistant: ",
     .answer_end = "<end_of_utterance>",
     .answer_after_end = "\n",
     .generation = "Assistant:"},
    {.name = "none", .system_close = "\n", .user_next = "\n"},
};
constexpr char kSmolLm2System[] = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";
constexpr char kVicunaSystem[] =
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, "
    "and polite answers to the user's questions.";
constexpr char kDeepSeekCoderSystem[] =
    "You are an AI programming assistant, utilizing the Deepseek Coder model, developed by Deepseek Company, and you "
    "only answer questions related to computer science. For politically sensitive questions, security and privacy "
    "issues, and other non-computer science questions, you will refuse to answer\n";

const ChatFormat* FindFormat(std::string_view name) {
  const auto* it =
      std::find_if(std::begin(kFormats), std::end(kFormats), [&](const ChatFormat& f) { return name == f.name; });
  return it == std::end(kFormats) ? nullptr : it;
}

std::string Names() {
  std::string names = "smollm2, mistral";
  for (const ChatFormat& f : kFormats) names += std::string(", ") + f.name;
  return names;
}

// The characters that Python's str.strip() removes, because the templates call it.
bool IsPythonSpace(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view TrimLeft(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char c = DecodeUtf8(text, 0);
    if (!c.valid || !IsPythonSpace(c.cp)) break;
    text.remove_prefix(c.bytes);
  }
  return text;
}

std::string_view TrimRight(std::string_view text) {
  size_t keep = 0;
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = DecodeUtf8(text, pos);
    pos += c.bytes;
    if (!c.valid || !IsPythonSpace(c.cp)) keep = pos;
  }
  return text.substr(0, keep);
}

std::string_view AfterThoughts(std::string_view answer) {
  constexpr std::string_view kEnd = "</think>";
  const size_t end = answer.rfind(kEnd);
  return end == answer.npos ? answer : answer.substr(end + kEnd.size());
}

// Builds a rendering; merges neighbouring pieces of one kind.
class Writer {
 public:
  Writer(std::string_view bos, std::string_view eos) : bos_(bos), eos_(eos) {}

  void Template(std::string_view text) {
    std::string out;
    for (size_t pos = 0; pos < text.size();) {
      const bool is_bos = text.substr(pos, 5) == "{bos}", is_eos = text.substr(pos, 5) == "{eos}";
      out += is_bos ? bos_ : is_eos ? eos_ : text.substr(pos, 1);
      pos += is_bos || is_eos ? 5 : 1;
    }
    Append(out, true);
  }
  void Content(std::string_view text, bool trim_left, bool trim_right) {
    if (trim_left) text = TrimLeft(text);
    if (trim_right) text = TrimRight(text);
    Append(text, false);
  }
  std::vector<TextPiece> Take() { return std::move(pieces_); }

 private:
  void Append(std::string_view text, bool parse_special) {
    if (text.empty()) return;
    if (pieces_.empty() || pieces_.back().parse_special != parse_special) pieces_.push_back({"", parse_special});
    pieces_.back().text += text;
  }
  std::string_view bos_, eos_;
  std::vector<TextPiece> pieces_;
};

void WriteSystem(const ChatFormat& f, std::string_view content, Writer* out) {
  const bool trim = f.trim & kTrimSystem;
  out->Template(f.system_open);
  out->Content(content, trim, trim);
  out->Template(f.system_close);
}

// The opening of a user's turn. SmolVLM writes no space between its word and a picture.
std::string_view UserOpening(const ChatFormat& f, bool first, std::string_view content) {
  std::string_view words = first ? f.user_first : f.user_next;
  if (std::string_view(f.name) == "smolvlm" && content.starts_with(kPictureMark)) words.remove_suffix(1);
  return words;
}

// A literal default that a ChatML program writes when there is no system message, such as
// '<|im_start|>system\nYou are ...<|im_end|>\n'. Newlines may be real or escaped.
std::string ChatMlDefault(std::string_view jinja) {
  constexpr std::string_view kOpen = "<|im_start|>system", kClose = "<|im_end|>";
  for (size_t pos = jinja.find(kOpen); pos != jinja.npos; pos = jinja.find(kOpen, pos + 1)) {
    size_t begin = pos + kOpen.size();
    if (jinja.substr(begin, 2) == "\\n") {
      begin += 2;
    } else if (jinja.substr(begin, 1) == "\n") {
      begin += 1;
    } else {
      continue;
    }
    const size_t end = jinja.find(kClose, begin);
    if (end == jinja.npos) break;
    const std::string_view text = jinja.substr(begin, end - begin);
    if (!text.empty() && text.size() < 4096 && text.find_first_of("'\"{}\\+") == text.npos) return std::string(text);
  }
  return "";
}

const char* DetectName(std::string_view jinja) {
  const auto has = [&](std::string_view marker) { return jinja.find(marker) != jinja.npos; };
  if (has("<|im_start|>") && has("<end_of_utterance>")) return "smolvlm";
  if (has("<｜Assistant｜>")) {
    if (has("not thinking")) return nullptr;  // from V3.1 on, reasoning is optional and ends even if there is none
    if (has("<｜Assistant｜><think>")) return "deepseek-r1";
    return has("</think>") ? "deepseek-r1-0528" : "deepseek3";
  }
  if (has("### Instruction:") && has("<|EOT|>")) return "deepseek";
  // Phi-4's reasoning models begin with a text of their own.
  if (has("<|im_sep|>")) return has("<|im_sep|>You") ? nullptr : "phi4";
  if (has("<|im_start|>")) return "chatml";
  if (has("<|start_header_id|>")) return has("Cutting Knowledge Date") ? "llama3.1" : "llama3";
  if (has("[INST]")) {
    if (has("[SYSTEM_PROMPT]")) return has("[SYSTEM_PROMPT] ") ? "mistral-v7" : "mistral-v7-tekken";
    if (has("<<SYS>>")) return "llama2";
    if (has("' [INST] '") || has("\" [INST] \"")) return "mistral-v1";
    if (has("[AVAILABLE_TOOLS]")) return has("\"[INST]\"") || has("'[INST]'") ? "mistral-v3-tekken" : "mistral-v3";
    return has("' [/INST]'") ? "mistral-v2" : nullptr;
  }
  if (has("<start_of_turn>")) return "gemma";
  if (has("<|user|>") && has("<|assistant|>")) {
    if (has("<|end|>")) return "phi3";
    return has("eos_token") ? "zephyr" : nullptr;
  }
  // Its roles are not written out, and its answers begin on the same line.
  if (has("'<|assistant|>'") && has("<|end|>")) return "phi4-mini";
  if (has("'User: ' + message['content']") && has("'Assistant: ' + message['content'] + eos_token")) return "deepseek2";
  if (has("USER: ") && has("ASSISTANT:")) {
    if (has("SYSTEM: ")) return nullptr;
    return has("+ '\\n'") || has("+ '\n'") ? "vicuna-newline" : "vicuna";
  }
  return nullptr;
}

}  // namespace

Result<ChatTemplate> ChatTemplate::FromName(std::string_view name, std::string bos, std::string eos) {
  const bool is_smollm2 = name == "smollm2";
  if (name == "mistral") name = "mistral-v3";
  const ChatFormat* format = FindFormat(is_smollm2 ? "chatml" : name);
  if (!format) {
    return InvalidArgument("--chat-template '{}' is not known; accepted: {}", name.substr(0, 64), Names());
  }
  ChatTemplate out(format, std::move(bos), std::move(eos));
  if (is_smollm2) out.default_system_ = kSmolLm2System;
  if (out.name() == "vicuna") out.default_system_ = kVicunaSystem;
  if (out.name() == "deepseek") out.default_system_ = kDeepSeekCoderSystem;
  WEIR_RETURN_IF_ERROR(out.SplitTurns());
  return out;
}

Result<ChatTemplate> ChatTemplate::Detect(std::string_view jinja, ChatWords words, std::string_view arguments) {
  const char* name = DetectName(jinja);
  auto known = FromName(name == nullptr ? "none" : name, words.bos, words.eos);
  auto program = ChatProgram::Make(jinja, std::move(words), arguments);
  if (!program.ok() && (name == nullptr || !arguments.empty())) {
    if (!arguments.empty()) return program.status();
    return Unsupported("{}; choose another template with --chat-template: {}", program.status().message(), Names());
  }
  WEIR_RETURN_IF_ERROR(known.status());
  ChatTemplate out = *std::move(known);
  if (out.name() == "chatml") out.default_system_ = ChatMlDefault(jinja);
  if (!program.ok()) return out;
  out.program_ = std::make_shared<const ChatProgram>(*std::move(program));
  // Its pictures are parts of a message's content for the program, and marks in a text here.
  const bool is_smolvlm = name != nullptr && out.name() == "smolvlm";
  if (name == nullptr || !arguments.empty() || (!is_smolvlm && !out.SameAsProgram())) {
    out.format_ = nullptr;
    out.default_system_.clear();
  }
  return out;
}

bool ChatTemplate::SameAsProgram() const {
  const ChatMessage system = {"system", "Be brief."}, one = {"user", " One? "}, answer = {"assistant", "Yes.\n"},
                    thought = {"assistant", "<think>\nIt is.\n</think>\n\nYes."}, two = {"user", "Two?"};
  for (const std::vector<ChatMessage>& messages : {std::vector<ChatMessage>{one},
                                                   {system, one},
                                                   {one, answer, two},
                                                   {system, one, answer, two},
                                                   {one, thought, two}}) {
    for (const bool generation : {true, false}) {
      const auto run = program_->Render(messages, generation);
      const auto native = Render(messages, generation);
      if (run.ok() && (!native.ok() || JoinPieces(*run) != JoinPieces(*native))) return false;
    }
  }
  return true;
}

Result<ChatTemplate> ChatTemplate::ForFile(const GgufFile& file, const Tokenizer& tokenizer, std::string_view name,
                                           std::string_view arguments) {
  const auto text = [&](int32_t id) { return id >= 0 ? tokenizer.TokenText(id) : std::string(); };
  const std::string bos = text(tokenizer.bos_id()), eos = text(tokenizer.eos_id());
  const bool is_program = IsChatProgram(name);
  if (!name.empty() && !is_program) {
    if (!arguments.empty())
      return InvalidArgument("--chat-template-kwargs needs a template that is run, not the name '{}'",
                             name.substr(0, 64));
    return FromName(name, bos, eos);
  }
  std::string jinja(name);
  if (!is_program) {
    WEIR_ASSIGN_OR_RETURN(jinja, file.StringOr("tokenizer.chat_template", ""));
  }
  if (jinja.empty()) {
    return NotFound("{} has no chat template; choose one with --chat-template: {}", file.path(), Names());
  }
  ChatWords words{bos, eos, {}};
  for (const int32_t id : tokenizer.end_of_generation_ids()) words.ends.push_back(text(id));
  return Detect(jinja, std::move(words), arguments);
}

Status ChatTemplate::SplitTurns() {
  constexpr std::string_view kContent = "text";
  for (int turn = 0; turn < kNumTurns; ++turn) {
    ChatRounds rounds(*this);
    if (turn == kOpened) (void)rounds.System("system");
    if (turn == kLater) (void)rounds.User(kContent);
    WEIR_ASSIGN_OR_RETURN(turns_[static_cast<size_t>(turn)], SplitAtContent(rounds.User(kContent), kContent));
  }
  return Status();
}

std::string_view ChatTemplate::name() const {
  if (format_ == nullptr) return "jinja";
  return default_system_ == kSmolLm2System ? "smollm2" : format_->name;
}

bool ChatTemplate::includes_bos() const {
  if (bos_.empty()) return false;
  if (format_ == nullptr) {
    const std::vector<TextPiece> system = program_->System(std::nullopt);
    const std::vector<TextPiece>& first = system.empty() ? program_->first().before : system;
    return !first.empty() && first[0].parse_special && first[0].text.starts_with(bos_);
  }
  return std::string_view(format_->start) == "{bos}";
}

Result<std::vector<TextPiece>> ChatTemplate::Render(const std::vector<ChatMessage>& messages,
                                                    bool add_generation_prompt, const ChatArguments& arguments) const {
  if (messages.empty()) return InvalidArgument("a conversation needs at least one message");
  const bool has_more =
      std::any_of(messages.begin(), messages.end(), [](const ChatMessage& m) { return !m.more.empty(); });
  if (format_ == nullptr || has_more || !arguments.empty()) {
    if (program_ == nullptr) {
      return InvalidArgument("chat template '{}' takes no tools and no arguments: only a template that is run does",
                             name());
    }
    return program_->Render(messages, add_generation_prompt, arguments);
  }
  const ChatFormat& f = *format_;
  Writer out(bos_, eos_);
  out.Template(f.start);
  const bool has_system = messages[0].role == "system";
  const bool always_system = std::string_view(f.name) == "llama3.1";
  if (f.system_place == kBlock) {
    if (has_system) {
      WriteSystem(f, messages[0].content, &out);
    } else if (!default_system_.empty() || always_system) {
      WriteSystem(f, default_system_, &out);
    }
  }
  size_t last_user = messages.size();
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == "user") last_user = i;
  }
  if (has_system && f.system_place != kBlock && last_user == messages.size()) {
    return InvalidArgument("chat template '{}' puts the system text into a user message, and there is none", f.name);
  }
  bool first_user = true;
  for (size_t i = has_system; i < messages.size(); ++i) {
    const std::string &role = messages[i].role, &content = messages[i].content;
    if (f.must_alternate && (role == "user") != ((i - has_system) % 2 == 0)) {
      return InvalidArgument("chat template '{}' needs user and assistant messages in turn; message {} is '{}'", f.name,
                             i, role.substr(0, 32));
    }
    if (role == "user") {
      const bool with_system = has_system && ((f.system_place == kFirstUser && first_user) ||
                                              (f.system_place == kLastUser && i + 1 == messages.size()));
      out.Template(UserOpening(f, first_user, content));
      if (with_system) WriteSystem(f, messages[0].content, &out);
      // Llama 2 trims system block and message as one, so the message keeps its leading space.
      const bool is_llama2 = std::string_view(f.name) == "llama2";
      out.Content(content, (f.trim & kTrimUser) && !(with_system && is_llama2), f.trim & kTrimUser);
      out.Template(f.user_close);
      first_user = false;
    } else if (role == "assistant") {
      out.Template(f.answer_open);
      const bool drops_thoughts = std::string_view(f.name).starts_with("deepseek-r1");
      out.Content(drops_thoughts ? AfterThoughts(content) : content, f.trim & kTrimAssistant, f.trim & kTrimAssistant);
      out.Template(f.answer_before_end);
      out.Template(f.answer_end);
      out.Template(f.answer_after_end);
    } else if (role == "system" && f.system_place == kBlock && !always_system) {
      WriteSystem(f, content, &out);
    } else if (f.any_role) {
      out.Template("<|im_start|>");
      out.Content(role, false, false);
      out.Template("\n");
      out.Content(content, false, false);
      out.Template(f.user_close);
    } else {
      return InvalidArgument("chat template '{}' has no role '{}'", f.name, role.substr(0, 32));
    }
  }
  if (add_generation_prompt) {
    out.Template(f.generation);
  } else {
    out.Template(f.unfinished);
  }
  return out.Take();
}

std::vector<TextPiece> ChatRounds::System(const std::optional<std::string>& system) {
  if (chat_.format_ == nullptr) {
    user_open_ = system.has_value();
    return chat_.program_->System(system);
  }
  const ChatFormat& f = *chat_.format_;
  Writer out(chat_.bos_, chat_.eos_);
  out.Template(f.start);
  if (f.system_place == kBlock) {
    if (system || !chat_.default_system_.empty() || std::string_view(f.name) == "llama3.1") {
      WriteSystem(f, system.value_or(chat_.default_system_), &out);
    }
  } else if (system) {
    out.Template(f.user_first);
    WriteSystem(f, *system, &out);
    user_open_ = true;
  }
  return out.Take();
}

std::vector<TextPiece> ChatRounds::User(std::string_view content) {
  if (chat_.format_ == nullptr) {
    AroundContent turn = Turn();
    if (!content.empty()) turn.before.push_back({std::string(content), false});
    turn.before.insert(turn.before.end(), turn.after.begin(), turn.after.end());
    return turn.before;
  }
  const ChatFormat& f = *chat_.format_;
  Writer out(chat_.bos_, chat_.eos_);
  if (!user_open_) out.Template(UserOpening(f, first_user_, content));
  const bool trim = f.trim & kTrimUser;
  out.Content(content, trim && !(user_open_ && std::string_view(f.name) == "llama2"), trim);
  out.Template(f.user_close);
  out.Template(f.generation);
  first_user_ = user_open_ = false;
  return out.Take();
}

AroundContent ChatRounds::Turn() {
  const ChatTemplate::Turn turn = user_open_    ? ChatTemplate::kOpened
                                  : first_user_ ? ChatTemplate::kFirst
                                                : ChatTemplate::kLater;
  first_user_ = user_open_ = false;
  if (chat_.format_ == nullptr) {
    const ChatProgram& program = *chat_.program_;
    return turn == ChatTemplate::kFirst    ? program.first()
           : turn == ChatTemplate::kOpened ? program.opened()
                                           : program.later();
  }
  return chat_.turns_[turn];
}

std::vector<TextPiece> ChatRounds::EndAnswer(bool end_token_read) {
  if (chat_.format_ == nullptr) return chat_.program_->EndAnswer(end_token_read);
  const ChatFormat& f = *chat_.format_;
  Writer out(chat_.bos_, chat_.eos_);
  if (!end_token_read) {
    out.Template(f.answer_before_end);
    out.Template(f.answer_end);
  }
  out.Template(f.answer_after_end);
  return out.Take();
}

}  // namespace weir
