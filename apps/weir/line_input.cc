// SPDX-License-Identifier: Apache-2.0
#include "line_input.h"

#include <histedit.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "common.h"

namespace weir::app {
namespace {

// xterm's bracketed paste mode: the terminal marks pasted text.
constexpr std::string_view kMarkPastes = "\033[?2004h", kMarkNoPastes = "\033[?2004l";
constexpr const wchar_t *kPasteBegins = L"\033[200~", *kPasteEnds = L"\033[201~";

constexpr int kWaitMs = 200;

// For a process that ends in the signal handler.
struct Terminal {
  int fd = -1;
  bool marks_pastes = false;
  termios mode{};
};
Terminal terminal_at_start;

void RestoreTerminal() {
  const Terminal& was = terminal_at_start;
  if (was.fd < 0) return;
  tcsetattr(STDIN_FILENO, TCSANOW, &was.mode);
  if (was.marks_pastes && write(was.fd, kMarkNoPastes.data(), kMarkNoPastes.size()) < 0) return;
}

// Another process group's terminal must be left alone: changing its mode would stop the program (`weir watch ... &`).
bool InForeground() { return tcgetpgrp(STDIN_FILENO) == getpgrp(); }

// libedit asks the locale what a character is. Everything here is UTF-8, whatever the user's locale is.
class Utf8Locale {
 public:
  Utf8Locale() : ours_(newlocale(LC_CTYPE_MASK, "C.UTF-8", locale_t{})) {
    if (ours_ != locale_t{}) before_ = uselocale(ours_);
  }
  ~Utf8Locale() {
    if (ours_ == locale_t{}) return;
    uselocale(before_);
    freelocale(ours_);
  }
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;

 private:
  locale_t ours_, before_{};
};

}  // namespace

// Standard input, with waits that Ctrl-C ends.
class LineInput::Bytes {
 public:
  enum Result { kRead, kEnd, kStopped, kNothing };
  // Adds the bytes that arrive within `wait_ms`; kNothing if none do.
  Result Fill(int wait_ms) {
    char buffer[1 << 16];
    for (;;) {
      if (StopFlag()) return kStopped;
      pollfd ready{STDIN_FILENO, POLLIN, 0};
      const int n_ready = poll(&ready, 1, wait_ms);
      if (n_ready < 0 && errno == EINTR) continue;
      if (n_ready == 0) return kNothing;
      const ssize_t n = read(STDIN_FILENO, buffer, sizeof(buffer));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) error_ = errno;
      if (n <= 0) return kEnd;
      waiting_.erase(0, at_);
      at_ = 0;
      waiting_.append(buffer, static_cast<size_t>(n));
      return kRead;
    }
  }
  std::string_view waiting() const { return std::string_view(waiting_).substr(at_); }
  void Take(size_t n) { at_ += n; }
  int error() const { return error_; }  // why there was an end; 0: it was one

 private:
  std::string waiting_;
  size_t at_ = 0;
  int error_ = 0;
};

class LineInput::Editor {
 public:
  // nullptr when there is no terminal to edit on.
  static std::unique_ptr<Editor> Open(Bytes* bytes, bool waits) {
    if (isatty(STDIN_FILENO) == 0 || (!waits && !InForeground())) return nullptr;
    std::unique_ptr<Editor> out(new Editor(bytes));
    return out->Start() ? std::move(out) : nullptr;
  }
  ~Editor() {
    if (editor_ != nullptr) el_end(editor_);
    if (history_ != nullptr) history_wend(history_);
    RestoreTerminal();
    terminal_at_start.fd = -1;
    if (screen_ != nullptr && screen_ != stderr) std::fclose(screen_);
  }

