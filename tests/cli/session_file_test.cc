// SPDX-License-Identifier: Apache-2.0
// --session, /save and /load: a conversation in several sittings gives the same answers as one in a single sitting.
#include <filesystem>

#include "cli/refusal.h"

namespace weir::testing {
namespace {

class SessionFileTest : public RefusalTest {
 protected:
  RunResult Ok(const Arguments& arguments, const std::string& input = "") {
    RunOptions options;
    options.input = input;
    RunResult run = Run(arguments, options);
    EXPECT_EQ(run.code, 0) << ::testing::PrintToString(arguments) << "\nsignal " << run.signal << "\n" << run.err;
    return run;
  }
  // Random draws, a history for the repeat penalty, and a pot that overflows every few rounds.
  static Arguments Chat(const Arguments& more = {}) {
    Arguments all = {"chat",   "-m",  ModelPath("llama"), "-n",  "12",
                     "--temp", "0.9", "--repeat-penalty", "1.2", "--ignore-eos"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::string Words(int n, const std::string& word) {
    std::string out;
    for (int i = 0; i < n; ++i) out += word + " ";
    return out;
  }
};

TEST_F(SessionFileTest, AChatInPiecesIsTheChatInOne) {
  const std::vector<std::string> rounds = {"the man " + Words(30, "sea"), "and then?", Words(40, "boat") + "who?",
                                           "what was first?"};
  for (const char* policy : {"streaming_llm", "h2o", "snapkv", "infinipot", "weir"}) {
    SCOPED_TRACE(policy);
    const Arguments begin = Chat({"--policy", policy, "--pot", "80", "--system", "Be kind.", "-s", "7"});
    std::string input, pieces;
    for (const std::string& round : rounds) input += round + "\n";
    const std::string whole = Ok(begin, input).out;
    const std::string file = dir_.File(std::string(policy) + ".weir");
    for (size_t i = 0; i < rounds.size(); ++i) {
      Arguments one = i == 0 ? begin : Chat();  // later ones know policy, pot and seed from the file
      one.insert(one.end(), {"--session", file});
      if (i == 2) one.insert(one.end(), {"-t", "1"});
      pieces += Ok(one, rounds[i] + "\n").out;
    }
    EXPECT_EQ(pieces, whole);
  }
}

// What layers with a window hold is part of a session: the newest tokens, or what the policy keeps.
TEST_F(SessionFileTest, WindowsGoOnAsTheyWere) {
  const std::vector<std::string> rounds = {"the man " + Words(30, "sea"), Words(40, "boat") + "who?", "and then?"};
  for (const char* layers : {"newest", "pot"}) {
    SCOPED_TRACE(layers);
    const Arguments begin = {
        "chat",   "-m", ModelPath("gemma3"), "-n",  "12", "--ignore-eos", "--policy", "h2o", "--pot", "80",
        "--temp", "0",  "--window-layers",   layers};
    std::string input, pieces;
    for (const std::string& round : rounds) input += round + "\n";
    const std::string whole = Ok(begin, input).out;
    const std::string file = dir_.File(std::string(layers) + ".weir");
    for (size_t i = 0; i < rounds.size(); ++i) {
      Arguments one = begin;
      if (i > 0) one.resize(6);  // the file says the rest
      if (i > 0) one.insert(one.end(), {"--temp", "0"});
      one.insert(one.end(), {"--session", file});
      pieces += Ok(one, rounds[i] + "\n").out;
    }
    EXPECT_EQ(pieces, whole);
    Arguments other = begin;
    other.back() = std::string(layers) == "pot" ? "newest" : "pot";
    other.insert(other.end(), {"--session", file});
    ExpectError(other, {file, "--window-layers " + std::string(layers)}, true);
  }
}

// A trace must start with the stream; otherwise it could not be read.
TEST_F(SessionFileTest, ATraceBeginsWithItsStream) {
  const std::string file = dir_.File("a.weir"), trace = dir_.File("t.jsonl");
  const std::string talk = "the man " + Words(90, "sea") + "\n";
  Ok(Chat({"--pot", "64", "--session", file}), talk);
  ExpectError(Chat({"--session", file, "--trace", trace}), {file, "forgotten", "--trace"}, true);
  EXPECT_FALSE(std::filesystem::exists(trace));
  // A session that still holds everything can be traced; the trace starts with what is held.
  const std::string young = dir_.File("b.weir");
  Ok(Chat({"--pot", "400", "--session", young}), "the man\n");
  Ok(Chat({"--session", young, "--trace", trace}), talk);
  Ok({"trace", trace});
  const RunResult run = Ok(Chat({"--pot", "400", "--trace", trace}), "the man\n/load " + file + "\nand the sea\n");
  EXPECT_NE(run.err.find("/load"), std::string::npos) << run.err;
  Ok({"trace", trace});
}

TEST_F(SessionFileTest, SaveAndLoad) {
  const Arguments chat = Chat({"--pot", "64", "-s", "3"});
  const std::string file = dir_.File("a.weir");
  const std::string talk = "the man " + Words(50, "sea") + "\n", next = "and then?\n";
  const RunResult run = Ok(chat, talk + "/save " + file + "\n" + next + "/load " + file + "\n" + next + "/load " +
                                     dir_.File("none") + "\n/save " + dir_.File("no/where") + "\n" + next);
  // The round after the save is answered twice: once after the save, once after the load.
  const std::string once = Ok(chat, talk + next).out, first = Ok(chat, talk).out;
  const std::string again = once.substr(first.size());
  EXPECT_EQ(run.out.rfind(once + again, 0), 0u) << run.out;
  EXPECT_GT(run.out.size(), (once + again).size());  // and what failed ended nothing
  EXPECT_NE(run.err.find("there is no snapshot"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("no/where"), std::string::npos) << run.err;
}

TEST_F(SessionFileTest, ATurnThatIsOpenIsSavedOpen) {
  const std::string story = dir_.Write("story.txt", Words(100, "boat"));
  const Arguments chat = Chat({"--pot", "64", "-s", "3", "--session", dir_.File("a.weir")});
  Ok(chat, "/file " + story + "\n");
  const std::string pieces = Ok(chat, "who?\n").out;
  EXPECT_EQ(Ok(Chat({"--pot", "64", "-s", "3"}), "/file " + story + "\nwho?\n").out, pieces);
}

TEST_F(SessionFileTest, RunGoesOn) {
  const std::string a = dir_.File("a.weir"), b = dir_.File("b.weir");
  const auto run = [&](const std::string& prompt, const std::string& file, const Arguments& more = {}) {
    Arguments all = {"run", "-m", ModelPath("llama"), "-p", prompt, "-n", "10", "--ignore-eos", "--session", file};
    all.insert(all.end(), more.begin(), more.end());
    return Ok(all).out;
  };
  run(Words(60, "sea"), a, {"--pot", "64", "--policy", "tova", "-s", "4"});
  std::filesystem::copy_file(a, b);
  const std::string next = run("the man", a);
  EXPECT_EQ(run("the man", b), next);
  EXPECT_EQ(run("and", b), run("and", a));
  // A chat's next round may be asked by `run --chat`, and a round of `run --chat` be followed by `chat`.
  const Arguments greedy = {"--temp", "0", "--pot", "96", "--system", "Be kind."};
  Arguments chat = {"chat", "-m", ModelPath("llama"), "-n", "10", "--ignore-eos"};
  chat.insert(chat.end(), greedy.begin(), greedy.end());
  const std::string whole = Ok(chat, "the man\nand the sea?\nwho?\n").out;
  const std::string c = dir_.File("c.weir");
  Arguments chat_flags = {"--chat"};
  chat_flags.insert(chat_flags.end(), greedy.begin(), greedy.end());
  std::string pieces = run("the man", c, chat_flags);
  pieces += Ok({"chat", "-m", ModelPath("llama"), "-n", "10", "--ignore-eos", "--temp", "0", "--session", c},
               "and the sea?\n")
                .out;
  pieces += run("who?", c, {"--chat", "--temp", "0"});
  EXPECT_EQ(pieces, whole);
}

TEST_F(SessionFileTest, WhatDoesNotFitIsRefusedAndStays) {
  const std::string file = dir_.File("a.weir");
  Ok(Chat({"--pot", "64", "--policy", "h2o", "--session", file}), "the man\n");
  const auto bytes = [&] { return std::filesystem::file_size(file); };
  const auto before = bytes();
  const auto refused = [&](const Arguments& more, const Arguments& words, bool late = true) {
    Arguments all = more;
    all.insert(all.end(), {"--session", file});
    ExpectError(all, words, late);
  };
  refused(Chat({"--pot", "32"}), {"64", "32"});
  refused(Chat({"--policy", "window"}), {"h2o", "window"});
  refused(Chat({"-ctk", "f32"}), {"F16", "F32"});
  refused(Chat({"--system", "Be bad."}), {"--system", "has begun"}, false);
  refused(Chat({"--pin", "this"}), {"--pin", "has begun"}, false);
  refused({"chat", "-m", ModelPath("qwen2")}, {"model"});
  refused(RunTiny(), {"--chat"});
  EXPECT_EQ(bytes(), before);
  const std::string damaged = dir_.Write("b.weir", "weirsnap but no more");
  ExpectError(Chat({"--session", damaged}), {"b.weir"});
  ExpectError(RunTiny({"--session", dir_.path()}), {"regular"});
}

}  // namespace
}  // namespace weir::testing
