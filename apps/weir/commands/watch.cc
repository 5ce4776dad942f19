// weir-plugin: command
// SPDX-License-Identifier: Apache-2.0
// weir watch: reads a video as it plays, or a text as it grows, answers questions about it at any time, and tells when
// rules hold.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "answer.h"
#include "base/clock.h"
#include "chat/talk.h"
#include "commands/command.h"
#include "duration.h"
#include "engine/frame_feed.h"
#include "event_files.h"
#include "io/json.h"
#include "line_input.h"
#include "print.h"
#include "repeated_lines.h"
#include "rule_watch.h"
#include "text_watch.h"

namespace weir::app {
namespace {

struct WatchFlags {
  std::string source, follow, ask, system, every, report, still;
  int skip_same = 0;
  bool fast = false;
  int queue = 8;
};

// Lines of standard input, without waiting for them.
class Questions {
 public:
  explicit Questions(bool listen) {
    if (listen) input_.emplace(false);
  }
  struct Question {
    std::string text;
    int64_t at_ms = -1;  // not before this time of the video; -1: now
  };
  // Takes in what has been typed.
  void Listen() {
    while (input_) {
      std::string line;
      const LineInput::Event event = input_->Poll(&line);
      if (event == LineInput::Event::kEnd) {
        const Status unread = input_->status();
        if (!unread.ok()) Print(stderr, "weir: warning: {}\n", unread.message());
        input_.reset();
      }
      if (event != LineInput::Event::kLine) return;
      Add(std::move(line));
    }
  }
  // After output: shows the question that is being typed again.
  void Redraw() {
    if (input_) input_->Redraw();
  }
  // The next question that is due, if any; at the end of the video all are due.
  bool Next(int64_t now_ms, bool at_end, Question* question) {
    for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
      if (!at_end && it->at_ms > now_ms) continue;
      *question = *it;
      waiting_.erase(it);
      return true;
    }
    return false;
  }

 private:
  // "@12.5 What happens?" is about second 12.5 of the video: it waits for the frame of that moment or, without one, for
  // the first later frame, which is read after the answer.
  void Add(std::string text) {
    Question question;
    if (!text.empty() && text[0] == '@') {
      char* end = nullptr;
      const double second = std::strtod(text.c_str() + 1, &end);
      if (end != text.c_str() + 1 && *end == ' ' && second >= 0 && second < 1e9) {
        question.at_ms = std::llround(second * 1000);
        text = end + 1;
      }
    }
    question.text = text;
    if (!text.empty()) waiting_.push_back(std::move(question));
  }

  std::optional<LineInput> input_;  // until its end
  std::deque<Question> waiting_;
};

class Watcher {
 public:
  Watcher(const Setup& setup, Sampler sampler, const ChatTemplate& chat, const AnswerFlags& answer, FrameFeed& feed,
          bool json)
      : session_(*setup.session),
        reader_(*setup.reader),
        tokenizer_(setup.model->tokenizer()),
        sampler_(std::move(sampler)),
        talk_(session_, sampler_, Conversation(tokenizer_, &chat)),
        answer_(answer),
        feed_(feed),
        json_(json),
        recall_(setup.recall.get()) {
    if (recall_ != nullptr) talk_.SetRecaller(&recall_->recaller());
  }

  Status Begin(const std::string& system, const RuleFlags& flags, std::vector<Rule> rules) {
    std::optional<std::string> text;
    if (!system.empty()) text = system;
    TalkReading reading;
    reading.pinned = text.has_value();
    WEIR_RETURN_IF_ERROR(talk_.Read(talk_.conversation().Begin(text), reading));
    if (rules.empty()) return Status();
    WEIR_RETURN_IF_ERROR(CheckFramesForRules(reader_.frames()));
    check_every_ = std::max(flags.check, 1);
    WEIR_ASSIGN_OR_RETURN(rules_,
                          RuleWatch::Make(flags, std::move(rules), session_, tokenizer_, talk_.conversation(), json_));
    return Status();
  }