  Event Read(const char* prompt, std::string* line) {
    const Utf8Locale utf8;
    prompt_.assign(prompt, prompt + std::strlen(prompt));
    stopped_ = false;
    int n = 0;
    const wchar_t* text = el_wgets(editor_, &n);
    if (stopped_) {
      const LineInfoW* typed = el_wline(editor_);
      *line = Utf8({typed->buffer, typed->lastchar});
      std::fputs("^C\n", screen_);
      return Event::kInterrupted;
    }
    if (text == nullptr || n <= 0) {
      std::fputc('\n', screen_);
      return Event::kEnd;
    }
    std::wstring_view view(text, static_cast<size_t>(n));
    if (view.back() == L'\n') view.remove_suffix(1);
    *line = Utf8(view);
    Remember(view);
    return Event::kLine;
  }

  Event Poll(std::string* line) {
    const Utf8Locale utf8;
    if (!polled_) BeginPolling();
    LookAtTerminal();
    if (bytes_->waiting().empty()) {
      const Bytes::Result result = bytes_->Fill(0);
      if (result == Bytes::kStopped) return Event::kInterrupted;
      if (result == Bytes::kEnd) return Event::kEnd;
    }
    while (!bytes_->waiting().empty()) {
      int n = 0;
      const wchar_t* text = el_wgets(editor_, &n);  // unbuffered: one key
      // Unbuffered, libedit hands Ctrl-D on an empty line over as a character.
      if (text != nullptr && n == 1 && text[0] == L'\004') return Event::kEnd;
      if (text == nullptr || n <= 0 || text[n - 1] != L'\n') continue;
      const std::wstring typed(text, static_cast<size_t>(n - 1));
      *line = Utf8(typed);
      Remember(typed);
      std::fflush(screen_);
      el_wset(editor_, EL_UNBUFFERED, 0);  // the next line
      BeginPolling();
      return Event::kLine;
    }
    return Event::kNothing;
  }

  void SetCommands(std::vector<std::string> commands) { commands_ = std::move(commands); }

  void Redraw() {
    const Utf8Locale utf8;
    const LineInfoW* typed = polled_ ? el_wline(editor_) : nullptr;
    if (typed != nullptr && typed->lastchar > typed->buffer) el_wset(editor_, EL_REFRESH);
  }

 private:
  explicit Editor(Bytes* bytes) : bytes_(bytes) {}

