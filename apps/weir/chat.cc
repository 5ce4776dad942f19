// weir chat: rounds in a terminal, one endless session.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>

#include "answer.h"
#include "progress.h"
#include "text/stream.h"

namespace weir::app {
namespace {

struct ChatFlags {
  std::string system;
};

void PrintHelp() {
  std::fprintf(stderr,
               "  /file PATH   read a text file into the conversation; it may be longer than the pot\n"
               "  /memory      what is held and what was dropped\n"
               "  /reset       forget the conversation\n"
               "  /help        this list\n"
               "  /exit        end (or Ctrl-D); Ctrl-C stops an answer, a message or a file that is being read\n");
}

class Chat {
 public:
  Chat(const Setup& setup, Sampler sampler, const ChatTemplate& chat, const AnswerFlags& answer, const PotFlags& pot,
       const PinFlags& pins, std::string pin, const ChatFlags& flags)
      : session_(*setup.session),
        trace_(setup.trace.get()),
        tokenizer_(setup.model->tokenizer()),
        sampler_(std::move(sampler)),
        chat_(chat),
        rounds_(chat),
        answer_(answer),
        pot_(pot),
        pins_(pins),
        pin_(std::move(pin)),
        flags_(flags) {}

  Status Loop() {
    const bool terminal = isatty(STDIN_FILENO) != 0;
    if (terminal) std::fprintf(stderr, "Type a message; /help lists the commands.\n");
    WEIR_RETURN_IF_ERROR(Begin());
    for (std::string line;;) {
      if (terminal) std::fprintf(stderr, "\n> ");
      ClearStop();
      if (!std::getline(std::cin, line)) break;
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (line.empty()) continue;
      if (line == "/exit") break;
      Status status;
      if (line == "/help") {
        PrintHelp();
      } else if (line == "/memory") {
        PrintMemoryLine(session_);
      } else if (line == "/reset") {
        session_.Reset();
        sampler_.Reset();
        rounds_ = ChatRounds(chat_);
        if (trace_ != nullptr) status = trace_->Restarted();
        if (status.ok()) status = Begin();
      } else if (line.rfind("/file ", 0) == 0) {
        status = ReadFile(line.substr(6));
      } else if (line[0] == '/') {
        std::fprintf(stderr, "weir: no command %s; /help lists them\n", Printable(line).c_str());
      } else {
        status = Round(line);
      }
      // A round that failed is told; the session goes on, except where it can never take another token.
      if (!status.ok()) {
        if (status.code() == StatusCode::kOverBudget) return status;
        Fail(status);
      }
    }
    return Status();
  }

 private:
  Status Push(const std::vector<TextPiece>& pieces, bool add_special, bool pinned = false) {
    EncodeReport report;
    const std::vector<int32_t> tokens = tokenizer_.EncodePieces(pieces, add_special, &report);
    PrintReport(report, "the message");
    for (int32_t id : tokens) sampler_.Accept(id);
    Session::AppendOptions append;
    append.pinned = pinned;
    return session_.Append(tokens, append);
  }

  Status Begin() {
    std::optional<std::string> system;
    if (!flags_.system.empty()) system = flags_.system;
    answered_ = false;
    turn_open_ = false;
    const std::vector<TextPiece> before = rounds_.System(system);
    const bool pin_system = !pins_.no_system && (system.has_value() || !pin_.empty());
    std::vector<TextPiece> head;
    if (!pin_.empty()) {
      WEIR_ASSIGN_OR_RETURN(head, TurnHead());
      head.push_back({pin_, false});
      turn_open_ = true;  // it stands at the beginning of the first message
    }
    const bool add_special = !chat_.includes_bos();
    const size_t n_pinned = (pin_system ? tokenizer_.EncodePieces(before, add_special).size() : 0) +
                            (head.empty() ? 0 : tokenizer_.EncodePieces(head, false).size());
    WEIR_RETURN_IF_ERROR(CheckPins(session_, pot_, pins_, n_pinned, system.has_value()));
    WEIR_RETURN_IF_ERROR(Push(before, add_special, pin_system));
    return head.empty() ? Status() : Push(head, false, true);
  }