  Status See(const FrameFeed::Prepared& frame) {
    t_ms_ = frame.t_src_ms;
    Session::AppendOptions append;
    append.t_src_ms = t_ms_;
    append.stop = &StopFlag();
    const bool still = frame.pixels == nullptr;
    if (still) {
      WEIR_RETURN_IF_ERROR(reader_.Settle(append));  // the frame that waits shows the same
    } else {
      WEIR_RETURN_IF_ERROR(talk_.OpenTurn(Reading()));
      if (frame.gap_ms > 0) {
        WEIR_RETURN_IF_ERROR(reader_.Interrupt(append));
        WEIR_RETURN_IF_ERROR(MarkGap(frame.gap_ms));
      }
      WEIR_RETURN_IF_ERROR(reader_.ReadPrepared(frame.pixels, append));
      if (rules_ != nullptr) rules_->See(frame.pixels, reader_.config().transform, frame.source);
      ++n_looked_;
      unchecked_ = true;
    }
    const int64_t n_before = n_passed_ / check_every_;
    n_passed_ += still ? frame.n_still : 1;
    int64_t n_due = n_passed_ / check_every_ - n_before;
    if (rules_ == nullptr || n_due == 0) return Status();
    // The last check was of what is seen now only if nothing was read since.
    if (std::exchange(unchecked_, false)) {
      WEIR_RETURN_IF_ERROR(reader_.Interrupt(append));
      WEIR_RETURN_IF_ERROR(rules_->Check(talk_.conversation(), t_ms_));
      --n_due;
    }
    return rules_->Repeat(n_due, t_ms_);
  }

  // The last frame came: it waits for no other.
  Status EndVideo() {
    Session::AppendOptions append;
    append.t_src_ms = t_ms_;
    append.stop = &StopFlag();
    return reader_.Interrupt(append);
  }

  // The source was away: the stream says so, in words that the model reads.
  Status MarkGap(int64_t gap_ms) {
    const std::string words = fmt::format("[no picture for {:.0f} s]\n", std::ceil(static_cast<double>(gap_ms) / 1000));
    WEIR_RETURN_IF_ERROR(talk_.Read(tokenizer_.Encode(words, {.add_special = false}), Reading()));
    if (json_) {
      Print(stdout, "{}\n", JsonText({{"type", "gap"}, {"t_ms", t_ms_}, {"gap_ms", gap_ms}}));
    } else {
      Print(stdout, "[{}] {}", TimeText(t_ms_), words);
    }
    return FlushOutput();
  }

  Status Ask(const std::string& question) {
    const Clock::time_point start = Clock::now();
    const ExcerptScope excerpt(session_);
    const int64_t asked_at = t_ms_;
    WEIR_RETURN_IF_ERROR(talk_.OpenTurn(Reading()));
    Session::AppendOptions append;
    append.stop = &StopFlag();
    WEIR_RETURN_IF_ERROR(reader_.Recall(append));
    EncodeReport report;
    WEIR_RETURN_IF_ERROR(talk_.Ask(question, answer_.n_predict, Reading(), &report));
    PrintReport(report, "the question");
    const double read_ms = MillisecondsSince(start);
    if (!json_) Print(stdout, "[{}] ", TimeText(asked_at));
    WEIR_ASSIGN_OR_RETURN(const GenerateResult result,
                          Answer(session_, sampler_, tokenizer_, answer_, !json_, asked_at));
    WEIR_RETURN_IF_ERROR(talk_.Answered(result.end_token_read));
    if (recall_ != nullptr) {
      recall_->Flush();
      PrintIfOff(*recall_, &told_off_);
    }
    const double ttft_ms = read_ms + result.first_token_ms;
    if (json_) {
      nlohmann::ordered_json line = Figures("answer", asked_at);
      line["question"] = question;
      line["text"] = result.text;
      if (recall_ != nullptr) AddRecalled(talk_.recalled(), &line);
      line["stop"] = StopReasonName(result.reason);
      line["ttft_ms"] = ttft_ms;
      line["decode_tokens_per_s"] = result.tokens_per_s;
      Print(stdout, "{}\n", JsonText(line));
      WEIR_RETURN_IF_ERROR(FlushOutput());
    } else {
      Print(stdout, "\n");
      WEIR_RETURN_IF_ERROR(FlushOutput());  // before the figures on stderr
      PrintFigures(fmt::format("first token after {:.0f} ms, {:.1f} tokens/s; ", ttft_ms, result.tokens_per_s));
    }
    return CheckNotCut(result);
  }