  bool Start() {
    const Utf8Locale utf8;
    if (tcgetattr(STDIN_FILENO, &terminal_at_start.mode) != 0) return false;
    const char* name = ttyname(STDIN_FILENO);
    screen_ = isatty(STDERR_FILENO) != 0 ? stderr : name != nullptr ? std::fopen(name, "w") : nullptr;
    if (screen_ == nullptr) return false;
    history_ = history_winit();
    editor_ = el_init("weir", stdin, screen_, screen_);
    if (history_ == nullptr || editor_ == nullptr) return false;
    terminal_at_start.fd = fileno(screen_);
    AtHardStop(RestoreTerminal);
    HistEventW event;
    constexpr int kRecalled = 1000;
    history_w(history_, &event, H_SETSIZE, kRecalled);
    history_w(history_, &event, H_SETUNIQUE, 1);
    el_wset(editor_, EL_CLIENTDATA, this);
    el_wset(editor_, EL_GETCFN, Next);
    el_wset(editor_, EL_PROMPT, Prompt);
    el_wset(editor_, EL_HIST, history_w, history_);
    el_wset(editor_, EL_EDITOR, L"emacs");
    el_wset(editor_, EL_ADDFN, L"weir-paste", L"Insert what is pasted", Paste);
    el_wset(editor_, EL_BIND, kPasteBegins, L"weir-paste", nullptr);
    el_wset(editor_, EL_ADDFN, L"weir-complete", L"Complete a command or a file's name", Complete);
    el_wset(editor_, EL_BIND, L"\t", L"weir-complete", nullptr);
    // Between lines too, the kernel must not collect a line of its own: it would cut it.
    el_wset(editor_, EL_SETTY, L"-x", L"-icanon", nullptr);
    termios mode = terminal_at_start.mode;
    mode.c_lflag &= ~static_cast<tcflag_t>(ICANON);
    mode.c_cc[VMIN] = 1;
    mode.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &mode);
    const char* kind = std::getenv("TERM");
    if (kind != nullptr && std::strcmp(kind, "dumb") != 0 && std::strcmp(kind, "emacs") != 0) {
      terminal_at_start.marks_pastes = true;
      std::fputs(kMarkPastes.data(), screen_);
      std::fflush(screen_);
    }
    return true;
  }

  void BeginPolling() {
    polled_ = true;
    el_wset(editor_, EL_UNBUFFERED, 1);
  }

  void Remember(std::wstring_view text) {
    HistEventW event;
    if (!text.empty()) history_w(history_, &event, H_ENTER, std::wstring(text).c_str());
  }

  static Editor* Of(EditLine* editor) {
    void* out = nullptr;
    el_wget(editor, EL_CLIENTDATA, &out);
    return static_cast<Editor*>(out);
  }
  static wchar_t* Prompt(EditLine* editor) { return Of(editor)->prompt_.data(); }

  // The next character: 1, 0 at the end, -1 after Ctrl-C. Polled, the rest of a key or of a paste that does not come is
  // not waited for.
  static int Next(EditLine* editor, wchar_t* out) {
    Editor& self = *Of(editor);
    for (bool more = true;;) {
      const std::string_view waiting = self.bytes_->waiting();
      if (!waiting.empty()) {
        const Utf8Char c = DecodeUtf8(waiting, 0);
        if (!c.truncated || !more) {
          self.bytes_->Take(static_cast<size_t>(c.bytes));
          *out = static_cast<wchar_t>(c.cp);
          return 1;
        }
      }
      if (!more) return 0;
      const Bytes::Result result = self.bytes_->Fill(kWaitMs);
      if (result == Bytes::kNothing) {
        if (!self.polled_) {
          self.LookAtTerminal();
        } else if (waiting.empty()) {
          return -1;
        } else {
          more = false;  // half a character
        }
        continue;
      }
      if (result == Bytes::kStopped) {
        self.stopped_ = true;
        return -1;
      }
      more = result == Bytes::kRead;
    }
  }

  // What happens to a terminal while nothing is typed.
  void LookAtTerminal() {
    if (!InForeground()) return;
    winsize size{};
    if (ioctl(fileno(screen_), TIOCGWINSZ, &size) == 0 && (size.ws_col != columns_ || size.ws_row != rows_)) {
      if (columns_ != 0) el_resize(editor_);
      columns_ = size.ws_col;
      rows_ = size.ws_row;
    }
    // After Ctrl-Z and `fg`, the shell may have left the terminal in another mode.
    termios mode{};
    if (tcgetattr(STDIN_FILENO, &mode) == 0 && (mode.c_lflag & ICANON) != 0) {
      el_wset(editor_, EL_PREP_TERM, 0);
      el_wset(editor_, EL_PREP_TERM, 1);
      el_wset(editor_, EL_REFRESH);
    }
  }

  // The text between the terminal's paste marks, including line feeds.
  static unsigned char Paste(EditLine* editor, wint_t) {
    const std::wstring_view end = kPasteEnds;
    std::wstring text;
    for (wchar_t c; el_wgetc(editor, &c) == 1;) {
      const bool after_return = !text.empty() && text.back() == L'\r';
      if (after_return) text.back() = L'\n';
      if (after_return && c == L'\n') continue;
      text.push_back(c == L'\0' ? L'\xFFFD' : c);
      if (text.ends_with(end)) {
        text.resize(text.size() - end.size());
        break;
      }
    }
    // The last line's end would only move the cursor.
    while (!text.empty() && (text.back() == L'\n' || text.back() == L'\r')) text.pop_back();
    if (!text.empty() && el_winsertstr(editor, text.c_str()) != 0) return CC_ERROR;
    return CC_REFRESH;
  }

  // Of a command, what all that begin alike have in common, and a list of them where nothing can be added; after a
  // command that takes a file, its name. Other text is not completed.
  static unsigned char Complete(EditLine* editor, int key) {
    const Editor& self = *Of(editor);
    const LineInfoW* const line = el_wline(editor);
    const std::string typed = Utf8({line->buffer, line->cursor});
    std::vector<std::string> fit;
    for (const std::string& command : self.commands_) {
      if (command.ends_with(' ') && typed.starts_with(command)) return _el_fn_complete(editor, key);
      if (command.starts_with(typed)) fit.push_back(command);
    }
    if (!typed.starts_with('/') || fit.empty()) return CC_ERROR;
    std::string shared = fit[0];
    for (const std::string& command : fit) {
      shared.resize(static_cast<size_t>(std::ranges::mismatch(shared, command).in1 - shared.begin()));
    }
    if (shared.size() > typed.size()) {
      const std::wstring rest(shared.begin() + static_cast<std::ptrdiff_t>(typed.size()), shared.end());
      return el_winsertstr(editor, rest.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
    }
    if (fit.size() == 1) return CC_NORM;
    std::fputc('\n', self.screen_);
    for (const std::string& command : fit) std::fprintf(self.screen_, "%s  ", command.c_str());
    std::fputc('\n', self.screen_);
    return CC_REDISPLAY;
  }

  static std::string Utf8(std::wstring_view text) {
    std::string out;
    for (const wchar_t c : text) AppendUtf8(static_cast<char32_t>(c), &out);
    return out;
  }

  Bytes* const bytes_;
  EditLine* editor_ = nullptr;
  HistoryW* history_ = nullptr;
  std::FILE* screen_ = nullptr;
  std::wstring prompt_;
  std::vector<std::string> commands_;
  bool stopped_ = false, polled_ = false;
  int columns_ = 0, rows_ = 0;
};

