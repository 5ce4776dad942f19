// SPDX-License-Identifier: Apache-2.0
// weir chat and weir watch on a terminal: lines of any length, pastes, lines recalled, Ctrl-C. The terminal is a
// pseudo-terminal.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "cli/edited_model.h"
#include "cli/process.h"
#include "support/pictures.h"

namespace weir::testing {
namespace {

constexpr const char *kPasteBegins = "\033[200~", *kPasteEnds = "\033[201~", *kUp = "\033[A", *kCtrlC = "\003",
                     *kCtrlD = "\004";

// The program on a terminal of its own.
class TerminalRun {
 public:
  explicit TerminalRun(const std::vector<std::string>& arguments) {
    screen_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (screen_ < 0 || grantpt(screen_) != 0 || unlockpt(screen_) != 0) return;
    const std::string name = ptsname(screen_), program = ProgramPath();
    std::vector<char*> argv = {const_cast<char*>(program.c_str())};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    keyboard_ = open(name.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
    const winsize size{24, 80, 0, 0};
    ioctl(screen_, TIOCSWINSZ, &size);
    pid_ = fork();
    if (pid_ != 0) return;
    setsid();
    const int terminal = open(name.c_str(), O_RDWR);
    ioctl(terminal, TIOCSCTTY, 0);
    for (int fd = 0; fd < 3; ++fd) dup2(terminal, fd);
    setenv("TERM", "xterm", 1);
    execv(argv[0], argv.data());
    _exit(127);
  }
  ~TerminalRun() {
    if (pid_ > 0 && !ended_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(keyboard_);
    close(screen_);
  }

  // Types, and reads what is shown meanwhile.
  void Type(std::string_view text) {
    while (!text.empty() && Look(POLLOUT, text)) {
    }
  }
  // What is shown from the last call on, up to and including `text`; with a failure when it does not come.
  std::string Until(const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
    for (std::string_view nothing;;) {
      if (const size_t at = shown_.find(text); at != std::string::npos) {
        const std::string out = shown_.substr(0, at + text.size());
        shown_.erase(0, out.size());
        return out;
      }
      if (std::chrono::steady_clock::now() > end || !Look(0, nothing)) break;
    }
    ADD_FAILURE() << "'" << text << "' is not among what was shown:\n" << shown_;
    return "";
  }
  // The exit code.
  int Wait() {
    Until("");
    int status = 0;
    for (int i = 0; i < 1000; ++i) {
      std::string_view nothing;
      Look(0, nothing);
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        ended_ = true;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      }
    }
    return -2;
  }
  bool takes_whole_lines() const {
    termios mode{};
    tcgetattr(keyboard_, &mode);
    return (mode.c_lflag & ICANON) != 0 && (mode.c_lflag & ECHO) != 0;
  }

 private:
  // One step of reading and, where `writes` is POLLOUT, of writing. False when the program has gone.
  bool Look(int16_t writes, std::string_view& text) {
    pollfd ready{screen_, static_cast<int16_t>(POLLIN | writes), 0};
    if (poll(&ready, 1, 100) < 0) return false;
    char buffer[1 << 14];
    if ((ready.revents & POLLIN) != 0) {
      const ssize_t n = read(screen_, buffer, sizeof(buffer));
      if (n <= 0) return false;
      shown_.append(buffer, static_cast<size_t>(n));
    } else if ((ready.revents & POLLHUP) != 0) {
      return false;
    }
    if ((ready.revents & POLLOUT) != 0 && writes != 0) {
      const ssize_t n = write(screen_, text.data(), std::min<size_t>(text.size(), 1000));
      if (n > 0) text.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  int screen_ = -1, keyboard_ = -1;
  pid_t pid_ = -1;
  bool ended_ = false;
  std::string shown_;
};

std::vector<std::string> Chat() {
  return {"chat", "-m", ModelPath("llama"), "--pot", "64", "-n", "4", "--ignore-eos", "--temp", "0"};
}

std::string LastTokens(const std::string& text) {
  const size_t at = text.rfind("tokens   ");
  return at == std::string::npos ? "" : text.substr(at, text.find(" seen", at) - at);
}

TEST(ChatTerminalTest, ALineOfAnyLengthArrivesWhole) {
  std::string line;
  while (line.size() < 100000) line += "the man and the sea ";
  RunOptions piped;
  piped.input = line + "\n";
  const RunResult want = RunWeir(Chat(), piped);
  ASSERT_EQ(want.code, 0) << want.err;

  TerminalRun run(Chat());
  run.Until("> ");
  run.Type(line + "\r");
  run.Until("kept ");
  run.Until("> ");
  run.Type(kCtrlD);
  const std::string end = run.Until("seen");
  EXPECT_EQ(run.Wait(), 0);
  EXPECT_EQ(LastTokens(end + " seen"), LastTokens(want.err));
  EXPECT_TRUE(run.takes_whole_lines());
}

TEST(ChatTerminalTest, LinesPastedTogetherAreOneMessage) {
  TerminalRun run(Chat());
  run.Until("> ");
  run.Type(std::string(kPasteBegins) + "the man\rthe sea\r\nthe old boat\r" + kPasteEnds + "\r");
  run.Until("kept ");
  run.Until("> ");
  run.Type("/exit\r");
  const std::string end = run.Until("seen");
  EXPECT_EQ(end.find("kept "), std::string::npos) << end;
  EXPECT_EQ(run.Wait(), 0);
}

// Every word of the model has a sequence that renames the terminal's window. A pipe gets what the model wrote; a
// terminal shows it, and does not obey.
TEST(ChatTerminalTest, ControlSequencesOfAnAnswerAreShown) {
  const std::string sequence = "\033]0;owned\007", shown = "\\x1b]0;owned\\x07";
  EditedModel model("llama");
  for (std::string& text : std::get<std::vector<std::string>>(model.metadata.at("tokenizer.ggml.tokens").v)) {
    if (text[0] != '<') text = sequence + text;
  }
  const TempDir folder;
  std::vector<std::string> arguments = Chat();
  arguments[2] = folder.Write("model.gguf", model.Bytes());
  RunOptions piped;
  piped.input = "the man\n";
  const RunResult exact = RunWeir(arguments, piped);
  ASSERT_EQ(exact.code, 0) << exact.err;
  EXPECT_NE(exact.out.find(sequence), std::string::npos) << exact.out;
  TerminalRun run(arguments);
  run.Until("> ");
  run.Type("the man\r");
  const std::string answer = run.Until("kept ");
  EXPECT_NE(answer.find(shown), std::string::npos) << answer;
  EXPECT_EQ(answer.find(sequence), std::string::npos) << answer;
  run.Type(kCtrlD);
  EXPECT_EQ(run.Wait(), 0);
}

TEST(ChatTerminalTest, TheUpArrowRecallsALine) {
  TerminalRun run(Chat());
  run.Until("> ");
  run.Type("/memory\r");
  run.Until("seen");
  run.Until("> ");
  run.Type(std::string(kUp) + "\r");
  run.Until("/memory");
  run.Until("seen");
  run.Type("/exit\r");
  EXPECT_EQ(run.Wait(), 0);
}

TEST(ChatTerminalTest, TabCompletesCommandsAndFiles) {
  const TempDir folder;
  folder.Write("the-old-boat.txt", "the man and the sea\n");
  TerminalRun run(Chat());
  run.Until("> ");
  run.Type("/me\t\r");
  run.Until("tokens   ");  // what /memory says
  run.Until("seen");
  run.Until("> ");
  run.Type("/\t");  // several: a list of them
  run.Until("/file ");
  run.Until("/video ");
  run.Until("> ");
  run.Type("fi\t" + folder.path() + "/the-\t\r");
  run.Until("tokens of " + folder.File("the-old-boat.txt"));
  run.Until("> ");
  run.Type("the\tman\r");  // text is left as it is
  run.Until("kept ");
  run.Type("/exit\r");
  EXPECT_EQ(run.Wait(), 0);
}

TEST(ChatTerminalTest, AnAnswerEndsWithPotRateAndMemory) {
  TerminalRun run(Chat());
  run.Until("> ");
  run.Type("the man\r");
  run.Until("kept ");
  const std::string line = run.Until("iB\r\n");
  EXPECT_NE(line.find("/64, "), std::string::npos) << line;
  EXPECT_NE(line.find(" tokens/s, process "), std::string::npos) << line;
  run.Type("/exit\r");
  EXPECT_EQ(run.Wait(), 0);
}

TEST(ChatTerminalTest, CtrlCDropsALineAndThenEnds) {
  TerminalRun run(Chat());
  run.Until("> ");
  run.Type("the man and the");
  run.Until("and the");
  run.Type(kCtrlC);
  run.Until("> ");
  run.Type("/memory\r");
  EXPECT_NE(run.Until("seen").find("tokens   "), std::string::npos);
  run.Until("> ");
  run.Type(kCtrlC);
  run.Until("Ctrl-D");
  run.Until("> ");
  run.Type(kCtrlC);
  EXPECT_EQ(run.Wait(), 130);
  EXPECT_TRUE(run.takes_whole_lines());
}

class WatchTerminalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
  }
  // Watches a video that lasts longer than the test, and tells of frames all the time.
  std::vector<std::string> Watch() const {
    return {"watch",
            folder_.Write("clip.y4m", Y4mBytes(2000, 4)),
            "-m",
            VisionPath("llava.gguf"),
            "--mmproj",
            VisionPath("clip.gguf"),
            "--pot",
            "128",
            "--policy",
            "streaming_llm",
            "-n",
            "4",
            "--ignore-eos",
            "--temp",
            "0",
            "--fps",
            "4",
            "--report",
            "1s",
            "-o",
            "json"};
  }
  const TempDir folder_;
};

constexpr const char* kReport = "{\"type\":\"report\"";

TEST_F(WatchTerminalTest, AQuestionOfAnyLengthArrivesWholeWhileFramesGoOn) {
  std::string question;
  while (question.size() < 10000) question += "the man and the sea ";
  question += "ends";
  TerminalRun run(Watch());
  run.Until(kReport);
  run.Type(question);
  // Neither half a question nor half a key stops the video.
  for (int i = 0; i < 2; ++i) {
    run.Until(kReport);
    run.Type("\033");
    run.Until(kReport);
  }
  run.Type("\r");
  EXPECT_NE(run.Until("\"stop\"").find("\"question\":\"" + question + "\""), std::string::npos);
  run.Type(std::string(kPasteBegins) + "the man\rthe sea" + kPasteEnds + "!\r");
  EXPECT_NE(run.Until("\"stop\"").find("\"question\":\"the man\\nthe sea!\""), std::string::npos);
  run.Until(kReport);
  run.Type(kCtrlC);
  EXPECT_EQ(run.Wait(), 130);
  EXPECT_TRUE(run.takes_whole_lines());
}

TEST_F(WatchTerminalTest, AQuestionCanBeCorrectedAndTheVideoGoesOnWithoutAKeyboard) {
  TerminalRun run(Watch());
  run.Until(kReport);
  run.Type("the mam\177n?\r");
  EXPECT_NE(run.Until("\"stop\"").find("\"question\":\"the man?\""), std::string::npos);
  run.Type(std::string(kUp) + "!\r");
  EXPECT_NE(run.Until("\"stop\"").find("\"question\":\"the man?!\""), std::string::npos);
  run.Type(kCtrlD);
  run.Until(kReport);
  run.Until(kReport);
  EXPECT_TRUE(run.takes_whole_lines());
  run.Type(kCtrlC);
  EXPECT_EQ(run.Wait(), 130);
}

}  // namespace
}  // namespace weir::testing