  // Prints the position in the video and the memory in use.
  Status Report() {
    if (!json_) {
      PrintFigures(fmt::format("at {} ", TimeText(t_ms_)));
      return Status();
    }
    Print(stdout, "{}\n", JsonText(Figures("report", t_ms_)));
    return FlushOutput();
  }

  void End() {
    if (rules_ != nullptr) rules_->End();
    if (recall_ != nullptr) EndRecall(*recall_, &told_off_);
  }

  int64_t t_ms() const { return t_ms_; }
  int64_t n_looked() const { return n_looked_; }

 private:
  TalkReading Reading() const {
    TalkReading reading;
    reading.t_src_ms = t_ms_;
    reading.in_one = true;
    return reading;
  }

  double FramesPerSecond() const {
    const double seconds = SecondsSince(start_);
    return seconds > 0 ? static_cast<double>(n_looked_) / seconds : 0;
  }

  nlohmann::ordered_json Figures(const char* type, int64_t t_ms) const {
    const FrameFeed::Counters frames = feed_.counters();
    const SessionCounters tokens = session_.counters();
    nlohmann::ordered_json line = {{"type", type},
                                   {"t_ms", t_ms},
                                   {"frames_arrived", frames.arrived},
                                   {"frames_looked_at", n_looked_},
                                   {"frames_still", frames.still},
                                   {"frames_dropped", frames.dropped},
                                   {"frames_waiting", frames.waiting},
                                   {"gaps", frames.gaps},
                                   {"frames_per_s", FramesPerSecond()},
                                   {"tokens_seen", tokens.seen},
                                   {"tokens_kept", tokens.kept},
                                   {"tokens_dropped", tokens.dropped}};
    if (const auto modalities = ModalitiesJson(tokens); !modalities.is_null()) line["modalities"] = modalities;
    AddPruned(&reader_, &line);
    if (rules_ != nullptr) line["rules"] = rules_->Figures();
    line["session_bytes"] = session_.ledger().used_bytes();
    line["resident_bytes"] = ResidentBytes();
    return line;
  }

  void PrintFigures(const std::string& what) const {
    const FrameFeed::Counters frames = feed_.counters();
    const SessionCounters tokens = session_.counters();
    const std::string pruned = PrunedText(reader_);
    Print(
        stderr,
        "watch    {}{} frames looked at ({:.2f}/s), {}{} dropped, {} waiting; tokens {} seen, {} kept; {}{}session {}, "
        "process {}\n",
        what, CountText(n_looked_), FramesPerSecond(),
        frames.still > 0 ? CountText(frames.still) + " without a change, " : "", CountText(frames.dropped),
        CountText(frames.waiting), CountText(tokens.seen), CountText(tokens.kept), pruned, pruned.empty() ? "" : "; ",
        BytesText(session_.ledger().used_bytes()), BytesText(ResidentBytes()));
    if (rules_ != nullptr) Print(stderr, "{}\n", rules_->FiguresText());
  }

