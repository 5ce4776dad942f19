// SPDX-License-Identifier: Apache-2.0
#include "text_watch.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/clock.h"
#include "chat/talk.h"
#include "duration.h"
#include "followed_text.h"
#include "print.h"
#include "repeated_lines.h"
#include "text/stream.h"

namespace weir::app {
namespace {

constexpr int kDefaultEvery = 64;
constexpr size_t kMostLineBytes = 16 << 10;  // of a line that is compared with others
constexpr int kQuietMs = 200;                // a text that pauses for this long is checked without waiting for more

class TextWatcher {
 public:
  TextWatcher(const Setup& setup, const ChatTemplate& chat, Sampler sampler, const TextWatchFlags& flags, int every)
      : session_(*setup.session),
        tokenizer_(setup.model->tokenizer()),
        sampler_(std::move(sampler)),
        talk_(session_, sampler_, Conversation(tokenizer_, &chat)),
        encoder_(tokenizer_, {.add_special = false}),
        flags_(flags),
        every_(every),
        next_report_ms_(flags.report_ms) {}

  Status Begin(const RuleFlags& rule_flags, std::vector<Rule> rules) {
    std::optional<std::string> system;
    if (!flags_.system.empty()) system = flags_.system;
    TalkReading reading = Reading();
    reading.pinned = system.has_value();
    WEIR_RETURN_IF_ERROR(talk_.Read(talk_.conversation().Begin(system), reading));
    WEIR_RETURN_IF_ERROR(talk_.OpenTurn(Reading()));
    talk_.conversation().TextRead();
    if (flags_.skip_same > 0) {
      WEIR_ASSIGN_OR_RETURN(same_, RepeatedLines::Make(flags_.skip_same, session_.ledger()));
    }
    WEIR_ASSIGN_OR_RETURN(
        rules_, RuleWatch::Make(rule_flags, std::move(rules), session_, tokenizer_, talk_.conversation(), flags_.json));
    return Status();
  }

  Status Read(FollowedText& text) {
    std::string piece;
    for (;;) {
      WEIR_ASSIGN_OR_RETURN(const FollowedText::Got got, text.Read(kQuietMs, &piece));
      n_skipped_ = text.n_skipped_bytes();
      if (StopFlag()) break;
      if (got == FollowedText::Got::kText && same_) {
        const Status status = TakeLines(piece);
        if (!status.ok() && !StopFlag()) return status;
      } else if (got == FollowedText::Got::kText) {
        encoder_.Push(piece, &waiting_);
        ends_line_ = piece.back() == '\n';
      } else if (got == FollowedText::Got::kEnd && !line_.empty()) {
        encoder_.Push(std::exchange(line_, {}), &waiting_);
        encoder_.Finish(&waiting_);
      } else if (encoder_.pending_bytes() > 0 && (got == FollowedText::Got::kEnd || ends_line_)) {
        encoder_.Finish(&waiting_);
      }
      const Status status = Look(got != FollowedText::Got::kText);
      if (!status.ok() && !StopFlag()) return status;
      if (got == FollowedText::Got::kEnd) break;
      WEIR_RETURN_IF_ERROR(ReportIfDue());
    }
    return Status();
  }

  Status End() {
    rules_->End();
    return Report();
  }

 private:
  TalkReading Reading() const {
    TalkReading reading;
    reading.t_src_ms = Now();
    reading.stop = &StopFlag();
    return reading;
  }
  // A text that is read whole has no clock: its events are the same at every reading.
  int64_t Now() const { return flags_.whole ? 0 : Running(); }
  int64_t Running() const { return static_cast<int64_t>(MillisecondsSince(start_)); }

  bool EndsLine(int32_t token) const { return tokenizer_.TokenBytes(token).find('\n') != std::string::npos; }
  // How many of the waiting tokens to read before the next check: to the end of a line, where one ends soon; 0: more
  // have to come first.
  size_t Next(bool quiet) const {
    const auto every = static_cast<size_t>(every_);
    if (waiting_.size() < every) return quiet ? waiting_.size() : 0;
    const size_t most = std::min(waiting_.size(), 2 * every);
    for (size_t n = every; n <= most; ++n) {
      if (EndsLine(waiting_[n - 1])) return n;
    }
    return most == 2 * every || quiet ? most : 0;
  }

  // A piece line by line, without those that say nothing new.
  Status TakeLines(std::string_view piece) {
    while (!piece.empty() && !StopFlag()) {
      const size_t n = std::min(piece.find('\n'), piece.size() - 1) + 1;
      const std::string_view more = piece.substr(0, n);
      piece.remove_prefix(n);
      line_ += more;
      const bool ends = more.back() == '\n';
      ends_line_ = ends;
      // The rest of a line that is too long to wait for its end.
      if (!ends && line_.size() < kMostLineBytes) break;
      if (std::exchange(cut_, !ends)) {
        encoder_.Push(line_, &waiting_);
        line_.clear();
        continue;
      }
      if (same_->IsNew(line_)) {
        encoder_.Push(line_, &waiting_);
        WEIR_RETURN_IF_ERROR(Look(false));
      } else {
        n_same_bytes_ += std::ssize(line_);
        WEIR_RETURN_IF_ERROR(PassSame());
      }
      line_.clear();
    }
    return ReportIfDue();
  }