  // The text of a file waits in the session as the beginning of the next user turn.
  Status ReadFile(const std::string& path) {
    WEIR_ASSIGN_OR_RETURN(TextSource source, TextSource::Open(path));
    WEIR_RETURN_IF_ERROR(OpenTurn());
    EncodeOptions options;
    options.add_special = false;
    StreamEncoder encoder(tokenizer_, options);
    Progress progress("read", Progress::kAuto);
    std::string piece;
    std::vector<int32_t> tokens;
    int64_t n_read = 0;
    for (bool more = true; more;) {
      WEIR_ASSIGN_OR_RETURN(more, source.Read(&piece));
      tokens.clear();
      encoder.Push(piece, &tokens);
      if (!more) encoder.Finish(&tokens);
      Session::AppendOptions append;
      append.stop = &StopFlag();
      append.progress = [&](int64_t done) { progress.Update(n_read + done, session_); };
      const Status status = session_.Append(tokens, append);
      if (!status.ok()) {
        progress.Done();
        return status;
      }
      n_read += static_cast<int64_t>(tokens.size());
    }
    progress.Done();
    PrintReport(encoder.report(), path);
    std::fprintf(stderr, "read %s tokens of %s\n", CountText(n_read).c_str(), Printable(path).c_str());
    return Status();
  }

  // Everything of a user turn that stands before its words; what comes after them waits in after_.
  Result<std::vector<TextPiece>> TurnHead() {
    std::vector<TextPiece> pieces;
    if (answered_) pieces = rounds_.EndAnswer(end_token_read_);
    WEIR_ASSIGN_OR_RETURN(const AroundContent around, SplitAtContent(rounds_.User(kContent)));
    pieces.insert(pieces.end(), around.before.begin(), around.before.end());
    after_ = around.after;
    return pieces;
  }

  Status OpenTurn() {
    if (turn_open_) return Status();
    WEIR_ASSIGN_OR_RETURN(const std::vector<TextPiece> pieces, TurnHead());
    turn_open_ = true;
    return Push(pieces, false);
  }

  // Reads a message and the template's words after it. Ctrl-C leaves it cut short and the turn open.
  Status ReadMessage(const std::string& message) {
    std::vector<TextPiece> pieces = {{message, false}};
    pieces.insert(pieces.end(), after_.begin(), after_.end());
    EncodeReport report;
    const std::vector<int32_t> tokens = tokenizer_.EncodePieces(pieces, false, &report);
    PrintReport(report, "the message");
    WEIR_RETURN_IF_ERROR(session_.BeginRound(tokens, answer_.n_predict));
    // The template's words are read whole: half of them would leave a turn that neither ends nor goes on.
    const size_t n_tail = std::min(tokens.size(), tokenizer_.EncodePieces(after_, false).size() + 1);
    const std::span<const int32_t> body(tokens.data(), tokens.size() - n_tail);
    const int64_t n_before = session_.counters().seen;
    Progress progress("read", Progress::kAuto);
    Session::AppendOptions append;
    append.stop = &StopFlag();
    append.progress = [&](int64_t done) { progress.Update(done, session_); };
    Status status = session_.Append(body, append);
    progress.Done();
    const size_t n_read = static_cast<size_t>(session_.counters().seen - n_before);
    for (const int32_t id : body.first(n_read)) sampler_.Accept(id);
    if (status.code() == StatusCode::kCancelled) {
      return Cancelled(
          "stopped after %s of the message's %s tokens; they stay read, and the next line goes on from there",
          CountText(static_cast<int64_t>(n_read)).c_str(), CountText(static_cast<int64_t>(tokens.size())).c_str());
    }
    WEIR_RETURN_IF_ERROR(status);
    append = {};
    append.end_of_prompt = true;
    const std::span<const int32_t> tail(tokens.data() + body.size(), n_tail);
    for (const int32_t id : tail) sampler_.Accept(id);
    return session_.Append(tail, append);
  }

