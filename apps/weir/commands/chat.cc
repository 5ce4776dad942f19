// weir-plugin: command
// SPDX-License-Identifier: Apache-2.0
// weir chat: rounds in a terminal, one endless session.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "answer.h"
#include "chat/talk.h"
#include "commands/command.h"
#include "line_input.h"
#include "print.h"
#include "progress.h"
#include "saved.h"
#include "text/stream.h"

namespace weir::app {
namespace {

struct ChatFlags {
  std::string system, session;
  ThoughtFlags thoughts;
  bool own_seed = false;
};

void PrintHelp() {
  Print(stderr,
        "  /file PATH   read a text file into the conversation; it may be longer than the pot\n"
        "  /image PATH  look at a picture (with --mmproj); the next message is about it\n"
        "  /video PATH  look at a video, --fps frames a second; it may be longer than the pot\n"
        "  /memory      show what is held and what was dropped\n"
        "  /save FILE   save the session to a file, to continue it later\n"
        "  /load FILE   continue a saved session; the current one is forgotten\n"
        "  /reset       forget the conversation\n"
        "  /help        show this list\n"
        "  /exit        quit (or Ctrl-D); Ctrl-C stops an answer, or a message or file that is being read\n"
        "The up arrow recalls earlier lines, and Tab completes commands and names of files; lines pasted together are "
        "one "
        "message.\n");
}

class Chat {
 public:
  Chat(const Setup& setup, Sampler sampler, const ChatTemplate& chat, const ThoughtReading& reading,
       const AnswerFlags& answer, const PotFlags& pot, const PinFlags& pins, std::string pin,
       const PictureFlags& pictures, const ChatFlags& flags)
      : setup_(setup),
        session_(*setup.session),
        trace_(setup.trace.get()),
        tokenizer_(setup.model->tokenizer()),
        sampler_(std::move(sampler)),
        chat_(chat),
        reading_(reading),
        talk_(session_, sampler_, Conversation(tokenizer_, &chat_)),
        answer_(answer),
        pot_(pot),
        pins_(pins),
        pin_(std::move(pin)),
        reader_(setup.reader.get()),
        pictures_(pictures),
        flags_(flags) {
    if (setup.recall != nullptr) talk_.SetRecaller(&setup.recall->recaller());
  }

  // `saved`: the session to continue; nullptr to start a new one.
  Status Run(SavedSession* saved) {
    const Status ended = Loop(saved);
    if (setup_.recall != nullptr) EndRecall(*setup_.recall, &told_off_);
    return ended;
  }

 private:
  Status Loop(SavedSession* saved) {
    LineInput input;
    input.SetCommands({"/exit", "/file ", "/help", "/image ", "/load ", "/memory", "/reset", "/save ", "/video "});
    terminal_ = input.terminal();
    if (terminal_) Print(stderr, "Type a message; /help lists the commands.\n");
    WEIR_RETURN_IF_ERROR(saved == nullptr ? Begin() : GoOnFrom(*saved, flags_.session, flags_.own_seed));
    bool told_how_to_end = false;
    Status unread;
    for (std::string line;;) {
      if (input.terminal()) Print(stderr, "\n");
      ClearStop();
      const LineInput::Event event = input.Read("> ", &line);
      if (event == LineInput::Event::kEnd) {
        unread = input.status();
        break;
      }
      if (event == LineInput::Event::kInterrupted) {
        // On a terminal Ctrl-C drops the line. On an empty line it may be a second press to stop an answer.
        if (!input.terminal() || (line.empty() && told_how_to_end)) return Cancelled("stopped");
        if (line.empty()) Print(stderr, "Ctrl-D or /exit ends the chat, and so does another Ctrl-C.\n");
        told_how_to_end = line.empty();
        continue;
      }
      told_how_to_end = false;
      if (line.empty()) continue;
      if (line == "/exit") break;
      Status status;
      if (line == "/help") {
        PrintHelp();
      } else if (line == "/memory") {
        PrintMemoryLine(session_, reader_);
      } else if (line == "/reset") {
        session_.Reset();
        if (reader_ != nullptr) reader_->frames().Forget();
        sampler_.Reset();
        talk_.conversation() = Conversation(tokenizer_, &chat_);
        before_.reset();
        if (setup_.recall != nullptr) status = setup_.recall->CutTo({});  // what is forgotten is deleted, too
        if (status.ok() && trace_ != nullptr) status = trace_->Restarted();
        if (status.ok()) status = Begin();
      } else if (line.rfind("/save ", 0) == 0) {
        if (Tell(Save(FileOf(line)))) Print(stderr, "saved to {}\n", Printable(FileOf(line)));
      } else if (line.rfind("/load ", 0) == 0) {
        const bool had_any = session_.n_seen() > 0;
        const Status loaded = Load(FileOf(line));
        // Neither conversation is left: do not overwrite the --session file with an empty one.
        if (!loaded.ok() && had_any && session_.n_seen() == 0) return loaded;
        Tell(loaded);
      } else if (line.rfind("/file ", 0) == 0) {
        status = ReadFile(FileOf(line));
      } else if (line.rfind("/image ", 0) == 0 || line.rfind("/video ", 0) == 0) {
        status = ReadPicture(FileOf(line), line[1] == 'v');
      } else if (line[0] == '/') {
        Print(stderr, "weir: unknown command {}; /help lists the commands\n", Printable(line));
      } else {
        status = Round(line);
        // Saved after every round: a closed terminal or a crash costs only the current round.
        if (!flags_.session.empty()) Tell(Save(flags_.session));
      }
      // A failed round is reported; the session continues, unless it can never take another token.
      if (!status.ok()) {
        if (status.code() == StatusCode::kOverBudget) return status;
        Fail(status);
      }
    }
    if (!unread.ok()) return unread;  // every round was saved
    return flags_.session.empty() ? Status() : Save(flags_.session);
  }