  Session& session_;
  PictureReader& reader_;
  const Tokenizer& tokenizer_;
  Sampler sampler_;
  Talk talk_;
  const AnswerFlags& answer_;
  FrameFeed& feed_;
  const bool json_;
  StreamRecall* const recall_;  // nullptr without --recall
  ToldOff told_off_;
  std::unique_ptr<RuleWatch> rules_;  // nullptr: none
  int check_every_ = 1;
  int64_t n_passed_ = 0;    // frames, also those that were left out without a change
  bool unchecked_ = false;  // a frame was read since the last check
  const Clock::time_point start_ = Clock::now();
  int64_t t_ms_ = 0, n_looked_ = 0;  // the latest frame's time; frames that are part of the stream
};

// Moments of the video, every `every` ms from the first on.
class Schedule {
 public:
  explicit Schedule(int64_t every) : every_(every), next_(every) {}
  bool Due(int64_t t_ms) {
    if (every_ == 0 || t_ms < next_) return false;
    next_ = (t_ms / every_ + 1) * every_;
    return true;
  }

 private:
  const int64_t every_;
  int64_t next_;
};

// What --follow shares with video.
Status Follow(const ModelFlags& model_flags, PotFlags& pot_flags, const AnswerFlags& answer, const WatchFlags& flags,
              const RuleFlags& rule_flags) {
  WEIR_ASSIGN_OR_RETURN(std::vector<Rule> rules, ParseRules(rule_flags));
  if (!rule_flags.pictures.empty()) return InvalidArgument("--pictures needs a video: --follow reads a text");
  TextWatchFlags text = {
      .follow = flags.follow, .system = flags.system, .whole = flags.fast, .json = answer.output == "json"};
  if (!flags.report.empty()) {
    WEIR_ASSIGN_OR_RETURN(text.report_ms, ParseDuration("--report", flags.report));
  }
  WEIR_RETURN_IF_ERROR(AddRuleRoom(rule_flags, &pot_flags));
  text.skip_same = flags.skip_same;
  if (flags.skip_same > 0) {
    pot_flags.beside.push_back({MemTag::kOther, "lines that were read", RepeatedLines::Bytes(flags.skip_same)});
  }
  return WatchText(model_flags, pot_flags, rule_flags, std::move(rules), text);
}

Result<std::optional<FrameFeed::Options::Still>> ParseStill(const std::string& text) {
  if (text.empty()) return std::optional<FrameFeed::Options::Still>();
  FrameFeed::Options::Still out;
  WEIR_ASSIGN_OR_RETURN(out.max_gap_ms, ParseDuration("--skip-still", text));
  return std::optional(out);
}

Status Watch(ModelFlags& model_flags, PotFlags& pot_flags, AnswerFlags& answer, PictureFlags& pictures,
             const WatchFlags& flags, const RuleFlags& rule_flags) {
  int64_t every = 0, report = 0;
  WEIR_ASSIGN_OR_RETURN(std::vector<Rule> rules, ParseRules(rule_flags));
  if (!rules.empty()) {
    WEIR_RETURN_IF_ERROR(AddRuleRoom(rule_flags, &pot_flags));
    if (!rule_flags.pictures.empty()) WEIR_RETURN_IF_ERROR(EventFiles::MakeFolder(rule_flags.pictures));
  }
  if (!flags.every.empty()) {
    if (flags.ask.empty()) return InvalidArgument("--every needs a question: --ask TEXT");
    WEIR_ASSIGN_OR_RETURN(every, ParseDuration("--every", flags.every));
  }
  if (!flags.report.empty()) {
    WEIR_ASSIGN_OR_RETURN(report, ParseDuration("--report", flags.report));
  }
  WEIR_ASSIGN_OR_RETURN(Sampler sampler, MakeSampler(&answer));
  pictures.videos = {flags.source};
  WEIR_RETURN_IF_ERROR(AddFormRoom(answer, &pot_flags));
  WEIR_ASSIGN_OR_RETURN(const Setup setup, MakeSetup(model_flags, pot_flags, SamplingText(answer), {true, flags.ask},
                                                     {&pictures, false, flags.queue + 1}));
  WEIR_RETURN_IF_ERROR(MakeAnswerForm(setup, &answer));
  WEIR_ASSIGN_OR_RETURN(const ChatTemplate chat,
                        ChatTemplate::ForFile(setup.model->file(), setup.model->tokenizer(), model_flags.chat_template,
                                              model_flags.chat_arguments));
  FrameFeed::Options options;
  WEIR_ASSIGN_OR_RETURN(options.still, ParseStill(flags.still));
  options.frames = ToFrameOptions(pictures);
  options.frames.real_time = !flags.fast;
  options.drop = !flags.fast;
  if (flags.fast) options.reopen_ms = 0;  // the stream's own end is wanted
  // A live source may take a while between frames.
  options.frames.media.wall_ms =
      std::max(options.frames.media.wall_ms, static_cast<int64_t>(std::llround(std::min(3000 / pictures.fps, 1e9))));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<FrameFeed> feed, FrameFeed::Start(*setup.reader, flags.source, options));

