// weir-plugin: command
// SPDX-License-Identifier: Apache-2.0
// weir run: one prompt, one answer.
#include <cstdio>
#include <memory>
#include <optional>

#include "answer.h"
#include "base/clock.h"
#include "chat/talk.h"
#include "commands/command.h"
#include "io/json.h"
#include "print.h"
#include "progress.h"
#include "saved.h"

namespace weir::app {
namespace {

constexpr int64_t kLargestPrompt = int64_t{1} << 30;

struct RunFlags {
  std::string prompt, file, system, session;
  ThoughtFlags thoughts;
  bool chat = false, own_seed = false, parse_special = false;
};

// The prompt as tokens, and which of them are pinned.
struct Prompt {
  std::vector<int32_t> tokens;
  std::vector<std::vector<int32_t>> behind;  // the words after each picture or video, in order
  PinnedPart pinned;
  std::optional<ChatTemplate> chat;
  std::optional<Conversation> talk;  // refers to `chat`; after a first prompt, before a next one
};

// For a new session.
Status FirstPrompt(const Tokenizer& tokenizer, const PinFlags& pins, const RunFlags& flags, const std::string& pin,
                   const std::string& text, size_t n_sources, Prompt* out) {
  EncodeReport report;
  std::vector<TextPiece> pieces;
  std::vector<int32_t> system, head;
  const std::string head_text = pin.empty() ? "" : pin + "\n\n";
  bool add_special = true;
  if (out->chat) {
    std::vector<ChatMessage> messages;
    if (!flags.system.empty()) messages.push_back({"system", flags.system});
    messages.push_back({"user", head_text + text});
    WEIR_ASSIGN_OR_RETURN(pieces, out->chat->Render(messages, true));
    std::optional<std::string> system_text;
    if (!flags.system.empty()) system_text = flags.system;
    add_special = !out->chat->includes_bos();
    out->talk.emplace(tokenizer, &*out->chat);
    out->talk->SetSystem(system_text);
    head = out->talk->TurnHead(head_text);
    system = out->talk->Begin(system_text);
    out->talk->Asked();
  } else {
    pieces.push_back({head_text + text, false});
    system = tokenizer.EncodePieces({}, add_special);
    head = tokenizer.EncodePieces(std::vector<TextPiece>{{head_text, flags.parse_special}}, add_special);
  }
  std::vector<std::vector<TextPiece>> parts = {pieces};
  if (n_sources > 0) parts = SplitAtMarks(pieces);
  if (parts.size() != n_sources + 1) return Internal("the chat template lost the place of a picture");
  for (std::vector<TextPiece>& part : parts) {
    for (TextPiece& piece : part) piece.parse_special |= flags.parse_special;
  }
  out->tokens = tokenizer.EncodePieces(parts[0], add_special, &report);
  for (size_t i = 1; i < parts.size(); ++i) out->behind.push_back(tokenizer.EncodePieces(parts[i], false, &report));
  if (add_special && tokenizer.add_eos() && n_sources > 0 && !out->tokens.empty()) {
    // The end of the text is the end of its last part.
    out->tokens.pop_back();
    out->behind.back().push_back(tokenizer.eos_id());
  }
  PrintReport(report, "the prompt");
  if (out->tokens.empty() && n_sources == 0) return InvalidArgument("the prompt contains no token this model knows");
  out->pinned = FindPins(pins, system, !flags.system.empty(), head, out->tokens);
  return Status();
}

// For a continued session. A conversation asks once the session is loaded.
Status NextPrompt(const Tokenizer& tokenizer, const SavedSession& saved, const RunFlags& flags, const std::string& text,
                  Prompt* out) {
  EncodeReport report;
  if (saved.note.conversation.is_null() == out->chat.has_value()) {
    return InvalidArgument("{} is a session of {}; continue it {} --chat", flags.session,
                           out->chat ? "plain text" : "a conversation", out->chat ? "without" : "with");
  }
  if (out->chat) {
    WEIR_ASSIGN_OR_RETURN(out->talk, Conversation::Restore(tokenizer, &*out->chat, saved.note.conversation));
    return Status();
  }
  out->tokens = tokenizer.EncodePieces(std::vector<TextPiece>{{text, flags.parse_special}}, false, &report);
  PrintReport(report, "the prompt");
  if (out->tokens.empty()) return InvalidArgument("the prompt contains no token this model knows");
  return Status();
}

// Reads words and pictures in order. A picture at the very end ends the prompt.
Status ReadWithPictures(const Setup& setup, const Prompt& prompt, const PictureFlags& pictures, Progress* progress,
                        Session::AppendOptions options) {
  Session& session = *setup.session;
  int64_t n_before = 0;
  options.progress = [&](int64_t done) { progress->Update(n_before + done, session); };
  options.end_of_prompt = false;
  WEIR_RETURN_IF_ERROR(AppendPinned(session, prompt.tokens, prompt.pinned, options));
  for (size_t i = 0; i < prompt.behind.size(); ++i) {
    const bool last = i + 1 == prompt.behind.size();
    n_before = session.counters().seen;
    options.end_of_prompt = last && prompt.behind[i].empty();
    WEIR_RETURN_IF_ERROR(ReadSource(*setup.reader, pictures, i, options));
    n_before = session.counters().seen;
    options.end_of_prompt = last;
    WEIR_RETURN_IF_ERROR(session.Append(prompt.behind[i], options));
  }
  return Status();
}

// A later round is read as in `chat`, so that the same tokens are evicted at the same points.
Status ReadRound(const Setup& setup, Sampler& sampler, Conversation* conversation, const std::string& text,
                 int64_t n_answer, const Session::AppendOptions& options, Recalled* recalled) {
  Talk talk(*setup.session, sampler, *conversation);
  TalkReading reading;
  reading.stop = options.stop;
  reading.progress = options.progress;
  EncodeReport report;
  WEIR_RETURN_IF_ERROR(talk.OpenTurn());
  // Frames that the session kept on a server before it was loaded here.
  if (setup.reader != nullptr) WEIR_RETURN_IF_ERROR(setup.reader->Recall({}));
  if (setup.recall != nullptr) talk.SetRecaller(&setup.recall->recaller());
  WEIR_RETURN_IF_ERROR(talk.Ask(text, n_answer, reading, &report));
  PrintReport(report, "the prompt");
  if (setup.recall != nullptr) PrintRecalled(*recalled = talk.recalled(), setup.session->n_seen());
  *conversation = talk.conversation();
  return Status();
}

Status Run(const CLI::App& sub, ModelFlags& model_flags, PotFlags& pot_flags, AnswerFlags& answer, const PinFlags& pins,
           PictureFlags& pictures, const RunFlags& flags) {
  std::string text = flags.prompt;
  if (!flags.file.empty()) {
    WEIR_ASSIGN_OR_RETURN(text, ReadTextFile(flags.file, kLargestPrompt));
  }
  if (text.empty()) return InvalidArgument("the prompt is empty; give one with -p TEXT or -f FILE");
  const size_t n_sources = pictures.images.size() + pictures.videos.size();
  if (n_sources > 0) {
    WEIR_ASSIGN_OR_RETURN(text, MarkPictures(text, n_sources));
  }
  std::optional<SavedSession> saved;
  if (!flags.session.empty()) {
    WEIR_ASSIGN_OR_RETURN(saved, ReadSaved(flags.session));
  }
  if (saved) {
    WEIR_RETURN_IF_ERROR(CheckGoesOn(sub, flags.session));
    if (n_sources > 0) {
      return InvalidArgument(
          "{} can only be continued with text; give the pictures when the session starts, or use `weir chat` and "
          "/image",
          flags.session);
    }
    Adopt(sub, saved->note, &pot_flags);
  }
  WEIR_ASSIGN_OR_RETURN(const std::string pin, PinText(pins));
  WEIR_ASSIGN_OR_RETURN(Sampler sampler, MakeSampler(&answer));
  WEIR_RETURN_IF_ERROR(AddFormRoom(answer, &pot_flags));
  WEIR_ASSIGN_OR_RETURN(const Setup setup,
                        MakeSetup(model_flags, pot_flags, SamplingText(answer),
                                  {.in_chat = flags.chat, .goes_on = saved.has_value()}, {&pictures}));
  const Tokenizer& tokenizer = setup.model->tokenizer();
  Session& session = *setup.session;
  Prompt prompt;
  if (flags.chat) {
    WEIR_ASSIGN_OR_RETURN(prompt.chat, ChatTemplate::ForFile(setup.model->file(), tokenizer, model_flags.chat_template,
                                                             model_flags.chat_arguments));
  }
  std::optional<ThoughtReading> reading;
  if (prompt.chat) reading.emplace(setup.model->file(), model_flags, *prompt.chat, tokenizer, flags.thoughts.where);
  const ThoughtReading* const thoughts_of = reading ? &*reading : nullptr;
  WEIR_RETURN_IF_ERROR(MakeAnswerForm(setup, &answer, thoughts_of));
  WEIR_RETURN_IF_ERROR(saved ? NextPrompt(tokenizer, *saved, flags, text, &prompt)
                             : FirstPrompt(tokenizer, pins, flags, pin, text, n_sources, &prompt));
  const std::vector<int32_t>& tokens = prompt.tokens;
  const PinnedPart& part = prompt.pinned;
  if (saved) WEIR_RETURN_IF_ERROR(RestoreSaved(*saved, flags.session, flags.own_seed, setup, &sampler));
  WEIR_RETURN_IF_ERROR(CheckPins(session, pot_flags, pins, part.end - part.begin, !flags.system.empty()));

  const auto start = Clock::now();
  Progress progress("read", Progress::kAuto);
  Session::AppendOptions append;
  append.stop = &StopFlag();
  append.end_of_prompt = true;
  append.progress = [&](int64_t done) { progress.Update(done, session); };
  const int64_t n_before = session.counters().seen;
  const bool next_round = saved && prompt.talk;
  Recalled recalled;
  WEIR_RETURN_IF_ERROR(next_round ? ReadRound(setup, sampler, &*prompt.talk, text, answer.n_predict, append, &recalled)
                       : n_sources > 0 ? ReadWithPictures(setup, prompt, pictures, &progress, append)
                                       : AppendPinned(session, tokens, part, append));
  const int64_t n_read = session.counters().seen - n_before;
  const double read_s = SecondsSince(start);
  progress.Done();
  for (int32_t id : tokens) sampler.Accept(id);
  for (const std::vector<int32_t>& more : prompt.behind) {
    for (int32_t id : more) sampler.Accept(id);
  }
  std::string thoughts;
  WEIR_ASSIGN_OR_RETURN(const GenerateResult result, Answer(session, sampler, tokenizer, answer,
                                                            answer.output == "text", 0, thoughts_of, &thoughts));
  WEIR_RETURN_IF_ERROR(session.TakeBackExcerpt());
  ToldOff told;
  if (setup.recall != nullptr) {
    setup.recall->Flush();
    PrintIfOff(*setup.recall, &told);
  }
  if (!flags.session.empty()) {
    if (prompt.talk) prompt.talk->Answered(result.end_token_read);
    WEIR_RETURN_IF_ERROR(WriteSaved(flags.session, setup, pot_flags, prompt.talk ? prompt.talk->Save() : Json(),
                                    sampler, saved ? &saved->note : nullptr));
  }
  WEIR_RETURN_IF_ERROR(FinishTrace(setup.trace.get(), session));
  if (answer.output == "json") {
    const double rate = static_cast<double>(n_read) / read_s;
    nlohmann::ordered_json json =
        AnswerJson(session, result, rate, read_s * 1000 + result.first_token_ms, setup.reader.get());
    if (!thoughts.empty()) json["thoughts"] = thoughts;
    if (setup.recall != nullptr) AddRecalled(recalled, &json);
    Print(stdout, "{}\n", JsonText(json));
  } else {
    Print(stdout, "\n");
    WEIR_RETURN_IF_ERROR(FlushOutput());  // before the figures on stderr
  }
  if (setup.recall != nullptr) EndRecall(*setup.recall, &told);
  Print(stderr, "speed    read {} tokens at {:.1f} tokens/s, wrote {} at {:.1f} tokens/s{}\n", n_read,
        static_cast<double>(n_read) / read_s, result.tokens.size(), result.tokens_per_s, GuessText(session));
  PrintMemoryLine(session, setup.reader.get());
  if (result.reason == StopReason::kStopped) return Cancelled("stopped; the answer so far is above");
  return CheckNotCut(result);
}

Action AddRun(CLI::App& sub) {
  auto model = std::make_shared<ModelFlags>();
  auto pot = std::make_shared<PotFlags>();
  auto answer = std::make_shared<AnswerFlags>();
  auto pins = std::make_shared<PinFlags>();
  auto pictures = std::make_shared<PictureFlags>();
  auto flags = std::make_shared<RunFlags>();
  answer->n_predict = 256;
  AddModelFlags(sub, model.get());
  CLI::Option* prompt = sub.add_option("-p,--prompt", flags->prompt, "the prompt");
  sub.add_option("-f,--file", flags->file, "read the prompt from FILE; - is standard input")
      ->excludes(prompt)
      ->type_name("FILE");
  CLI::Option* chat = sub.add_flag("--chat", flags->chat, "wrap the prompt in the model's chat template");
  sub.add_flag("--parse-special", flags->parse_special,
               "read \"<|im_start|>\" and the like in the prompt as control tokens, not as plain text; only for "
               "trusted texts")
      ->excludes(chat);
  sub.add_option("--system", flags->system, "system message")->needs(chat);
  AddChatFlags(sub, model.get(), chat);
  AddEncoderFlags(sub, pictures.get());
  AddPictureFlags(sub, pictures.get());
  AddPotFlags(sub, pot.get());
  AddGuessFlags(sub, &pot->guesses);
  AddRecallFlags(sub, &pot->recall);
  AddTraceFlag(sub, pot.get());
  AddVerboseFlag(sub, pot.get());
  AddPinFlags(sub, pins.get());
  AddAnswerFlags(sub, answer.get(), true);
  AddThoughtsFlag(sub, &flags->thoughts)->needs(chat);
  AddSessionFlag(sub, &flags->session);
  return [=, &sub] {
    InstallStopHandler();
    flags->own_seed = sub.get_option("--seed")->count() > 0;
    return Run(sub, *model, *pot, *answer, *pins, *pictures, *flags);
  };
}

}  // namespace

extern const CommandInfo kRun;
const CommandInfo kRun = {.name = "run",
                          .summary = "continue one prompt (or answer it as a chat turn, with --chat)",
                          .group = CommandGroup::kAnswer,
                          .add = AddRun};

}  // namespace weir::app