  // The file after a command; a completed name has a space after it.
  static std::string FileOf(const std::string& line) {
    const size_t begin = line.find(' ') + 1, end = line.find_last_not_of(' ') + 1;
    return line.substr(begin, std::max(begin, end) - begin);
  }

  static bool Tell(const Status& status) {
    if (!status.ok()) Fail(status);
    return status.ok();
  }

  Status Save(const std::string& path) {
    return WriteSaved(path, setup_, pot_, talk_.conversation().Save(), sampler_, before_ ? &*before_ : nullptr);
  }

  Status Load(const std::string& path) {
    WEIR_ASSIGN_OR_RETURN(std::optional<SavedSession> saved, ReadSaved(path));
    if (!saved) return NotFound("there is no snapshot {}", path);
    // Refuse before anything of the current chat is lost.
    if (trace_ != nullptr)
      return InvalidArgument("/load continues in the middle of a stream, but --trace must start with the stream");
    return GoOnFrom(*saved, path, false);
  }

  Status GoOnFrom(SavedSession& saved, const std::string& path, bool own_seed) {
    if (saved.note.conversation.is_null()) {
      return InvalidArgument("{} is a session of plain text, not a conversation; continue it with `weir run`", path);
    }
    WEIR_ASSIGN_OR_RETURN(Conversation talk, Conversation::Restore(tokenizer_, &chat_, saved.note.conversation));
    WEIR_RETURN_IF_ERROR(RestoreSaved(saved, path, own_seed, setup_, &sampler_));
    talk_.conversation() = std::move(talk);
    before_ = saved.note;
    return Status();
  }

  Status Begin() {
    std::optional<std::string> system;
    if (!flags_.system.empty()) system = flags_.system;
    Conversation& conversation = talk_.conversation();
    const std::vector<int32_t> before = conversation.Begin(system);
    const bool pin_system = !pins_.no_system && (system.has_value() || !pin_.empty());
    std::vector<int32_t> head;
    if (!pin_.empty()) {
      head = conversation.TurnHead();
      EncodeReport report;
      const std::vector<int32_t> pin = tokenizer_.EncodePieces(std::vector<TextPiece>{{pin_, false}}, false, &report);
      PrintReport(report, "the text of --pin");
      head.insert(head.end(), pin.begin(), pin.end());
    }
    WEIR_RETURN_IF_ERROR(
        CheckPins(session_, pot_, pins_, (pin_system ? before.size() : 0) + head.size(), system.has_value()));
    TalkReading reading;
    reading.pinned = pin_system;
    WEIR_RETURN_IF_ERROR(talk_.Read(before, reading));
    if (head.empty()) return Status();
    reading.pinned = true;
    WEIR_RETURN_IF_ERROR(talk_.Read(head, reading));
    conversation.TurnOpened();  // its words are at the beginning of the first message
    conversation.TextRead();
    return Status();
  }

