// weir-plugin: command
// SPDX-License-Identifier: Apache-2.0
// weir read: a text of any length through one pot, then questions about it.
//
// The text is read as part of one user turn: template, text, question, template. It is tokenised while it is read, so
// neither the text nor its tokens are ever held whole.
#include <cstdio>
#include <memory>
#include <optional>

#include "answer.h"
#include "base/clock.h"
#include "chat/conversation.h"
#include "commands/command.h"
#include "io/json.h"
#include "print.h"
#include "progress.h"
#include "recall/file_recall.h"
#include "recall_flags.h"
#include "text/stream.h"

namespace weir::app {
namespace {

struct ReadFlags {
  std::string file, ask, system, progress = "auto";
  bool recall_given = false;
};

// Of a text that can be read again.
constexpr const char* kDefaultRecall = "words";

// The model's chat template. None if neither the file nor the user has one: the model then gets plain words.
Result<std::optional<ChatTemplate>> FindTemplate(const LoadedModel& model, const ModelFlags& flags) {
  auto chat = ChatTemplate::ForFile(model.file(), model.tokenizer(), flags.chat_template, flags.chat_arguments);
  if (chat.ok()) return std::optional<ChatTemplate>(*std::move(chat));
  if (chat.status().code() == StatusCode::kNotFound && flags.chat_template.empty()) {
    return std::optional<ChatTemplate>();
  }
  return chat.status();
}

Status Read(ModelFlags& model_flags, PotFlags& pot_flags, AnswerFlags& answer, const PinFlags& pins,
            const ReadFlags& flags) {
  WEIR_ASSIGN_OR_RETURN(TextSource source, TextSource::Open(flags.file));
  WEIR_ASSIGN_OR_RETURN(const std::string pin, PinText(pins));
  WEIR_ASSIGN_OR_RETURN(Sampler sampler, MakeSampler(&answer));
  // A file that stays is its own archive: nothing of it is written anywhere. It has no keys, though.
  WEIR_ASSIGN_OR_RETURN(const RecallSpec recall, ParseRecallSpec(pot_flags.recall.spec));
  const bool is_file = flags.file != "-" && source.total_bytes() >= 0;
  const bool stays = is_file && pot_flags.recall.dir.empty() && !recall.needs_vectors();
  if (pot_flags.recall.spec == kDefaultRecall && !flags.recall_given && !stays) pot_flags.recall.spec = "off";
  WEIR_RETURN_IF_ERROR(AddFormRoom(answer, &pot_flags));
  WEIR_ASSIGN_OR_RETURN(const Setup setup,
                        MakeSetup(model_flags, pot_flags, SamplingText(answer), {true, flags.ask, !stays}));
  WEIR_RETURN_IF_ERROR(MakeAnswerForm(setup, &answer));
  const Tokenizer& tokenizer = setup.model->tokenizer();
  Session& session = *setup.session;
  std::unique_ptr<FileRecall> of_file;
  if (recall.info != nullptr && stays) {
    WEIR_ASSIGN_OR_RETURN(of_file, FileRecall::Make(flags.file, recall, tokenizer, session));
  }
  FileBlocks* const file = of_file == nullptr ? nullptr : &of_file->file();
  Recaller* const recaller = setup.recall != nullptr ? &setup.recall->recaller()
                             : of_file != nullptr    ? &of_file->recaller()
                                                     : nullptr;
  WEIR_ASSIGN_OR_RETURN(const std::optional<ChatTemplate> chat, FindTemplate(*setup.model, model_flags));
  std::optional<std::string> system;
  if (!flags.system.empty()) system = flags.system;
  Conversation talk(tokenizer, chat ? &*chat : nullptr);
  const std::vector<int32_t> system_tokens = Conversation(talk).Begin(system);
  talk.SetSystem(system);

  const auto start = Clock::now();
  Progress progress("read", flags.progress == "lines" ? Progress::kLines
                            : flags.progress == "off" ? Progress::kOff
                                                      : Progress::kAuto);
  int64_t n_read = 0;
  Session::AppendOptions append;
  append.stop = &StopFlag();
  append.progress = [&](int64_t done) { progress.Update(n_read + done, session); };
  const auto push = [&](const std::vector<int32_t>& tokens) -> Status {
    WEIR_RETURN_IF_ERROR(session.Append(tokens, append));
    n_read += static_cast<int64_t>(tokens.size());
    return Status();
  };
  EncodeReport before_report;
  std::vector<int32_t> tokens = talk.TurnHead(pin.empty() ? "" : pin + "\n\n", &before_report);
  PrintReport(before_report, "the system message");
  const bool has_system = !flags.system.empty();
  const PinnedPart part = FindPins(pins, system_tokens, has_system, tokens, tokens);
  WEIR_RETURN_IF_ERROR(CheckPins(session, pot_flags, pins, part.end - part.begin, has_system));
  progress.SetTotal(source.total_bytes(), std::ssize(tokens));
  Status status = AppendPinned(session, tokens, part, append);
  talk.TurnOpened();
  talk.TextRead();
  n_read = static_cast<int64_t>(tokens.size());
  EncodeOptions text_options;
  text_options.add_special = false;
  StreamEncoder encoder(tokenizer, text_options);
  if (file != nullptr) file->ReadTo(0, session.n_seen());
  std::string piece;
  int64_t n_bytes = 0;
  for (bool more = true; more && status.ok();) {
    const Result<bool> got = source.Read(&piece);
    if (!got.ok()) {
      status = got.status();
      break;
    }
    more = *got;
    const int64_t n_bytes_before = n_bytes - encoder.pending_bytes();
    const int64_t n_seen_before = session.n_seen();
    n_bytes += static_cast<int64_t>(piece.size());
    tokens.clear();
    encoder.Push(piece, &tokens);
    if (!more) encoder.Finish(&tokens);
    progress.NextPiece(std::ssize(piece), std::ssize(tokens));
    status = push(tokens);
    if (file != nullptr) {
      // Of a piece that was stopped, a share that is estimated.
      int64_t n_more = n_bytes - encoder.pending_bytes() - n_bytes_before;
      if (!status.ok()) n_more = n_more * (session.n_seen() - n_seen_before) / std::ssize(tokens);
      file->ReadTo(n_bytes_before + n_more, session.n_seen());
    }
  }
  const bool stopped = status.code() == StatusCode::kCancelled;
  if (!status.ok() && !stopped) return status;
  progress.Done();
  EncodeReport report = encoder.report();
  PrintReport(report, flags.file == "-" ? "standard input" : flags.file);
  if (stopped && n_bytes == 0) return status;
  if (n_bytes == 0) return InvalidArgument("{} contains no text", flags.file);
  const double read_s = SecondsSince(start);
  const int64_t n_text = session.counters().seen;
  if (stopped) {
    ClearStop();
    Print(stderr, "weir: stopped reading after {} tokens; answering from what was read (press Ctrl-C again to quit)\n",
          CountText(n_text));
  }

  const auto asked = Clock::now();
  append.progress = nullptr;
  report = {};
  Recalled recalled;
  if (recaller != nullptr) {
    WEIR_ASSIGN_OR_RETURN(recalled, recaller->TryToBring(session, flags.ask, 0));
    PrintRecalled(recalled, n_text);
  }
  tokens = talk.Ask(flags.ask, &report).tokens;
  PrintReport(report, "the question");
  append.end_of_prompt = true;
  WEIR_RETURN_IF_ERROR(session.BeginRound(tokens, answer.n_predict));
  WEIR_RETURN_IF_ERROR(session.Append(tokens, append));
  WEIR_ASSIGN_OR_RETURN(const GenerateResult result,
                        Answer(session, sampler, tokenizer, answer, answer.output == "text"));
  const double ttft_ms = result.first_token_ms + MillisecondsSince(asked);
  WEIR_RETURN_IF_ERROR(session.TakeBackExcerpt());
  if (setup.recall != nullptr) {
    ToldOff told;
    EndRecall(*setup.recall, &told);
  }
  WEIR_RETURN_IF_ERROR(FinishTrace(setup.trace.get(), session));
  const double rate = static_cast<double>(n_text) / read_s;
  if (answer.output == "json") {
    nlohmann::ordered_json json = AnswerJson(session, result, rate, ttft_ms);
    if (recaller != nullptr) AddRecalled(recalled, &json);
    Print(stdout, "{}\n", JsonText(json));
  } else {
    Print(stdout, "\n");
    WEIR_RETURN_IF_ERROR(FlushOutput());  // before the figures on stderr
  }
  Print(stderr, "speed    read {} tokens at {:.1f} tokens/s, wrote {} at {:.1f} tokens/s{}\n", CountText(n_text), rate,
        result.tokens.size(), result.tokens_per_s, GuessText(session));
  PrintMemoryLine(session);
  if (stopped || result.reason == StopReason::kStopped)
    return Cancelled("stopped; the answer {}", stopped ? "is from what was read by then" : "so far is above");
  return CheckNotCut(result);
}

Action AddRead(CLI::App& sub) {
  auto model = std::make_shared<ModelFlags>();
  auto pot = std::make_shared<PotFlags>();
  auto answer = std::make_shared<AnswerFlags>();
  auto pins = std::make_shared<PinFlags>();
  auto flags = std::make_shared<ReadFlags>();
  answer->n_predict = 256;
  AddModelFlags(sub, model.get());
  sub.add_option("file,-f,--file", flags->file, "text file to read, with or without -f; - is standard input")
      ->required()
      ->type_name("FILE");
  sub.add_option("--ask", flags->ask, "question to answer after reading")
      ->required()
      ->check(NotEmpty())
      ->type_name("TEXT");
  sub.add_option("--system", flags->system, "system message");
  AddChatFlags(sub, model.get());
  sub.add_option("--progress", flags->progress,
                 "auto: a progress line on a terminal; lines: a plain line every 3 seconds; off")
      ->check(CLI::IsMember({"auto", "lines", "off"}));
  AddPotFlags(sub, pot.get());
  AddGuessFlags(sub, &pot->guesses);
  pot->recall.spec = kDefaultRecall;
  AddRecallFlags(sub, &pot->recall);
  AddTraceFlag(sub, pot.get());
  AddVerboseFlag(sub, pot.get());
  AddPinFlags(sub, pins.get());
  AddAnswerFlags(sub, answer.get(), true);
  return [=, &sub] {
    flags->recall_given = sub.get_option("--recall")->count() > 0;
    InstallStopHandler();
    return Read(*model, *pot, *answer, *pins, *flags);
  };
}

}  // namespace

extern const CommandInfo kRead;
const CommandInfo kRead = {.name = "read",
                           .summary = "read a text of any length through a fixed pot, then answer a question about it",
                           .group = CommandGroup::kAnswer,
                           .add = AddRead};

}  // namespace weir::app
