// SPDX-License-Identifier: Apache-2.0
// What each subcommand promises to people and to the programs that read its output.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/edited_model.h"
#include "cli/process.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace weir::testing {
namespace {

using Arguments = std::vector<std::string>;
using nlohmann::json;

json Parse(const std::string& line) {
  json value = json::parse(line, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(value.is_object()) << line;
  return value;
}

RunResult Ok(const Arguments& arguments, const std::string& input = "") {
  RunOptions options;
  options.input = input;
  RunResult run = RunWeir(arguments, options);
  EXPECT_EQ(run.code, 0) << ::testing::PrintToString(arguments) << "\nsignal " << run.signal << "\n" << run.err;
  return run;
}

Arguments Join(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Arguments RunTiny(const Arguments& more) {
  return Join({"run", "-m", ModelPath("llama"), "-p", "the man and the", "--ignore-eos", "-n", "24"}, more);
}

void ExpectAnswerFields(const json& object) {
  for (const char* key :
       {"tokens_seen", "tokens_kept", "tokens_dropped", "peak_bytes", "resident_bytes", "tokens_per_s", "ttft_ms"}) {
    ASSERT_TRUE(object.is_object() && object.contains(key) && object[key].is_number())
        << key << " in " << object.dump();
    EXPECT_GE(object[key], 0) << key;
  }
  EXPECT_TRUE(object["text"].is_string());
  EXPECT_EQ(object["tokens_seen"], object["tokens_kept"].get<int64_t>() + object["tokens_dropped"].get<int64_t>());
  EXPECT_GT(object["peak_bytes"], 0);
  EXPECT_GT(object["resident_bytes"], 0);
}

// Names of the files of a folder of apps/weir that begin as plug-ins of that kind do.
Arguments PlugIns(const std::string& folder, const std::string& kind) {
  Arguments names;
  for (const auto& entry : std::filesystem::directory_iterator(SourceDir() + "/apps/weir/" + folder)) {
    const std::string first = "// weir-plugin: " + kind + "\n";
    if (FileBytes(entry.path()).rfind(first, 0) == 0) names.push_back(entry.path().stem());
  }
  EXPECT_GT(names.size(), 9u) << folder;
  return names;
}

TEST(HelpTest, EveryFileOfTheFoldersExplainsItself) {
  const std::string all = Ok({"--help"}).out, suites = Ok({"eval", "--help"}).out;
  EXPECT_NE(all.find("weir read"), std::string::npos);
  EXPECT_EQ(Ok({"--version"}).out.rfind("weir ", 0), 0u);
  for (const std::string& name : PlugIns("commands", "command")) {
    EXPECT_NE(all.find("\n  " + name + " "), std::string::npos) << name;
    EXPECT_NE(Ok({name, "--help"}).out.find("--help"), std::string::npos) << name;
  }
  for (const std::string& name : PlugIns("suites", "suite")) {
    EXPECT_NE(suites.find("\n  " + name + " "), std::string::npos) << name;
    EXPECT_NE(Ok({"eval", name, "--help"}).out.find("--help"), std::string::npos) << name;
  }
}

TEST(BannerTest, NamesThePolicyWithWhatWasSaidOfIt) {
  EXPECT_NE(Ok(RunTiny({})).err.find(", policy weir, "), std::string::npos);
  EXPECT_NE(Ok(RunTiny({"--policy", "weir:recent=0.5"})).err.find(", policy weir:recent=0.5, "), std::string::npos);
  EXPECT_NE(Ok(RunTiny({"-v"})).err.find(",beta=0.1,"), std::string::npos);
}

TEST(BannerTest, SaysWhatCZeroBecame) {
  TempDir dir;
  EditedModel model("llama");
  model.metadata["llama.context_length"].v = int64_t{8192};
  const std::string path = dir.Write("long.gguf", model.Bytes());
  const Arguments run = {"run", "-m", path, "-p", "the", "-n", "1"};
  EXPECT_NE(Ok(Join(run, {"-c", "0"}))
                .err.find("-c 0 means 4,096 tokens here; for all 8,192 that the model was trained with"),
            std::string::npos);
  EXPECT_EQ(Ok(run).err.find("-c 0"), std::string::npos);
}

TEST(RunTest, JsonEndsWithOneObject) {
  const RunResult text = Ok(RunTiny({"--temp", "0"})), run = Ok(RunTiny({"--temp", "0", "-o", "json"}));
  const Arguments lines = Lines(run.out);
  ASSERT_EQ(lines.size(), 1u);
  const json object = Parse(lines[0]);
  ExpectAnswerFields(object);
  EXPECT_EQ(object["text"].get<std::string>() + "\n", text.out);
  EXPECT_EQ(object["tokens_generated"], 24);
  EXPECT_EQ(object["tokens_dropped"], 0);
}

TEST(RunTest, GreedyTextDependsOnNothingElse) {
  const std::string text = Ok(RunTiny({"--temp", "0"})).out;
  EXPECT_GT(text.size(), 10u);
  for (const Arguments& more : {Arguments{"-t", "1"},
                                {"-t", "2"},
                                {"-t", "3"},
                                {"-s", "7"},
                                {"-c", "256"},
                                {"--policy", "full"},
                                {"--policy", "window"},
                                {"--device", "ref"}}) {
    EXPECT_EQ(Ok(RunTiny(Join({"--temp", "0"}, more))).out, text) << ::testing::PrintToString(more);
  }
}

// A prompt that spells out the chat template's tokens equals the chat, but only if the user trusts it.
TEST(RunTest, ControlTokensInAPromptAreLettersUnlessAskedFor) {
  const Arguments tail = {"-m", ModelPath("llama"), "--temp", "0", "--ignore-eos", "-n", "8", "-o", "json"};
  const std::string prompt = "<|im_start|>user\nthe man<|im_end|>\n<|im_start|>assistant\n";
  const json chat = Parse(Ok(Join({"run", "--chat", "-p", "the man"}, tail)).out);
  const json tokens = Parse(Ok(Join({"run", "--parse-special", "-p", prompt}, tail)).out);
  const json letters = Parse(Ok(Join({"run", "-p", prompt}, tail)).out);
  EXPECT_EQ(tokens["text"], chat["text"]);
  EXPECT_EQ(tokens["tokens_seen"], chat["tokens_seen"]);
  EXPECT_GT(letters["tokens_seen"], chat["tokens_seen"]);
}

TEST(RunTest, ASeedFixesTheText) {
  const std::string text = Ok(RunTiny({"-s", "42", "--temp", "2", "-t", "1"})).out;
  EXPECT_EQ(Ok(RunTiny({"-s", "42", "--temp", "2", "-t", "2"})).out, text);
  EXPECT_NE(Ok(RunTiny({"-s", "43", "--temp", "2"})).out, text);
  // A random seed is printed, and gives the same text again.
  const RunResult first = Ok(RunTiny({"--temp", "2"}));
  const size_t at = first.err.find("seed ");
  ASSERT_NE(at, std::string::npos) << first.err;
  EXPECT_EQ(Ok(RunTiny({"--temp", "2", "-s", std::to_string(std::stoll(first.err.substr(at + 5)))})).out, first.out);
}

TEST(RunTest, PromptsFromFilesAndPipes) {
  TempDir dir;
  const std::string model = ModelPath("llama"), prompt = "the man and the";
  const Arguments tail = {"-m", model, "--ignore-eos", "-n", "24", "--temp", "0"};
  const std::string text = Ok(RunTiny({"--temp", "0"})).out;
  EXPECT_EQ(Ok(Join({"run", "-f", dir.Write("prompt.txt", prompt)}, tail)).out, text);
  EXPECT_EQ(Ok(Join({"run", "-f", "-"}, tail), prompt).out, text);
}

// Pot and budget are kept whatever the input: the prompt is many times the pot.
TEST(RunTest, APromptLongerThanThePot) {
  TempDir dir;
  std::string prompt;
  for (int i = 0; i < 400; ++i) prompt += "the man and the sea, ";
  const json object = Parse(Ok({"run", "-m", ModelPath("qwen2"), "-f", dir.Write("long.txt", prompt), "--pot", "48",
                                "-n", "8", "-o", "json", "--ignore-eos", "-ctk", "f32", "-ctv", "f32"})
                                .out);
  ExpectAnswerFields(object);
  EXPECT_GT(object["tokens_seen"], 2000);
  EXPECT_LE(object["tokens_kept"], 48);
  EXPECT_GT(object["tokens_kept"], 4);
}

TEST(ReadTest, JsonEndsWithOneObject) {
  TempDir dir;
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "the man and the sea, ";
  const std::string book = dir.Write("book.txt", text);
  const Arguments tail = {"-m",           ModelPath("llama"), "--ask", "Who is it about?", "--pot", "64", "-n", "6",
                          "--ignore-eos", "--temp",           "0"};
  const RunResult run = Ok(Join({"read", book, "-o", "json"}, tail));
  ASSERT_EQ(Lines(run.out).size(), 1u) << run.out;
  const json object = Parse(run.out);
  ExpectAnswerFields(object);
  EXPECT_GT(object["tokens_seen"], 10000);
  EXPECT_LE(object["tokens_kept"], 64);
  EXPECT_EQ(object["tokens_generated"], 6);
  EXPECT_EQ(Ok(Join({"read", book}, tail)).out, object["text"].get<std::string>() + "\n");
  EXPECT_EQ(Ok(Join({"read", "-"}, tail), text).out, object["text"].get<std::string>() + "\n");
  const std::string lines = Ok(Join({"read", book, "--progress", "lines"}, tail)).err;
  EXPECT_NE(lines.find("pot "), std::string::npos);
  // A file's size is known; a pipe's is not.
  EXPECT_NE(lines.find("% of 41.0 KiB, "), std::string::npos) << lines;
  EXPECT_EQ(Ok(Join({"read", "-", "--progress", "lines"}, tail), text).err.find("% of "), std::string::npos);
}

TEST(PlanTest, SaysWhatTheSessionUses) {
  const Arguments tail = {"-m", ModelPath("llama"), "--pot", "128"};
  const json plan = Parse(Ok(Join({"plan", "-o", "json"}, tail)).out);
  EXPECT_EQ(plan["pot"], 128);
  int64_t total = 0;
  for (const json& item : plan["items"]) total += item["bytes"].get<int64_t>();
  EXPECT_EQ(plan["session_bytes"], total);
  EXPECT_LE(plan["minimum_bytes"], total);
  const RunResult text = Ok(Join({"plan"}, tail));
  EXPECT_NE(text.out.find("smallest budget that works here: "), std::string::npos) << text.out;

  const json run = Parse(Ok(RunTiny({"--pot", "128", "-o", "json"})).out);
  EXPECT_EQ(run["peak_bytes"], plan["session_bytes"]);
  const json minimum =
      Parse(Ok({"plan", "-o", "json", "-m", ModelPath("llama"), "--budget", plan["minimum_bytes"].dump()}).out);
  EXPECT_EQ(minimum["session_bytes"], plan["minimum_bytes"]);
}

// What an answer in a form may take is planned, reserved, and no more.
TEST(PlanTest, FormsHaveALine) {
  const Arguments tail = {"-m", ModelPath("llama"), "--pot", "128", "-o", "json"};
  const json without = Parse(Ok(Join({"plan"}, tail)).out);
  EXPECT_FALSE(without.contains("form_vocabulary_bytes"));
  const json with = Parse(Ok(Join({"plan", "--form-memory", "2MiB"}, tail)).out);
  EXPECT_EQ(with["session_bytes"].get<int64_t>(), without["session_bytes"].get<int64_t>() + (2 << 20));
  EXPECT_EQ(with["items"].back()["what"], "answers held to a form");
  EXPECT_GT(with["form_vocabulary_bytes"], 0);
  const json run =
      Parse(Ok(RunTiny({"--pot", "128", "-o", "json", "--regex", "[a-z]{5}", "--form-memory", "2MiB"})).out);
  EXPECT_EQ(run["peak_bytes"], with["session_bytes"]);
  const RunResult refused = RunWeir(RunTiny({"--regex", "a", "--budget", "17MiB", "--pot", "100000"}));
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(
      RunWeir(RunTiny({"--regex", "a", "--form-memory", "1KiB"})).err.find("--form-memory 1KiB: expected at least"),
      std::string::npos);
  EXPECT_NE(RunWeir(RunTiny({"--regex", std::string(3000, 'a'), "--form-memory", "1MiB"}))
                .err.find("--regex: the form has 3000 bytes; at most 2730 are read with 1048576 kept for forms"),
            std::string::npos);
}

// One line for each kind of layer.
TEST(PlanTest, WindowsHaveALineOfTheirOwn) {
  const Arguments tail = {"plan", "-o", "json", "-m", ModelPath("gemma3"), "--pot", "128"};
  const auto lines = [&](const Arguments& more) {
    const json plan = Parse(Ok(Join(tail, more)).out);
    std::vector<std::string> out;
    int64_t total = 0;
    for (const json& item : plan["items"]) {
      total += item["bytes"].get<int64_t>();
      if (item["tag"] == "kv") out.push_back(item["what"]);
    }
    EXPECT_EQ(plan["session_bytes"], total);
    return out;
  };
  // 7 layers, every sixth of which has no window; 20 are seen, and 32 are read at once.
  EXPECT_EQ(lines({}), (std::vector<std::string>{"keys and values, 128 slots x 1 layers x 2 KV heads",
                                                 "keys and values, 51 slots x 6 layers x 2 KV heads, windows of 20"}));
  EXPECT_EQ(lines({"--window-layers", "pot"}),
            std::vector<std::string>{"keys and values, 128 slots x 7 layers x 2 KV heads"});
}

TEST(InfoTest, MetadataAndTensors) {
  const std::string plain = Ok({"info", ModelPath("llama")}).out,
                    all = Ok({"info", "-m", ModelPath("llama"), "--tensors"}).out;
  EXPECT_NE(plain.find("general.architecture"), std::string::npos);
  EXPECT_NE(plain.find("runs here: yes"), std::string::npos);
  EXPECT_EQ(plain.find("blk.0.attn_q.weight"), std::string::npos);
  EXPECT_NE(all.find("blk.0.attn_q.weight"), std::string::npos);
  TempDir dir;
  EditedModel model("llama");
  model.Remove("output_norm.weight");
  EXPECT_NE(Ok({"info", dir.Write("bad.gguf", model.Bytes())}).out.find("runs here: no"), std::string::npos);
}

// Names and values in a file are untrusted: a terminal must not interpret them.
TEST(InfoTest, ControlCharactersAreEscaped) {
  TempDir dir;
  EditedModel model("llama");
  model.metadata.insert_or_assign("general.name",
                                  GgufValue{std::string("\x1b[31mred\x7f \xc2\x9b \xe2\x80\xae title\x07")});
  model.metadata.insert_or_assign("evil\x1b]0;owned\x07key", GgufValue{int64_t{1}});
  for (EditedTensor& tensor : model.tensors) {
    if (tensor.name == "output_norm.weight") tensor.name = "bad\x1b[2Jname";
  }
  const std::string path = dir.Write("bad.gguf", model.Bytes());
  for (const RunResult& run :
       {RunWeir({"info", path, "--tensors"}), RunWeir({"run", "-m", path, "-p", "the", "-n", "1"})}) {
    const std::string shown = run.out + run.err;
    for (const char c : shown)
      EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << static_cast<int>(c) << "\n" << shown;
    EXPECT_EQ(shown.find('\x7f'), std::string::npos) << shown;
    EXPECT_EQ(shown.find("\xc2\x9b"), std::string::npos) << shown;
    EXPECT_EQ(shown.find("\xe2\x80\xae"), std::string::npos) << shown;
  }
  const std::string out = RunWeir({"info", path, "--tensors"}).out;
  EXPECT_NE(out.find("evil\\x1b]0;owned\\x07key"), std::string::npos) << out;
  EXPECT_NE(out.find("bad\\x1b[2Jname"), std::string::npos) << out;
}

TEST(PoliciesTest, ListsOptionsWithDefaults) {
  const std::string out = Ok({"policies"}).out;
  for (const char* word : {"full", "window", "streaming_llm", "sinks=4", "smallest pot 6", "pooling=max", "avg|max"}) {
    EXPECT_NE(out.find(word), std::string::npos) << word;
  }
}

TEST(PrunersTest, ListsOptionsWithDefaults) {
  const std::string out = Ok({"pruners"}).out;
  for (const char* word : {"catp", "l2", "self_attention", "keep=0.5", "layers=all", "none|image", "CATP:"}) {
    EXPECT_NE(out.find(word), std::string::npos) << word;
  }
}

TEST(BenchTest, RowsOfEveryFormat) {
  const Arguments tail = {"-m", ModelPath("llama"), "-p", "16,8", "-n", "4", "-d", "0,32", "-r", "2"};
  const Arguments rows = Lines(Ok(Join({"bench", "-o", "jsonl"}, tail)).out);
  ASSERT_EQ(rows.size(), 6u);
  for (const std::string& line : rows) {
    const json row = Parse(line);
    for (const char* key : {"n_prompt", "n_gen", "depth", "pot", "threads", "tokens_per_s", "stddev", "bytes_per_token",
                            "gb_per_s", "peak_bytes"}) {
      EXPECT_TRUE(row.contains(key) && row[key].is_number()) << key << " in " << line;
    }
    for (const char* key : {"model", "test", "policy"}) EXPECT_TRUE(row.contains(key) && row[key].is_string()) << key;
    EXPECT_GT(row["tokens_per_s"], 0);
    EXPECT_GT(row["gb_per_s"], 0);
    EXPECT_EQ(row["model"], "llama.gguf");
  }
  EXPECT_EQ(Parse(rows[0])["test"], "pp16");
  EXPECT_EQ(Parse(rows[5])["test"], "tg4 @ d32");
  const Arguments csv = Lines(Ok(Join({"bench", "-o", "csv"}, tail)).out);
  ASSERT_EQ(csv.size(), 7u);
  EXPECT_EQ(csv[0],
            "model,test,n_prompt,n_gen,depth,policy,pot,threads,tokens_per_s,stddev,median,bytes_per_token,gb_per_s,"
            "peak_bytes,ratio");
  EXPECT_EQ(Lines(Ok(Join({"bench"}, tail)).out).size(), 8u);
}

TEST(BenchTest, StreamSaysWhatATokenCostsAlongTheWay) {
  const Arguments tail = {"-m",   ModelPath("llama"), "--pot", "64",           "--policy", "streaming_llm", "--stream",
                          "1000", "--every",          "400",   "--stream-gen", "3"};
  const Arguments rows = Lines(Ok(Join({"bench", "-o", "jsonl"}, tail)).out);
  ASSERT_EQ(rows.size(), 3u);  // 400, 400, 200
  int64_t seen[3], ledger[3];
  for (size_t i = 0; i < 3; ++i) {
    const json row = Parse(rows[i]);
    seen[i] = row["tokens_seen"], ledger[i] = row["ledger_bytes"];
    EXPECT_GT(row["read_tokens_per_s"], 0);
    EXPECT_GT(row["write_tokens_per_s"], 0);
    EXPECT_GT(row["resident_bytes"], ledger[i]);
    for (const char* what : {"chunk_ms", "token_ms"}) {
      EXPECT_GT(row[what]["p50"], 0);
      EXPECT_LE(row[what]["p50"], row[what]["p95"]);
      EXPECT_LE(row[what]["p95"], row[what]["p99"]);
      EXPECT_LE(row[what]["p99"], row[what]["max"]);
    }
  }
  EXPECT_EQ(seen[0], 403);
  EXPECT_EQ(seen[1], 806);
  EXPECT_EQ(seen[2], 1009);
  EXPECT_EQ(ledger[0], ledger[2]);
  EXPECT_EQ(Lines(Ok(Join({"bench", "-o", "csv"}, tail)).out).size(), 4u);
  EXPECT_EQ(Lines(Ok(Join({"bench"}, tail)).out).size(), 5u);
}

TEST(EvalTest, BothProtocols) {
  TempDir dir;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the man and the sea, ";
  const Arguments tail = {"-m", ModelPath("llama"), "-f", dir.Write("text.txt", text)};
  const Arguments keys = {"suite", "task",   "model", "policy", "pot",          "budget_bytes", "metric",
                          "value", "stderr", "n",     "seed",   "tokens_per_s", "peak_bytes"};
  const auto expect_keys = [&](const json& row) {
    for (const std::string& key : keys) EXPECT_TRUE(row.contains(key)) << key << " in " << row.dump();
    EXPECT_GT(row["value"], 1.0);
    EXPECT_GT(row["tokens_per_s"], 0.0) << row.dump();
  };
  const Arguments stream = Lines(Ok(Join({"eval", "ppl", "--pot", "64", "--segment", "300"}, tail)).out);
  ASSERT_GT(stream.size(), 2u);
  for (const std::string& line : stream) expect_keys(Parse(line));
  EXPECT_EQ(Parse(stream.back())["task"], "stream_total");
  const Arguments traced =
      Lines(Ok(Join({"eval", "ppl", "--pot", "64", "--trace", dir.File("trace.jsonl")}, tail)).out);
  ASSERT_FALSE(traced.empty());
  const json total = Parse(traced.back());
  // Of n + 1 tokens, the first has no likelihood.
  const int64_t n_dropped = static_cast<int64_t>(Lines(Ok({"trace", dir.File("trace.jsonl"), "--events"}).out).size());
  EXPECT_GT(n_dropped, total["n"].get<int64_t>() + 1 - 64 - 1);
  EXPECT_LE(n_dropped, total["n"].get<int64_t>());
  const Arguments windows = Lines(Ok(Join({"eval", "ppl", "--window", "128", "--policy", "full"}, tail)).out);
  ASSERT_EQ(windows.size(), 1u);
  expect_keys(Parse(windows[0]));
  EXPECT_EQ(Parse(windows[0])["task"], "windows");
}

// One answer per round; its cost in tokens follows from the template of the whole conversation.
TEST(ChatTest, RoundsAddUpToTheRenderingOfTheWhole) {
  const Arguments chat = {"chat", "-m", ModelPath("llama"), "--system", "Be kind.", "--temp", "0",
                          "-n",   "6",  "--ignore-eos"};
  const RunResult run = Ok(chat, "the man\r\n\nand the sea?\n/memory\nthe boat\n");
  const Arguments answers = Lines(run.out);
  ASSERT_GE(answers.size(), 3u);

  auto file = GgufFile::Open(ModelPath("llama"));
  ASSERT_TRUE(file.ok());
  auto tokenizer = Tokenizer::Load(**file);
  ASSERT_TRUE(tokenizer.ok());
  auto format = ChatTemplate::ForFile(**file, **tokenizer, "");
  ASSERT_TRUE(format.ok()) << format.status().message();
  // Answers of no tokens stand for the six generated ones, which need not tokenise back to six.
  auto pieces = format->Render({{"system", "Be kind."},
                                {"user", "the man"},
                                {"assistant", ""},
                                {"user", "and the sea?"},
                                {"assistant", ""},
                                {"user", "the boat"}},
                               true);
  ASSERT_TRUE(pieces.ok()) << pieces.status().message();
  const size_t n = (*tokenizer)->EncodePieces(*pieces, !format->includes_bos()).size() + 3 * 6;
  EXPECT_NE(Lines(run.err).back().find(" " + std::to_string(n) + " seen,"), std::string::npos) << n << "\n" << run.err;

  // The first round equals the answer of `run --chat`.
  const RunResult one = Ok({"run", "--chat", "-m", ModelPath("llama"), "--system", "Be kind.", "--temp", "0", "-n", "6",
                            "--ignore-eos", "-p", "the man"});
  EXPECT_EQ(run.out.rfind(one.out, 0), 0u) << run.out << "\n" << one.out;
}

TEST(ChatTest, Commands) {
  TempDir dir;
  std::string text;
  for (int i = 0; i < 300; ++i) text += "the man and the sea, ";
  const std::string file = dir.Write("story.txt", text);
  const Arguments chat = {"chat", "-m", ModelPath("llama"), "--temp", "0", "-n", "6", "--ignore-eos", "--pot", "64"};
  const RunResult run =
      Ok(chat, "hello\n/help\n/file " + file + "\nwhat was it?\n/memory\n/reset\n/memory\nhello\n/nonsense\n/file " +
                   dir.File("none.txt") + "\n/exit\nnever read\n");
  EXPECT_NE(run.err.find("/file PATH"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("tokens of " + file), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("/nonsense"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("none.txt: No such file"), std::string::npos) << run.err;
  // After /reset the conversation begins anew: the same greeting, the same answer, twice.
  const std::string answer = Ok(chat, "hello\n").out;
  EXPECT_EQ(run.out.rfind(answer, 0), 0u);
  EXPECT_EQ(run.out.substr(run.out.size() - answer.size()), answer) << run.out;
  std::vector<std::string> memory;
  for (const std::string& line : Lines(run.err)) {
    if (line.rfind("tokens ", 0) == 0) memory.push_back(line);
  }
  ASSERT_EQ(memory.size(), 3u) << run.err;
  EXPECT_EQ(memory[0].find(" 0 dropped"), std::string::npos);
  EXPECT_NE(memory[1].find(" 0 dropped"), std::string::npos);
}

}  // namespace
}  // namespace weir::testing