  Questions questions(flags.source != "-");
  Schedule ask(every), reports(report);
  Watcher watcher(setup, std::move(sampler), chat, answer, *feed, answer.output == "json");
  WEIR_RETURN_IF_ERROR(watcher.Begin(flags.system, rule_flags, std::move(rules)));
  Questions::Question question;
  FrameFeed::Prepared frame;
  while (!StopFlag()) {
    questions.Listen();
    if (watcher.n_looked() > 0 && questions.Next(watcher.t_ms(), false, &question)) {
      WEIR_RETURN_IF_ERROR(watcher.Ask(question.text));
      questions.Redraw();
    } else if (feed->Take(&frame, 50)) {
      // Questions about a moment before this frame are answered from what was seen by then.
      while (watcher.n_looked() > 0 && questions.Next(frame.t_src_ms - 1, false, &question)) {
        WEIR_RETURN_IF_ERROR(watcher.Ask(question.text));
        questions.Redraw();
      }
      if (Status status = watcher.See(frame); !status.ok()) {
        if (StopFlag()) break;  // what was seen until then is reported
        return status;
      }
      const bool asks = ask.Due(watcher.t_ms()), tells = reports.Due(watcher.t_ms());
      if (asks) WEIR_RETURN_IF_ERROR(watcher.Ask(flags.ask));
      if (tells) WEIR_RETURN_IF_ERROR(watcher.Report());
      if (asks || tells) questions.Redraw();
    } else if (feed->ended()) {
      break;
    }
    if (const Status away = feed->TakeTrouble(); !away.ok()) {
      Print(stderr, "weir: warning: {}; trying again\n", Printable(away.message()));
    }
  }
  if (!StopFlag()) WEIR_RETURN_IF_ERROR(feed->status());
  if (!StopFlag()) WEIR_RETURN_IF_ERROR(watcher.EndVideo());
  while (!StopFlag() && questions.Next(watcher.t_ms(), true, &question)) {
    WEIR_RETURN_IF_ERROR(watcher.Ask(question.text));
  }
  if (!StopFlag() && every == 0 && !flags.ask.empty()) WEIR_RETURN_IF_ERROR(watcher.Ask(flags.ask));
  WEIR_RETURN_IF_ERROR(watcher.Report());
  watcher.End();
  WEIR_RETURN_IF_ERROR(FinishTrace(setup.trace.get(), *setup.session));
  return StopFlag() ? Cancelled("stopped; the answers so far are above") : Status();
}

constexpr const char* kExamples =
    R"(Rules (--when) are asked aside: the model reads the question, its odds of yes against no are noted, and the question
is gone. A rule's score is how far these odds are above what is usual for it; its first 8 checks teach it that. An
event begins after --hold checks in a row with a score of --score, and ends when it falls below half of that.
--scores shows them.

  weir watch door.mp4 -m M.gguf --mmproj V.gguf --when "a parcel lies at the door" --then 'notify-send "$WEIR_EVENT_WHEN"'
  weir watch rtsp://camera/1 -m M.gguf --mmproj V.gguf --skip-still 10s --when "a person is in the room" -o json
  weir watch --follow app.log -m M.gguf --when "the log reports an error" --then ./alarm
  journalctl -f | weir watch --follow - -m M.gguf --when "a disk fails" --when "somebody logs in as root")";

