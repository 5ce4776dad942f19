// SPDX-License-Identifier: Apache-2.0
// Chat templates: rounds of a conversation -> the text a model was trained to read.
//
// Model files carry their template as a Jinja program. A known one is recognised by its markers and rendered natively,
// with the same output: both are compared on samples as the file is loaded, and where they differ, and for every other
// template, the program is run (text/chat_program.h). So it is where a request brings what the native form has no place
// for: tools, arguments, further fields of messages.
//
// A rendering is a list of pieces (text/tokenizer.h): the template's own words, in which control tokens are recognised,
// and the messages, in which they are not. A user who writes "<|im_end|>" writes eleven characters.
//
// Formats: model cards and tokenizer_config.json of HuggingFaceTB/SmolLM2, Qwen2 and 2.5 (ChatML), meta-llama Llama-2
// and Llama-3.x, mistralai (v1, v3, v7, with and without Tekken), google/gemma, microsoft/Phi-3.5, Phi-4 and
// Phi-4-mini, HuggingFaceTB/SmolVLM, HuggingFaceH4/zephyr, lmsys/FastChat (Vicuna), deepseek-ai (Coder; LLM and V2;
// V2.5 and V3; R1 with its distilled models).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/gguf.h"
#include "text/chat_program.h"
#include "text/tokenizer.h"

namespace weir {

// Marks a picture in a message; the word is llama.cpp's. Callers that read pictures split the rendering there.
inline constexpr const char* kPictureMark = "<__media__>";

struct ChatFormat;  // one row of the table in chat_template.cc

class ChatTemplate {
 public:
  // By name. kInvalidArgument lists the names: chatml, smollm2, llama2, llama3, llama3.1, vicuna, vicuna-newline,
  // mistral (= mistral-v3), mistral-v1, mistral-v2, mistral-v3-tekken, mistral-v7, mistral-v7-tekken, zephyr, gemma,
  // phi3, phi4, phi4-mini, deepseek, deepseek2, deepseek3, deepseek-r1, deepseek-r1-0528, smolvlm, none. `bos` and
  // `eos` are the texts of those tokens in the model's vocabulary; may be empty.
  static Result<ChatTemplate> FromName(std::string_view name, std::string bos, std::string eos);
  // By a Jinja program, recognised or run; always run with `arguments`, a JSON object. kUnsupported (with arguments
  // kInvalidArgument) when it is neither known nor a program that shows what a user says.
  static Result<ChatTemplate> Detect(std::string_view jinja, ChatWords words, std::string_view arguments = {});
  static Result<ChatTemplate> Detect(std::string_view jinja, std::string bos, std::string eos) {
    std::vector<std::string> ends = {eos};
    return Detect(jinja, ChatWords{std::move(bos), std::move(eos), std::move(ends)});
  }
  // By --chat-template if given, a name or a program's text, else by the file's `tokenizer.chat_template`. kNotFound
  // when there is neither.
  static Result<ChatTemplate> ForFile(const GgufFile& file, const Tokenizer& tokenizer,
                                      std::string_view name_or_program, std::string_view arguments = {});

  // "jinja" for a program that is run.
  std::string_view name() const;
  // Whether Render() can be given tools, arguments and further fields: there is a program.
  bool has_program() const { return program_ != nullptr; }
  // Whether the program reads that name; false without one.
  bool Reads(std::string_view name) const { return program_ != nullptr && program_->Reads(name); }
  // The rendering begins with the BOS token, so encode it with add_special off: there must not be two.
  bool includes_bos() const;
  // The default system message of a conversation without one; empty for most formats.
  const std::string& default_system() const { return default_system_; }

  // The whole conversation. With `add_generation_prompt` the text ends where the model's answer begins.
  // kInvalidArgument: a role the format does not have, or rounds that do not alternate where the format demands it.
  // With arguments or further fields of a message, the program renders it: kInvalidArgument if there is none, and
  // whatever it refuses.
  Result<std::vector<TextPiece>> Render(const std::vector<ChatMessage>& messages, bool add_generation_prompt,
                                        const ChatArguments& arguments = {}) const;

 private:
  friend class ChatRounds;
  ChatTemplate(const ChatFormat* format, std::string bos, std::string eos)
      : format_(format), bos_(std::move(bos)), eos_(std::move(eos)) {}
  // Fills in turns_. kInternal when the format loses a turn's content.
  Status SplitTurns();
  // Whether both give the same text for some samples; what the program refuses is not compared.
  bool SameAsProgram() const;
  const ChatFormat* format_;                    // nullptr: the program is always run
  std::shared_ptr<const ChatProgram> program_;  // nullptr: there is none
  std::string bos_, eos_;
  std::string default_system_;
  // The first user turn, the first one after a system text that already opened it, and any later one.
  enum Turn { kFirst, kOpened, kLater, kNumTurns };
  std::array<AroundContent, kNumTurns> turns_;
};

// The same conversation as a stream: each call returns only the next text, so that a session can append it without
// reading earlier rounds again. The result of System() is the part worth pinning.
//
// System(s), User(u1), answer a1, EndAnswer(false), User(u2) ... joined are Render() of the same messages, with two
// exceptions where a template rewrites text that a stream has already read: mistral-v3 moves a system text to the last
// user message, here it stays with the first; deepseek-r1 drops the reasoning of earlier answers, here it stays. The
// same holds for programs that are run: what a stream has read stays.
class ChatRounds {
 public:
  explicit ChatRounds(const ChatTemplate& chat) : chat_(chat) {}

  // Once, before the first User(). nullopt: no system message, so the format's default is used, if it has one.
  std::vector<TextPiece> System(const std::optional<std::string>& system);
  // A user's turn, up to where the answer begins.
  std::vector<TextPiece> User(std::string_view content);
  // The same without its content: the texts before it and after it.
  AroundContent Turn();
  // The text between an answer and the next turn. `end_token_read`: the model's own end token is already part of the
  // session, so it is omitted here.
  std::vector<TextPiece> EndAnswer(bool end_token_read);

 private:
  ChatTemplate chat_;
  bool first_user_ = true;
  bool user_open_ = false;  // System() has already begun the first user turn
};

}  // namespace weir