  Status Round(const std::string& message) {
    const bool goes_on = turn_open_;
    WEIR_RETURN_IF_ERROR(OpenTurn());
    WEIR_RETURN_IF_ERROR(ReadMessage(goes_on ? "\n\n" + message : message));
    turn_open_ = false;
    WEIR_ASSIGN_OR_RETURN(const GenerateResult result, Answer(session_, sampler_, tokenizer_, answer_, true));
    std::printf("\n");
    WEIR_RETURN_IF_ERROR(FlushOutput());  // before the figures on stderr
    std::fprintf(stderr, "%s\n", KeptText(session_).c_str());
    answered_ = true;
    end_token_read_ = result.end_token_read;
    if (result.reason == StopReason::kPotFull) {
      return OverBudget("the pot of %d tokens is full and nothing may be forgotten", session_.plan().pot.n_slots);
    }
    return Status();
  }

  Session& session_;
  TraceWriter* trace_;
  const Tokenizer& tokenizer_;
  Sampler sampler_;
  const ChatTemplate chat_;
  ChatRounds rounds_;
  const AnswerFlags& answer_;
  const PotFlags& pot_;
  const PinFlags& pins_;
  const std::string pin_;
  const ChatFlags& flags_;
  std::vector<TextPiece> after_;
  bool turn_open_ = false, answered_ = false, end_token_read_ = false;
};

Status RunChat(ModelFlags& model_flags, PotFlags& pot_flags, AnswerFlags& answer, const PinFlags& pins,
               const ChatFlags& flags) {
  WEIR_ASSIGN_OR_RETURN(std::string pin, PinText(pins));
  WEIR_ASSIGN_OR_RETURN(Sampler sampler, MakeSampler(&answer));
  WEIR_ASSIGN_OR_RETURN(const Setup setup, MakeSetup(model_flags, pot_flags, SamplingText(answer), {true, ""}));
  WEIR_ASSIGN_OR_RETURN(const ChatTemplate chat, ChatTemplate::ForFile(setup.model->file(), setup.model->tokenizer(),
                                                                       model_flags.chat_template));
  Chat loop(setup, std::move(sampler), chat, answer, pot_flags, pins, std::move(pin), flags);
  WEIR_RETURN_IF_ERROR(loop.Loop());
  WEIR_RETURN_IF_ERROR(FinishTrace(setup.trace.get(), *setup.session));
  PrintMemoryLine(*setup.session);
  return Status();
}

}  // namespace

void AddChat(CLI::App& app, int* code) {
  CLI::App* sub = app.add_subcommand("chat", "talk in rounds, for as long as you like; /help lists what can be typed");
  auto model = std::make_shared<ModelFlags>();
  auto pot = std::make_shared<PotFlags>();
  auto answer = std::make_shared<AnswerFlags>();
  auto pins = std::make_shared<PinFlags>();
  auto flags = std::make_shared<ChatFlags>();
  AddModelFlags(*sub, model.get());
  sub->add_option("--system", flags->system, "system message");
  sub->add_option("--chat-template", model->chat_template,
                  "template to use instead of the file's: chatml, llama3, gemma ...");
  AddPotFlags(*sub, pot.get());
  AddTraceFlag(*sub, pot.get());
  AddPinFlags(*sub, pins.get());
  AddAnswerFlags(*sub, answer.get(), false);
  sub->callback([=] {
    InstallStopHandler();
    const Status status = RunChat(*model, *pot, *answer, *pins, *flags);
    *code = status.ok() ? 0 : Fail(status);
  });
}

}  // namespace weir::app