Action AddWatch(CLI::App& sub) {
  auto model = std::make_shared<ModelFlags>();
  auto pot = std::make_shared<PotFlags>();
  auto answer = std::make_shared<AnswerFlags>();
  auto pictures = std::make_shared<PictureFlags>();
  auto flags = std::make_shared<WatchFlags>();
  auto rules = std::make_shared<RuleFlags>();
  answer->n_predict = 128;
  AddModelFlags(sub, model.get());
  CLI::Option* source =
      sub.add_option("video,-f,--file", flags->source,
                     "video, pipe, camera (/dev/video0), rtsp:// or http:// stream; - is standard input")
          ->type_name("FILE");
  CLI::Option* follow = sub.add_option("--follow", flags->follow,
                                       "in place of a video: a text, from its end on as it grows; - is standard input")
                            ->excludes(source)
                            ->check(NotEmpty())
                            ->type_name("FILE");
  AddRuleFlags(sub, rules.get());
  follow->needs(sub.get_option("--when"));
  AddEncoderFlags(sub, pictures.get());
  AddFpsFlag(sub, pictures.get());
  CLI::Option* ask =
      sub.add_option("--ask", flags->ask, "question to ask at the end of the video, or at every interval of --every")
          ->check(NotEmpty())
          ->excludes(follow)
          ->type_name("TEXT");
  sub.add_option("--every", flags->every, "ask it each time this much of the video has passed: 30s, 5m ...")
      ->needs(ask)
      ->type_name("TIME");
  sub.add_option("--report", flags->report, "print frame, token and memory figures at this interval: 1m ...")
      ->type_name("TIME");
  sub.add_flag("--fast", flags->fast,
               "read a file as fast as it can be processed, without dropping frames; a text from its start to its end");
  sub.add_option("--skip-still", flags->still,
                 "leave out frames that look like the last one that was read, but for one in this time: 10s ...")
      ->excludes(follow)
      ->type_name("TIME");
  sub.add_option("--skip-same", flags->skip_same,
                 "leave out a line of the text that differs in words with digits only from one that was read within "
                 "the last N lines")
      ->needs(follow)
      ->check(Between(1, static_cast<int>(RepeatedLines::kMostWindow)))
      ->type_name("N");
  sub.add_option("--queue", flags->queue,
                 "frames that may wait while an answer is being written; older ones are dropped")
      ->check(Between(1, 1 << 12))
      ->capture_default_str();
  sub.add_option("--system", flags->system, "system message");
  AddChatFlags(sub, model.get());
  AddPotFlags(sub, pot.get());
  AddGuessFlags(sub, &pot->guesses);
  AddRecallFlags(sub, &pot->recall);
  AddTraceFlag(sub, pot.get());
  AddVerboseFlag(sub, pot.get());
  AddAnswerFlags(sub, answer.get(), true);
  sub.footer(kExamples);
  return [=] {
    InstallStopHandler();
    if (!flags->follow.empty()) return Follow(*model, *pot, *answer, *flags, *rules);
    if (flags->source.empty()) return InvalidArgument("watch what? A video, or a text with --follow FILE");
    return pictures->mmproj.empty() ? InvalidArgument("watching needs the model's vision encoder: --mmproj FILE")
                                    : Watch(*model, *pot, *answer, *pictures, *flags, *rules);
  };
}

}  // namespace

extern const CommandInfo kWatch;
const CommandInfo kWatch = {
    .name = "watch",
    .summary =
        "watch a video as it plays, through a fixed pot; ask at any time, one question per line on standard input",
    .group = CommandGroup::kAnswer,
    .add = AddWatch};

}  // namespace weir::app
