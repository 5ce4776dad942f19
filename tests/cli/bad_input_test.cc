// SPDX-License-Identifier: Apache-2.0
// Prompts, flags, budgets and policies that cannot be honoured.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/refusal.h"

namespace weir::testing {
namespace {

using BadInputTest = RefusalTest;

TEST_F(BadInputTest, EmptyAndUnreadablePrompts) {
  const std::string model = ModelPath("llama");
  ExpectError({"run", "-m", model, "-p", ""}, {"empty"});
  ExpectError({"run", "-m", model}, {"empty", "-p", "-f"});
  ExpectError({"run", "-m", model, "-f", dir_.Write("empty.txt", "")}, {"empty"});
  ExpectError({"run", "-m", model, "-f", dir_.path()}, {"directory"});
  ExpectError({"run", "-m", model, "-f", dir_.File("none.txt")}, {"none.txt", "No such file"});
  ExpectError({"run", "-m", model, "-f", "-"}, {"empty"});
  ExpectError({"run", "-m", model, "-p", "a", "-f", "b"}, {"--prompt", "--file"});
  ExpectError({"run", "-m", model, "-p", "a", "--chat", "--parse-special"}, {"--chat", "--parse-special"});
  ExpectError({"read", dir_.path(), "-m", model, "--ask", "why"}, {"directory"});
  ExpectError({"read", dir_.File("none.txt"), "-m", model, "--ask", "why"}, {"none.txt", "No such file"});
  ExpectError({"read", dir_.File("empty.txt"), "-m", model, "--ask", "why"}, {"empty.txt", "no text"}, /*before=*/true);
  ExpectError({"read", dir_.File("empty.txt"), "-m", model, "--ask", ""}, {"--ask"});
  ExpectError({"eval", "ppl", "-m", model, "-f", dir_.File("empty.txt")}, {"empty.txt", "no text"}, /*before=*/true);
  ExpectError({"eval", "ppl", "-m", model, "-f", dir_.path()}, {"directory"});
  if (geteuid() != 0) {
    chmod(dir_.File("empty.txt").c_str(), 0);
    ExpectError({"run", "-m", model, "-f", dir_.File("empty.txt")}, {"Permission denied"});
  }
}

TEST_F(BadInputTest, BrokenUtf8IsReplacedAndCounted) {
  const std::string broken = std::string("the \xff man \xc3 and \xe2\x82") + " end";
  const Arguments tail = {"-m", ModelPath("llama"), "--temp", "0", "-n", "3"};
  for (const Arguments& head :
       {Arguments{"run", "-f", dir_.Write("broken.txt", broken)}, Arguments{"run", "-p", broken},
        Arguments{"run", "--chat", "-p", broken}, Arguments{"read", dir_.File("broken.txt"), "--ask", "who"}}) {
    Arguments all = head;
    all.insert(all.end(), tail.begin(), tail.end());
    const RunResult run = Run(all);
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_NE(run.err.find("weir: warning: "), std::string::npos) << run.err;
    EXPECT_NE(run.err.find(" 3 invalid sequences"), std::string::npos) << run.err;
  }
  const RunResult question =
      Run({"read", dir_.Write("good.txt", "the man"), "--ask", "\xff?", "-m", ModelPath("llama"), "-n", "1"});
  EXPECT_EQ(question.code, 0);
  EXPECT_NE(question.err.find(" 1 invalid sequence"), std::string::npos) << question.err;
  // JSON stays JSON, whatever the names are.
  const std::string odd = dir_.Write("\xff.gguf", FileBytes(ModelPath("llama_tied")));
  EXPECT_EQ(Run({"plan", "-m", odd, "-o", "json"}).code, 0);
  EXPECT_EQ(Run({"bench", "-m", odd, "-o", "jsonl", "-p", "2", "-n", "0", "-r", "1"}).code, 0);
  EXPECT_EQ(Run({"eval", "ppl", "-m", odd, "-f", dir_.File("broken.txt")}).code, 0);
}

TEST_F(BadInputTest, PotsAndBudgetsThatCannotWork) {
  ExpectError(RunTiny({"--pot", "3"}), {"pot of 3 tokens", "weir", "at least 6"});
  ExpectError(RunTiny({"--pot", "40", "--policy", "streaming_llm:sinks=64"}), {"pot of 40 tokens", "at least 66"});
  ExpectError(RunTiny({"--budget", "1KiB"}), {"budget of 1024 bytes", "smallest that works is "});
  ExpectError(RunTiny({"--budget", "1MiB", "--pot", "100000"}), {"100000", "1048576"});
  // More than any machine has is only a limit: the pot stops at the context the model was trained with.
  EXPECT_EQ(Run(RunTiny({"--budget", "900000GB"})).code, 0);

  // The minimum that the message names works; one byte less does not.
  const std::string message = Run(RunTiny({"--budget", "1"})).err;
  const std::string words = "smallest that works is ";
  const size_t at = message.find(words);
  ASSERT_NE(at, std::string::npos) << message;
  const int64_t least = std::stoll(message.substr(at + words.size()));
  const RunResult run = Run(RunTiny({"--budget", std::to_string(least)}));
  EXPECT_EQ(run.code, 0) << run.err;
  ExpectError(RunTiny({"--budget", std::to_string(least - 1)}), {words + std::to_string(least)});
  EXPECT_EQ(Run(RunTiny({"--budget", std::to_string(least), "--chunk", "64"})).code, 0);
}

TEST_F(BadInputTest, Policies) {
  ExpectError(RunTiny({"--policy", "nope"}), {"nope", "streaming_llm", "full", "window"});
  ExpectError(RunTiny({"--policy", ""}), {"streaming_llm"});
  ExpectError(RunTiny({"--policy", "streaming_llm:frob=1"}), {"frob", "sinks"});
  ExpectError(RunTiny({"--policy", "streaming_llm:sinks"}), {"key=value"});
  ExpectError(RunTiny({"--policy", "streaming_llm:sinks=-1"}), {"sinks=-1"});
  ExpectError(RunTiny({"--policy", "streaming_llm:sinks=2.5"}), {"sinks=2.5", "whole number"});
  ExpectError(RunTiny({"--policy", "streaming_llm:sinks=many"}), {"sinks=many"});
}

TEST_F(BadInputTest, FlagsOfOtherPrograms) {
  ExpectError(RunTiny({"-fa", "on"}), {"-fa", "one pass"});
  ExpectError(RunTiny({"-cnv"}), {"-cnv", "weir chat"});
  ExpectError(RunTiny({"-mu", "http://somebody/model"}), {"-mu", "-m"});
  ExpectError({"serve", "-m", ModelPath("llama"), "-np", "4"}, {"-np", "--answer-pots"});
  ExpectError({"serve", "-m", ModelPath("llama"), "--top-p", "0"}, {"top-p"});
  ExpectError({"serve", "-m", ModelPath("llama"), "--port", "0", "--otlp", "nonsense"}, {"--otlp", "http://collector"});
  ExpectError({"serve", "-m", ModelPath("llama"), "--trace-sample", "0.5"}, {"--trace-sample", "--otlp"});
  ExpectError({"serve", "-m", ModelPath("llama"), "--log-format", "xml"}, {"--log-format", "json"});
  ExpectError(RunTiny({"--flash-attn", "on"}), {"--flash-attn", "one pass"});
  // Read as a letter and its value they would be -n o-cnv, -s m and -d t.
  ExpectError(RunTiny({"-no-cnv"}), {"-no-cnv is not a flag here", "leave it out"});
  ExpectError(RunTiny({"-sm", "none"}), {"-sm is not a flag here"});
  ExpectError({"bench", "-m", ModelPath("llama"), "-dt", "0.1"}, {"-dt is not a flag here"});
  for (const char* flag : {"-i", "-e", "-r", "-co", "--mlock", "--no-mmap", "--no-jinja", "--lora", "--color",
                           "--no-display-prompt", "-ub", "-tb", "-st", "--mirostat=2"}) {
    ExpectError(RunTiny({flag}), {std::string(flag) + " is not a flag here: ", "docs/from-llama-cpp.md"});
  }
  // As text they are not flags.
  EXPECT_EQ(Run({"run", "-m", ModelPath("llama"), "-p", "-fa", "-n", "4"}).code, 0);
  EXPECT_EQ(Run({"run", "-m", ModelPath("llama"), "-p", "-sys", "-n", "4"}).code, 0);
  EXPECT_EQ(Run(RunTiny({"-c", "0"})).code, 0);
  // Where a command has a flag of that name, it is that flag.
  ExpectError({"bench", "-m", ModelPath("llama"), "-r", "x"}, {"--repetitions", "x"});
  EXPECT_EQ(Run(RunTiny({"--chat", "--chat-template", "chatml", "-sys", "Be brief."})).code, 0);
}

TEST_F(BadInputTest, FlagsThatContradict) {
  ExpectError(RunTiny({"--pot", "64", "-c", "64"}), {"--pot", "--ctx-size"});
  ExpectError(RunTiny({"--system", "Be brief."}), {"--system", "--chat"});
  ExpectError(RunTiny({"--chat-template", "chatml"}), {"--chat-template", "--chat"});
  ExpectError(RunTiny({"--chat", "--chat-template", "nope"}), {"nope", "chatml"}, true);
  ExpectError(RunTiny({"--chat", "--chat-template", "{% if x %}"}), {"line 1 of the chat template", "endif"}, true);
  ExpectError(RunTiny({"--chat", "--chat-template", "{{ messages | length }}"}), {"does not show what a user says"},
              true);
  ExpectError(RunTiny({"--chat", "--chat-template-file", "/nonexistent"}), {"/nonexistent"});
  ExpectError(RunTiny({"--chat", "--chat-template-file", "/dev/zero"}), {"/dev/zero"});
  ExpectError(RunTiny({"--chat", "--chat-template-file", "/dev/null"}), {"/dev/null", "Jinja"});
  ExpectError(RunTiny({"--chat-template-file", "/dev/null"}), {"--chat"});
  ExpectError(RunTiny({"--chat", "--chat-template-kwargs", "{"}), {"--chat-template-kwargs", "JSON"}, true);
  ExpectError(RunTiny({"--chat", "--chat-template", "chatml", "--chat-template-kwargs", "{}"}), {"chatml"}, true);
  EXPECT_EQ(Run(RunTiny({"--chat", "--jinja", "--chat-template", "<u>{{ messages[-1].content }}<a>"})).code, 0);
  ExpectError({"read", "-", "-m", ModelPath("llama"), "--ask", "x", "--chat-template", "nope"}, {"nope", "chatml"},
              true);
  ExpectError({"chat", "-m", ModelPath("llama"), "--chat-template", "nope"}, {"nope", "chatml"}, true);

  EditedModel model("llama");
  model.metadata["tokenizer.chat_template"].v = std::string("{% for m in messages %}{{ m.secret_sauce }}{% endfor %}");
  const std::string odd = dir_.Write("odd.gguf", model.Bytes());
  ExpectError(RunWith(odd, {"--chat"}), {"--chat-template"}, true);
  ExpectError({"chat", "-m", odd}, {"--chat-template"}, true);
  ExpectError({"read", ModelPath("llama"), "-m", odd, "--ask", "x"}, {"--chat-template"}, true);
  model.metadata.erase("tokenizer.chat_template");
  const std::string none = dir_.Write("odd.gguf", model.Bytes());
  ExpectError(RunWith(none, {"--chat"}), {"--chat-template"}, true);
}

TEST_F(BadInputTest, InputBeyondAPotThatMayNotForget) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "the man and the sea ";
  const std::string file = dir_.Write("long.txt", text), model = ModelPath("llama");
  const Arguments full = {"--policy", "full", "--pot", "64"}, error = {"--on-overflow", "error", "--pot", "64"};
  const auto join = [](Arguments a, const Arguments& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  for (const Arguments& head :
       {Arguments{"run", "-m", model, "-f", file}, Arguments{"read", file, "-m", model, "--ask", "who"},
        Arguments{"eval", "ppl", "-m", model, "-f", file}}) {
    ExpectError(join(head, full), {"pot of 64 tokens", "policy full"}, true);
    ExpectError(join(head, error), {"pot of 64 tokens", "--on-overflow error"}, true);
  }
  // A conversation ends when the pot can take nothing more.
  RunOptions chat;
  chat.input = "the man and the sea\nthe man and the sea\nthe man and the sea\nthe man and the sea\n";
  for (const Arguments& flags : {full, error}) {
    const RunResult run = Run(join({"chat", "-m", model, "-n", "20", "--ignore-eos"}, flags), chat);
    EXPECT_EQ(run.code, 2);
    EXPECT_EQ(Lines(run.err).back().rfind("weir: error: ", 0), 0u) << run.err;
    EXPECT_NE(Lines(run.err).back().find("the pot of 64 tokens is full"), std::string::npos) << run.err;
  }
  // An answer that fills the pot is printed as far as it goes, and the exit code says that it is incomplete.
  const Arguments endless = {"-n", "600", "--ignore-eos", "--temp", "0", "--policy", "full", "--pot", "300"};
  for (const Arguments& head : {Arguments{"run", "-m", model, "-p", "the"},
                                Arguments{"read", dir_.Write("short.txt", "the sea"), "-m", model, "--ask", "who"}}) {
    const RunResult run = Run(join(head, endless));
    EXPECT_EQ(run.code, 2);
    EXPECT_FALSE(run.out.empty());
    EXPECT_NE(Lines(run.err).back().find("weir: error: the answer was cut short: the pot of 300 tokens is full"),
              std::string::npos)
        << run.err;
  }
}

TEST_F(BadInputTest, CommandLines) {
  ExpectError({}, {"subcommand"});
  ExpectError({"frobnicate"}, {"frobnicate"});
  ExpectError({"eval"}, {"subcommand"});
  ExpectError({"eval", "frobnicate"}, {"frobnicate"});
  ExpectError({"--frob"}, {"--frob"});
  ExpectError(RunTiny({"--frob"}), {"--frob", "weir run --help"});
  // A command rejects flags that it could only ignore.
  ExpectError({"plan", "-m", ModelPath("llama"), "--trace", "t"}, {"--trace", "weir plan --help"});
  ExpectError({"bench", "-m", ModelPath("llama"), "--trace", "t"}, {"--trace"});
  ExpectError({"bench", "-m", ModelPath("llama"), "--every", "9"}, {"--every", "--stream"});
  ExpectError({"bench", "-m", ModelPath("llama"), "--stream", "99", "--against", "full"}, {"--against", "--stream"});
  ExpectError({"eval", "greedy", "-m", ModelPath("llama"), "--ids", "1", "--trace", "t"}, {"--trace"});
  ExpectError({"eval", "ppl", "-m", ModelPath("llama"), "-f", "t", "--window", "64", "--segment", "9"},
              {"--segment", "--window"});
  ExpectError(RunTiny({"surplus"}), {"surplus"});
  ExpectError({"run", "-p", "x"}, {"--model"});
  ExpectError({"run", "-m"}, {"--model"});
  ExpectError(RunTiny({"-t", "-1"}), {"--threads", "-1"});
  ExpectError(RunTiny({"-t", "two"}), {"--threads", "two"});
  ExpectError(RunTiny({"-s", "1.5"}), {"--seed", "1.5"});
  ExpectError(RunTiny({"--pot", "0"}), {"--pot", "0"});
  ExpectError(RunTiny({"--pot", "99999999999999999999"}), {"--pot"});
  ExpectError(RunTiny({"--top-k", "x"}), {"--top-k"});
  ExpectError(RunTiny({"--device", "tpu"}), {"tpu", "cpu"});
  ExpectError(RunTiny({"-ctk", "q3"}), {"q3", "q8_0"});
  ExpectError(RunTiny({"-ctv", "q3"}), {"q3", "q4_0"});
  ExpectError(RunTiny({"--cache-type", "q3"}), {"q3", "small"});
  ExpectError(RunTiny({"--cache-type", "f16", "-ctk", "f16"}), {"--cache-type"});
  ExpectError(RunTiny({"-o", "xml"}), {"xml"});
  ExpectError(RunTiny({"--on-overflow", "panic"}), {"panic"});
  for (const char* size : {"", "many", "-1", "0", "1.5.2MiB", "10XB", "nan", "inf", "1e400", "MiB", "1TB"}) {
    ExpectError(RunTiny({"--budget", size}), {"--budget"});
  }
  ExpectError({"eval", "greedy", "-m", ModelPath("llama"), "--ids", "1,2,99999"}, {"99999"});
  ExpectError({"eval", "greedy", "-m", ModelPath("llama"), "--ids", "-7"}, {"-7"});
}

TEST_F(BadInputTest, SamplingNumbers) {
  for (const Arguments& pair : {Arguments{"--temp", "nan"},
                                {"--temp", "inf"},
                                {"--top-p", "2"},
                                {"--top-p", "-0.5"},
                                {"--top-p", "nan"},
                                {"--min-p", "1.5"},
                                {"--min-p", "nan"},
                                {"--repeat-penalty", "0"},
                                {"--repeat-penalty", "nan"},
                                {"-n", "-2"},
                                {"-n", "1e3"}}) {
    ExpectError({"run", "-m", ModelPath("llama"), "-p", "the", pair[0], pair[1]}, {});
  }
}

TEST_F(BadInputTest, OutputThatCannotBeWritten) {
  struct stat info {};
  if (stat("/dev/full", &info) != 0 || !S_ISCHR(info.st_mode)) GTEST_SKIP() << "no /dev/full here";
  RunOptions options;
  options.output_path = "/dev/full";
  for (const Arguments& arguments : {RunTiny(), RunTiny({"-o", "json"}), Arguments{"policies"},
                                     Arguments{"plan", "-m", ModelPath("llama")}, Arguments{"info", ModelPath("llama")},
                                     Arguments{"bench", "-m", ModelPath("llama"), "-p", "4", "-n", "0", "-r", "1"}}) {
    ExpectError(arguments, {"No space left"}, true, options);
  }
}

}  // namespace
}  // namespace weir::testing