  // Reads the text of a file into the session as the beginning of the next user turn.
  Status ReadFile(const std::string& path) {
    WEIR_ASSIGN_OR_RETURN(TextSource source, TextSource::Open(path));
    WEIR_RETURN_IF_ERROR(talk_.OpenTurn());
    EncodeOptions options;
    options.add_special = false;
    StreamEncoder encoder(tokenizer_, options);
    Progress progress("read", Progress::kAuto);
    progress.SetTotal(source.total_bytes());
    std::string piece;
    std::vector<int32_t> tokens;
    int64_t n_read = 0;
    for (bool more = true; more;) {
      WEIR_ASSIGN_OR_RETURN(more, source.Read(&piece));
      tokens.clear();
      encoder.Push(piece, &tokens);
      if (!more) encoder.Finish(&tokens);
      progress.NextPiece(std::ssize(piece), std::ssize(tokens));
      Session::AppendOptions append;
      append.stop = &StopFlag();
      append.progress = [&](int64_t done) { progress.Update(n_read + done, session_); };
      const Status status = session_.Append(tokens, append);
      if (!status.ok()) {
        progress.Done();
        talk_.conversation().TextRead();  // what was read stays
        return status;
      }
      n_read += static_cast<int64_t>(tokens.size());
      if (n_read > 0) talk_.conversation().TextRead();
    }
    progress.Done();
    PrintReport(encoder.report(), path);
    Print(stderr, "read {} tokens of {}\n", CountText(n_read), Printable(path));
    return Status();
  }

  // Reads a picture or video into the session as the beginning of the next user turn.
  Status ReadPicture(const std::string& path, bool video) {
    if (reader_ == nullptr) return InvalidArgument("pictures need the model's vision encoder: --mmproj FILE");
    WEIR_RETURN_IF_ERROR(talk_.OpenTurn());
    const int64_t n_before = session_.counters().seen, n_pruned = reader_->pictures().n_pruned();
    Progress progress("looked", Progress::kAuto);
    Session::AppendOptions append;
    append.stop = &StopFlag();
    int64_t n_frames = 1;
    Status status;
    if (video) {
      const Result<int64_t> read = reader_->ReadVideo(path, ToFrameOptions(pictures_), append, [&](const Frame&) {
        progress.Update(session_.counters().seen - n_before, session_);
      });
      status = read.status();
      if (read.ok()) n_frames = *read;
    } else {
      status = reader_->ReadPicture(path, ToMediaOptions(pictures_), append);
    }
    progress.Done();
    WEIR_RETURN_IF_ERROR(status);
    Print(stderr, "read {} tokens of {}", CountText(session_.counters().seen - n_before), Printable(path));
    if (video) Print(stderr, ", {} frames", CountText(n_frames));
    if (reader_->pictures().pruner().info != nullptr) {
      Print(stderr, ", {} rows pruned", CountText(reader_->pictures().n_pruned() - n_pruned));
    }
    Print(stderr, "\n");
    return Status();
  }

  // Reads a message and the template's words after it. Ctrl-C interrupts it and leaves the turn open.
  Status ReadMessage(const std::string& message) {
    WEIR_RETURN_IF_ERROR(talk_.OpenTurn());
    EncodeReport report;
    // Frames that the session kept on a server before it was loaded here.
    if (reader_ != nullptr) WEIR_RETURN_IF_ERROR(reader_->Recall({}));
    const int64_t n_before = session_.counters().seen;
    Progress progress("read", Progress::kAuto);
    TalkReading reading;
    reading.stop = &StopFlag();
    reading.progress = [&](int64_t done) { progress.Update(done, session_); };
    const Status status = talk_.Ask(message, answer_.n_predict, reading, &report);
    progress.Done();
    PrintReport(report, "the message");
    if (status.code() != StatusCode::kCancelled) return status;
    return Cancelled(
        "stopped after {} of the message's {} tokens; they stay in the conversation, and the next line continues it",
        CountText(session_.counters().seen - n_before), CountText(talk_.n_question_tokens()));
  }

  Status Round(const std::string& message) {
    const ExcerptScope excerpt(session_);
    WEIR_RETURN_IF_ERROR(ReadMessage(message));
    WEIR_ASSIGN_OR_RETURN(const GenerateResult result,
                          Answer(session_, sampler_, tokenizer_, answer_, true, 0, &reading_));
    Print(stdout, "\n");
    WEIR_RETURN_IF_ERROR(FlushOutput());  // before the figures on stderr
    Print(stderr, "{}", KeptText(session_));
    if (terminal_) {
      Print(stderr, "; pot {}/{}, {:.1f} tokens/s, process {}", session_.pot().n_used(), session_.plan().pot_slots,
            result.tokens_per_s, BytesText(ResidentBytes()));
    }
    Print(stderr, "\n");
    if (setup_.recall != nullptr) {
      PrintRecalled(talk_.recalled(), session_.n_seen());
      setup_.recall->Flush();
      PrintIfOff(*setup_.recall, &told_off_);
    }
    WEIR_RETURN_IF_ERROR(talk_.Answered(result.end_token_read));
    return CheckNotCut(result);
  }