  // Lines that were left out count for rules as if they had been read: about four bytes are a token.
  Status PassSame() {
    const int64_t bytes_of_check = int64_t{4} * every_;
    if (n_same_bytes_ < bytes_of_check) return Status();
    n_same_bytes_ = 0;
    // What was read since the last check comes first.
    if (encoder_.pending_bytes() > 0) encoder_.Finish(&waiting_);
    if (!waiting_.empty()) return Look(true);
    return rules_->Repeat(1, Now(), {{"line", Line()}});
  }

  int64_t Line() const { return same_ ? same_->n_lines() : n_lines_; }

  Status Look(bool quiet) {
    while (!StopFlag()) {
      const size_t n = Next(quiet);
      if (n == 0) break;
      const std::span<const int32_t> part = std::span(waiting_).first(n);
      WEIR_RETURN_IF_ERROR(talk_.Read(part, Reading()));
      n_lines_ += std::ranges::count_if(part, [this](int32_t id) { return EndsLine(id); });
      waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(n));
      WEIR_RETURN_IF_ERROR(rules_->Check(talk_.conversation(), Now(), {{"line", Line()}}));
      WEIR_RETURN_IF_ERROR(ReportIfDue());
    }
    return Status();
  }

  Status ReportIfDue() {
    if (flags_.report_ms == 0 || Running() < next_report_ms_) return Status();
    next_report_ms_ = (Running() / flags_.report_ms + 1) * flags_.report_ms;
    return Report();
  }

  Status Report() {
    const SessionCounters tokens = session_.counters();
    if (!flags_.json) {
      Print(stderr, "watch    at {} {} lines, {} bytes left out; tokens {} seen, {} kept; session {}, process {}\n{}\n",
            TimeText(Now()), CountText(Line()) + (same_ ? ", " + CountText(same_->n_same()) + " of them the same" : ""),
            CountText(n_skipped_), CountText(tokens.seen), CountText(tokens.kept),
            BytesText(session_.ledger().used_bytes()), BytesText(ResidentBytes()), rules_->FiguresText());
      return Status();
    }
    nlohmann::ordered_json line = {{"type", "report"},
                                   {"t_ms", Now()},
                                   {"line", Line()},
                                   {"bytes_skipped", n_skipped_},
                                   {"tokens_seen", tokens.seen},
                                   {"tokens_kept", tokens.kept},
                                   {"tokens_dropped", tokens.dropped},
                                   {"rules", rules_->Figures()},
                                   {"session_bytes", session_.ledger().used_bytes()},
                                   {"resident_bytes", ResidentBytes()}};
    if (same_) line["lines_same"] = same_->n_same();
    Print(stdout, "{}\n", JsonText(line));
    return FlushOutput();
  }

  Session& session_;
  const Tokenizer& tokenizer_;
  Sampler sampler_;
  Talk talk_;
  StreamEncoder encoder_;
  const TextWatchFlags& flags_;
  const int every_;
  std::unique_ptr<RuleWatch> rules_;
  std::vector<int32_t> waiting_;  // encoded and not yet read
  bool ends_line_ = false;        // the last piece did
  std::optional<RepeatedLines> same_;
  std::string line_;  // with same_: the line whose end has not come
  bool cut_ = false;  // its beginning was read already
  int64_t n_same_bytes_ = 0;
  int64_t n_lines_ = 0, n_skipped_ = 0;
  int64_t next_report_ms_;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace

Status WatchText(const ModelFlags& model_flags, const PotFlags& pot_flags, const RuleFlags& rule_flags,
                 std::vector<Rule> rules, const TextWatchFlags& flags) {
  if (flags.whole && !rule_flags.cooldown.empty()) {
    return InvalidArgument("--cooldown needs a clock, which a text that is read with --fast does not have");
  }
  WEIR_ASSIGN_OR_RETURN(FollowedText text, FollowedText::Open(flags.follow, flags.whole));
  WEIR_ASSIGN_OR_RETURN(const Setup setup, MakeSetup(model_flags, pot_flags, "", {true, ""}));
  WEIR_ASSIGN_OR_RETURN(const ChatTemplate chat,
                        ChatTemplate::ForFile(setup.model->file(), setup.model->tokenizer(), model_flags.chat_template,
                                              model_flags.chat_arguments));
  AnswerFlags answer;
  WEIR_ASSIGN_OR_RETURN(Sampler sampler, MakeSampler(&answer));
  TextWatcher watcher(setup, chat, std::move(sampler), flags, rule_flags.check > 0 ? rule_flags.check : kDefaultEvery);
  WEIR_RETURN_IF_ERROR(watcher.Begin(rule_flags, std::move(rules)));
  WEIR_RETURN_IF_ERROR(watcher.Read(text));
  WEIR_RETURN_IF_ERROR(watcher.End());
  WEIR_RETURN_IF_ERROR(FinishTrace(setup.trace.get(), *setup.session));
  return StopFlag() ? Cancelled("stopped; the events so far are above") : Status();
}

}  // namespace weir::app