LineInput::LineInput(bool waits) : bytes_(std::make_unique<Bytes>()), editor_(Editor::Open(bytes_.get(), waits)) {}
LineInput::~LineInput() = default;

LineInput::Event LineInput::Read(const char* prompt, std::string* line) {
  line->clear();
  return editor_ != nullptr ? editor_->Read(prompt, line) : NextLine(kWaitMs, line);
}

LineInput::Event LineInput::Poll(std::string* line) {
  line->clear();
  return editor_ != nullptr ? editor_->Poll(line) : NextLine(0, line);
}

void LineInput::SetCommands(std::vector<std::string> commands) {
  if (editor_ != nullptr) editor_->SetCommands(std::move(commands));
}

void LineInput::Redraw() {
  if (editor_ != nullptr) editor_->Redraw();
}

Status LineInput::status() const {
  const int error = bytes_->error();
  return error == 0 ? Status() : IoError("cannot read standard input: {}", std::strerror(error));
}

LineInput::Event LineInput::NextLine(int wait_ms, std::string* line) {
  for (;;) {
    const std::string_view waiting = bytes_->waiting();
    if (const size_t end = waiting.find('\n', looked_at_); end != std::string_view::npos) {
      *line = waiting.substr(0, end);
      bytes_->Take(end + 1);
      looked_at_ = 0;
      break;
    }
    looked_at_ = waiting.size();
    const Bytes::Result result = bytes_->Fill(wait_ms);
    if (result == Bytes::kNothing && wait_ms == 0) return Event::kNothing;
    if (result == Bytes::kRead || result == Bytes::kNothing) continue;
    if (bytes_->error() != 0) return Event::kEnd;  // not with half a line
    *line = bytes_->waiting();
    bytes_->Take(line->size());
    looked_at_ = 0;
    if (result == Bytes::kStopped) return Event::kInterrupted;
    if (line->empty()) return Event::kEnd;
    break;
  }
  if (!line->empty() && line->back() == '\r') line->pop_back();
  return Event::kLine;
}

}  // namespace weir::app