  const Setup& setup_;
  Session& session_;
  TraceWriter* trace_;
  const Tokenizer& tokenizer_;
  Sampler sampler_;
  const ChatTemplate chat_;
  const ThoughtReading& reading_;
  Talk talk_;
  const AnswerFlags& answer_;
  const PotFlags& pot_;
  const PinFlags& pins_;
  const std::string pin_;
  std::optional<SessionNote> before_;  // of the file that the session goes on from
  PictureReader* const reader_;        // nullptr without an encoder
  const PictureFlags& pictures_;
  const ChatFlags& flags_;
  ToldOff told_off_;
  bool terminal_ = false;  // somebody types
};

Status RunChat(const CLI::App& sub, ModelFlags& model_flags, PotFlags& pot_flags, AnswerFlags& answer,
               const PinFlags& pins, PictureFlags& pictures, const ChatFlags& flags) {
  std::optional<SavedSession> saved;
  if (!flags.session.empty()) {
    WEIR_ASSIGN_OR_RETURN(saved, ReadSaved(flags.session));
  }
  if (saved) {
    WEIR_RETURN_IF_ERROR(CheckGoesOn(sub, flags.session));
    Adopt(sub, saved->note, &pot_flags);
  }
  WEIR_ASSIGN_OR_RETURN(std::string pin, PinText(pins));
  WEIR_ASSIGN_OR_RETURN(Sampler sampler, MakeSampler(&answer));
  WEIR_RETURN_IF_ERROR(AddFormRoom(answer, &pot_flags));
  WEIR_ASSIGN_OR_RETURN(const Setup setup,
                        MakeSetup(model_flags, pot_flags, SamplingText(answer),
                                  {.in_chat = true, .goes_on = saved.has_value()}, {&pictures, /*more_later=*/true}));
  WEIR_ASSIGN_OR_RETURN(const ChatTemplate chat,
                        ChatTemplate::ForFile(setup.model->file(), setup.model->tokenizer(), model_flags.chat_template,
                                              model_flags.chat_arguments));
  const ThoughtReading reading(setup.model->file(), model_flags, chat, setup.model->tokenizer(), flags.thoughts.where);
  WEIR_RETURN_IF_ERROR(MakeAnswerForm(setup, &answer, &reading));
  Chat loop(setup, std::move(sampler), chat, reading, answer, pot_flags, pins, std::move(pin), pictures, flags);
  WEIR_RETURN_IF_ERROR(loop.Run(saved ? &*saved : nullptr));
  WEIR_RETURN_IF_ERROR(FinishTrace(setup.trace.get(), *setup.session));
  PrintMemoryLine(*setup.session, setup.reader.get());
  return Status();
}

Action AddChat(CLI::App& sub) {
  auto model = std::make_shared<ModelFlags>();
  auto pot = std::make_shared<PotFlags>();
  auto answer = std::make_shared<AnswerFlags>();
  auto pins = std::make_shared<PinFlags>();
  auto pictures = std::make_shared<PictureFlags>();
  auto flags = std::make_shared<ChatFlags>();
  AddModelFlags(sub, model.get());
  sub.add_option("--system", flags->system, "system message");
  AddChatFlags(sub, model.get());
  AddEncoderFlags(sub, pictures.get());
  AddFpsFlag(sub, pictures.get());
  AddPotFlags(sub, pot.get());
  AddGuessFlags(sub, &pot->guesses);
  AddRecallFlags(sub, &pot->recall);
  AddTraceFlag(sub, pot.get());
  AddVerboseFlag(sub, pot.get());
  AddPinFlags(sub, pins.get());
  AddAnswerFlags(sub, answer.get(), false);
  AddThoughtsFlag(sub, &flags->thoughts);
  AddSessionFlag(sub, &flags->session);
  return [=, &sub] {
    InstallStopHandler();
    flags->own_seed = sub.get_option("--seed")->count() > 0;
    return RunChat(sub, *model, *pot, *answer, *pins, *pictures, *flags);
  };
}

}  // namespace

extern const CommandInfo kChat;
const CommandInfo kChat = {.name = "chat",
                           .summary = "chat for as long as you like; /help lists the commands",
                           .group = CommandGroup::kAnswer,
                           .add = AddChat};

}  // namespace weir::app
