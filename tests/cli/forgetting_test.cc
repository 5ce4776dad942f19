// SPDX-License-Identifier: Apache-2.0
// What is forgotten: pins hold, counts agree, and traces say what the session really kept.
#include <nlohmann/json.hpp>

#include "cli/refusal.h"

namespace weir::testing {
namespace {

using nlohmann::json;

class ForgettingTest : public RefusalTest {
 protected:
  RunResult Ok(const Arguments& arguments, const std::string& input = "") {
    RunOptions options;
    options.input = input;
    const RunResult run = Run(arguments, options);
    EXPECT_EQ(run.code, 0) << ::testing::PrintToString(arguments) << "\n" << run.err;
    return run;
  }
  json Parse(const std::string& line) {
    json value = json::parse(line, nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(value.is_object()) << line;
    return value;
  }
  std::string LongText(int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += "the man and the sea, ";
    return text;
  }
  // A read whose trace lies in trace.jsonl.
  json Read(const Arguments& more) {
    Arguments all = {"read",
                     dir_.Write("book.txt", LongText(150)),
                     "-m",
                     ModelPath("llama"),
                     "--ask",
                     "Who is it?",
                     "--pot",
                     "64",
                     "-n",
                     "8",
                     "--ignore-eos",
                     "--temp",
                     "0",
                     "-o",
                     "json",
                     "--trace",
                     dir_.File("trace.jsonl")};
    all.insert(all.end(), more.begin(), more.end());
    return Parse(Ok(all).out);
  }
  json Remembers(const Arguments& more) {
    Arguments all = {"remembers", dir_.File("trace.jsonl"), "-o", "json"};
    all.insert(all.end(), more.begin(), more.end());
    return Parse(Ok(all).out);
  }
  std::vector<json> Events() {
    std::vector<json> out;
    for (const std::string& line : Lines(Ok({"trace", dir_.File("trace.jsonl"), "--events"}).out))
      out.push_back(Parse(line));
    return out;
  }
};

// A token is dropped once per layer and head, or held at the end: the trace accounts for every one.
TEST_F(ForgettingTest, TheTraceAccountsForEveryToken) {
  for (const auto& [policy, n_groups] : {std::pair{"streaming_llm", 1}, {"h2o", 6}, {"sirllm", 1}}) {
    SCOPED_TRACE(policy);
    const json answer = Read({"--policy", policy});
    const int64_t n_seen = answer["tokens_seen"];
    std::map<std::tuple<int, int, int64_t>, int> dropped;
    for (const json& event : Events()) {
      for (const char* key : {"step", "policy", "layer", "head", "slot", "t_src_ms", "token", "text", "reason"}) {
        EXPECT_TRUE(event.contains(key)) << key << " in " << event.dump();
      }
      EXPECT_EQ(event["policy"].get<std::string>().rfind(policy, 0), 0u);
      EXPECT_EQ(event.contains("score"), std::string(policy) == "h2o");
      EXPECT_EQ(event.contains("nll"), std::string(policy) == "sirllm");
      ++dropped[{event["layer"], event["head"], event["seq"]}];
    }
    const json all = Remembers({"--at", "0:"});
    EXPECT_EQ(all["seen"], n_seen);
    EXPECT_EQ(all["end"], n_seen);
    EXPECT_EQ(all["held"], answer["tokens_kept"]);
    ASSERT_EQ(all["by_group"].size(), static_cast<size_t>(n_groups));
    double held = 0;
    for (const json& group : all["by_group"]) held += group["share"].get<double>() * static_cast<double>(n_seen);
    EXPECT_NEAR(held + static_cast<double>(dropped.size()), static_cast<double>(n_seen) * n_groups, 0.01);
    for (const auto& [at, n] : dropped) ASSERT_EQ(n, 1) << "dropped twice";
    const std::string table = Ok({"trace", dir_.File("trace.jsonl"), "--summary"}).out;
    EXPECT_NE(table.find(policy), std::string::npos) << table;
    EXPECT_NE(table.find(" dropped"), std::string::npos) << table;
  }
}

TEST_F(ForgettingTest, SpansOfRemembers) {
  const json answer = Read({});
  const int64_t n = answer["tokens_seen"];
  json end = Remembers({"--at", "99%:100%"});
  EXPECT_EQ(end["end"], n);
  EXPECT_EQ(end["held"], end["end"].get<int64_t>() - end["begin"].get<int64_t>());
  EXPECT_EQ(end["share"]["min"], 1.0);
  EXPECT_EQ(end["text"].get<std::string>().find("[..."), std::string::npos);
  // The sinks, then nothing.
  const json head = Remembers({"--at", "2:40"});
  EXPECT_EQ(head["held"], 2);
  EXPECT_NE(head["text"].get<std::string>().find("[... 36 tokens ...]"), std::string::npos) << head.dump();
  EXPECT_EQ(Remembers({"--at", "50%"})["share"]["max"], 0.0);
  EXPECT_EQ(Remembers({"--at", "7"})["end"], 8);
  // A text has no times: all of it is at zero.
  EXPECT_EQ(Remembers({"--at", "00:00-00:01"})["end"], n);
  const std::string trace = dir_.File("trace.jsonl");
  for (const char* bad : {"x", "5:2", "-1:4", "101%", "1:2:3", "9999999", "00:30-00:20", "00:30-00:40", "50%:20%",
                          "99999999999999999999"}) {
    ExpectError({"remembers", trace, "--at", bad}, {"--at"});
  }
  ExpectError({"remembers", trace, "--at", "0:5", "--layer", "1000"}, {});
  ExpectError({"remembers", dir_.File("book.txt"), "--at", "0:5"}, {"book.txt"});
  ExpectError({"trace", dir_.path()}, {"directory"});
}

TEST_F(ForgettingTest, PicturesOfATrace) {
  Read({"--policy", "h2o", "--trace-scores"});
  const std::string trace = dir_.File("trace.jsonl"), svg = dir_.File("map.svg"), png = dir_.File("map.png");
  const RunResult run = Ok({"trace", trace, "-o", svg});
  EXPECT_EQ(run.err, "wrote " + svg + ": what was kept, and the scores of 3 layers\n");
  Ok({"trace", trace, "-o", png});
  const std::string drawn = FileBytes(svg);
  for (const char* word : {"<svg", "tokens read", "place in the stream", "layer 0", "layer 2", "selection",
                           "prefers-color-scheme", "</svg>"}) {
    EXPECT_NE(drawn.find(word), std::string::npos) << word;
  }
  EXPECT_EQ(FileBytes(png).rfind("\x89PNG\r\n\x1a\n", 0), 0u);
  Read({"--policy", "h2o"});
  EXPECT_EQ(Ok({"trace", trace, "-o", svg}).err,
            "wrote " + svg + ": what was kept (a trace written with --trace-scores shows scores too)\n");
  EXPECT_EQ(FileBytes(svg).find("layer 0"), std::string::npos);
  ExpectError({"trace", trace, "-o", dir_.File("map.gif")}, {".svg"});
  ExpectError({"trace", trace, "-o", dir_.File("no/such/map.svg")}, {"No such file"}, true);
  ExpectError(RunTiny({"--trace-scores"}), {"--trace"});
}

TEST_F(ForgettingTest, PinsSurvive) {
  const std::string notes = dir_.Write("notes.txt", "a boat of gold");
  for (const std::string& pin : {notes, std::string("a boat of gold")}) {
    const json answer = Read({"--pin", pin});
    EXPECT_GT(answer["tokens_pinned"], 5);
    const json head = Remembers({"--at", "0:" + answer["tokens_pinned"].dump()});
    EXPECT_EQ(head["held"], answer["tokens_pinned"]);
    EXPECT_EQ(head["pinned"], answer["tokens_pinned"]);
    EXPECT_NE(head["text"].get<std::string>().find("a boat of gold"), std::string::npos) << head.dump();
    EXPECT_EQ(answer["oldest_unpinned"].get<int64_t>() >= answer["tokens_pinned"].get<int64_t>(), true);
  }
  // The window keeps nothing old by itself: what is there at the beginning is there because it is pinned.
  const json system = Read({"--policy", "window", "--system", "Be kind."});
  ASSERT_GT(system["tokens_pinned"], 5);
  EXPECT_NE(Remembers({"--at", "0:" + system["tokens_pinned"].dump()})["text"].get<std::string>().find("Be kind."),
            std::string::npos);
  const json loose = Read({"--policy", "window", "--system", "Be kind.", "--no-pin-system"});
  EXPECT_EQ(loose["tokens_pinned"], 0);
  EXPECT_EQ(Remembers({"--at", "0:10"})["held"], 0);
}

TEST_F(ForgettingTest, ASystemTextNeedsNoChatTemplate) {
  EditedModel plain("llama");
  plain.metadata.erase("tokenizer.chat_template");
  const std::string model = dir_.Write("plain.gguf", plain.Bytes());
  const json answer = Parse(Ok({"read",     dir_.Write("book.txt", LongText(150)),
                                "-m",       model,
                                "--ask",    "Who is it?",
                                "--pot",    "64",
                                "-n",       "8",
                                "--temp",   "0",
                                "-o",       "json",
                                "--policy", "window",
                                "--system", "a boat of gold",
                                "--trace",  dir_.File("trace.jsonl")})
                                .out);
  ASSERT_GT(answer["tokens_pinned"], 5);
  EXPECT_NE(
      Remembers({"--at", "0:" + answer["tokens_pinned"].dump()})["text"].get<std::string>().find("a boat of gold"),
      std::string::npos);
}

TEST_F(ForgettingTest, AQuestionMarkInACatalystNeedsAQuestion) {
  const std::string policy = "infinipot:catalyst=\"What answers {question}?\"", m = ModelPath("llama");
  EXPECT_GT(Read({"--policy", policy})["tokens_dropped"], 0);
  ExpectError({"run", "-m", m, "-p", "the man", "--policy", policy}, {"{question}", "weir read --ask"}, true);
  ExpectError({"chat", "-m", m, "--policy", policy}, {"{question}"}, true);
  ExpectError({"serve", "-m", m, "--port", "0", "--policy", policy}, {"{question}"}, true);
}

TEST_F(ForgettingTest, PinsInRunAndChat) {
  const std::string m = ModelPath("llama");
  const json plain = Parse(
      Ok({"run", "-m", m, "-p", LongText(40), "--pot", "64", "-n", "4", "--ignore-eos", "-o", "json", "--pin", "gold"})
          .out);
  EXPECT_GT(plain["tokens_pinned"], 0);
  EXPECT_LT(plain["tokens_pinned"], 12);
  const RunResult chat = Ok({"chat", "-m", m, "--pot", "96", "-n", "8", "--ignore-eos", "--system", "Be kind.", "--pin",
                             "gold", "--policy", "window", "--trace", dir_.File("trace.jsonl")},
                            LongText(30) + "\n/reset\n" + LongText(30) + "\n");
  EXPECT_NE(chat.err.find("pinned   "), std::string::npos) << chat.err;
  EXPECT_NE(chat.err.find("\nkept "), std::string::npos) << chat.err;
  // After /reset the trace describes the second conversation.
  const json head = Remembers({"--at", "0:30"});
  EXPECT_NE(head["text"].get<std::string>().find("Be kind."), std::string::npos) << head.dump();
  EXPECT_NE(head["text"].get<std::string>().find("gold"), std::string::npos) << head.dump();
}

TEST_F(ForgettingTest, PinsThatLeaveNoRoom) {
  const std::string m = ModelPath("llama"), text = LongText(20), book = dir_.Write("book.txt", text);
  ExpectError({"run", "-m", m, "-p", "the", "--pot", "64", "--pin", text}, {"pinned", "--pot"}, true);
  ExpectError({"read", book, "-m", m, "--ask", "who", "--pot", "64", "--pin", book}, {"pinned", "--pot", "--pin"},
              true);
  ExpectError({"chat", "-m", m, "--pot", "64", "--system", text}, {"pinned", "--no-pin-system"}, true);
  ExpectError({"run", "-m", m, "-p", "the", "--pin", dir_.path()}, {"directory"});
  ExpectError({"run", "-m", m, "-p", "the", "--pin", ""}, {"--pin"});
}

TEST_F(ForgettingTest, OnOverflowErrorInEveryCommand) {
  const std::string m = ModelPath("llama"), book = dir_.Write("book.txt", LongText(50));
  const Arguments tail = {"-m", m, "--pot", "64", "--on-overflow", "error", "-n", "4"};
  const auto with = [&](Arguments head) {
    head.insert(head.end(), tail.begin(), tail.end());
    return head;
  };
  ExpectError(with({"run", "-f", book}), {"the pot of 64 tokens is full", "--on-overflow error"}, true);
  ExpectError(with({"read", book, "--ask", "Who?"}), {"the pot of 64 tokens is full", "--on-overflow error"}, true);
  RunOptions options;
  options.input = LongText(50) + "\n";
  ExpectError(with({"chat"}), {"the pot of 64 tokens is full", "--on-overflow error"}, true, options);
  // Input that fits is answered, and nothing is dropped.
  const json fits = Parse(Ok(with({"run", "-p", "the man", "-o", "json"})).out);
  EXPECT_EQ(fits["tokens_dropped"], 0);
}

TEST_F(ForgettingTest, AMessageThatIsBeingReadCanBeStopped) {
  RunOptions options;
  options.input = LongText(200000) + "\nhello\n/memory\n";
  options.interrupt_after_ms = 700;
  options.directory = dir_.path();
  const RunResult run =
      RunWeir({"chat", "-m", ModelPath("llama"), "--pot", "64", "-n", "4", "--ignore-eos", "--device", "ref"}, options);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.err.find("weir: stopped after "), std::string::npos) << run.err;
  EXPECT_NE(run.err.find(" kept, "), std::string::npos) << run.err;
  EXPECT_GT(run.out.size(), 1u) << "the next message is answered";
}

}  // namespace
}  // namespace weir::testing
