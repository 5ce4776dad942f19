// SPDX-License-Identifier: Apache-2.0
// Recall as a user meets it: what is listed, searched by hand, kept with a session, and told of a trace.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "cli/refusal.h"

namespace weir::testing {
namespace {

using nlohmann::json;

class RecallTest : public RefusalTest {
 protected:
  RunResult Ok(const Arguments& arguments, const std::string& input = "") {
    RunOptions options;
    options.input = input;
    RunResult run = Run(arguments, options);
    EXPECT_EQ(run.code, 0) << ::testing::PrintToString(arguments) << "\nsignal " << run.signal << "\n" << run.err;
    return run;
  }
  json Parse(const std::string& line) {
    json value = json::parse(line, nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(value.is_object()) << line;
    return value;
  }
  Arguments Chat(const Arguments& more = {}) {
    return Join({"chat", "-m", ModelPath("llama"), "-n", "6", "--temp", "0", "--ignore-eos"}, more);
  }
  // With the archive in `folder`, brought back without a gate: the tiny model says nothing sensible, but reads.
  Arguments Kept(const std::string& folder, const Arguments& more = {}) {
    return Chat(Join({"--pot", "96", "--policy", "streaming_llm", "--recall", "words:gate=0,passages=1", "--recall-dir",
                      folder, "--recall-disk", "8MiB", "--recall-tokens", "120"},
                     more));
  }
  static std::string Pages(int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += "the man and the sea, ";
    return out;
  }
  const std::string fact_ = "The harpoon lay in the attic.";
};

TEST_F(RecallTest, SelectorsAreListedWithTheirOptions) {
  const std::string list = Ok({"recall"}).out;
  for (const char* word : {"words\n", "passages=2", "gate=", "margin=", "answers=0"}) {
    EXPECT_NE(list.find(word), std::string::npos) << word << " in\n" << list;
  }
}

TEST_F(RecallTest, ATextIsSearchedByHand) {
  const std::string text = dir_.Write("book.txt", Pages(100) + "\n\n" + fact_ + " Nobody saw it.\n\n" + Pages(100));
  const RunResult found = Ok({"recall", text, "where in the attic is the harpoon", "-n", "1"});
  EXPECT_NE(found.out.find(fact_), std::string::npos) << found.out;
  EXPECT_NE(found.out.find("match "), std::string::npos) << found.out;
  const json answer = Parse(Ok({"recall", text, "harpoon", "-o", "json"}).out);
  ASSERT_GE(answer["passages"].size(), 1u);
  const json& first = answer["passages"][0];
  const int64_t byte = first["byte"], end = first["end"];
  EXPECT_LE(byte, 2100 + 2);
  EXPECT_GE(end, 2100 + 2);
  EXPECT_NEAR(first["score"].get<double>(), 1, 0.5);
  const RunResult none = Ok({"recall", text, "zeppelin"});
  EXPECT_EQ(none.out, "");
  EXPECT_NE(none.err.find("nothing"), std::string::npos) << none.err;
}

TEST_F(RecallTest, AnArchiveIsSearchedByHandAndStaysAsItIs) {
  const std::string folder = dir_.File("archive");
  const std::string story = dir_.Write("story.txt", fact_ + "\n" + Pages(60));
  // A question says what is asked for, not what is so, and is not found.
  Ok(Kept(folder), "/file " + story + "\nIs the zeppelin there?\n");
  const auto written = std::filesystem::last_write_time(folder + "/00000001.seg");
  const auto size = std::filesystem::file_size(folder + "/00000001.seg");
  std::filesystem::permissions(folder, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  const RunResult found = Ok({"recall", folder, "harpoon attic"});
  EXPECT_EQ(found.out.rfind("token ", 0), 0u) << found.out;
  EXPECT_NE(found.out.find(fact_), std::string::npos) << found.out;
  EXPECT_EQ(Ok({"recall", folder, "zeppelin"}).out, "");
  const json all = Parse(Ok({"recall", folder, "-o", "json"}).out)["archive"];
  EXPECT_GT(all["end"], 300);
  EXPECT_GT(all["blocks"], 5);
  EXPECT_EQ(all["segments"], 1);
  EXPECT_EQ(all["disk_bytes"], size);
  EXPECT_NE(Ok({"recall", folder}).err.find("archive  tokens 0 to"), std::string::npos);
  std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
  EXPECT_EQ(std::filesystem::last_write_time(folder + "/00000001.seg"), written);
  EXPECT_EQ(std::filesystem::file_size(folder + "/00000001.seg"), size);
}

TEST_F(RecallTest, WhatCannotBeSearchedIsRefused) {
  const std::string text = dir_.Write("book.txt", Pages(3)), empty = dir_.File("empty");
  std::filesystem::create_directory(empty);
  ExpectError({"recall", dir_.File("none"), "sea"}, {"none"});
  ExpectError({"recall", empty, "sea"}, {"empty"});
  ExpectError({"recall", text}, {"book.txt", "weir recall"});
  ExpectError({"recall", text, "sea", "--recall", "nobody"}, {"nobody", "words"});
  ExpectError({"recall", text, "sea", "--recall", "off"}, {"off"});
  ExpectError({"recall", text, "sea", "-n", "0"}, {"--passages"});
  ASSERT_EQ(mkfifo(dir_.File("pipe").c_str(), 0600), 0);
  ExpectError({"recall", dir_.File("pipe"), "sea"}, {"pipe"});
  ExpectError({"recall", "", "sea"}, {"empty"});
}

TEST_F(RecallTest, TheOracleIsForExams) {
  ExpectError(Chat({"--recall", "oracle"}), {"oracle", "weir eval"});
  ExpectError({"recall", dir_.Write("book.txt", Pages(3)), "sea", "--recall", "oracle"}, {"oracle", "weir eval"});
  const Arguments exam = {
      "eval", "streamqa", "-m", ModelPath("llama"), "--pot", "128", "--gap", "64", "--every", "64", "--distance",
      "512",  "--n",      "4",  "--recall-tokens",  "160"};
  const std::string log = dir_.File("asked.log");
  const RunResult run = Ok(Join(exam, {"--recall", "oracle", "--log", log}));
  std::istringstream rows(run.out);
  std::string line;
  while (std::getline(rows, line)) {
    const json row = Parse(line);
    EXPECT_EQ(row["span_found"], 1) << line;
    EXPECT_EQ(row["found"], 1) << line;
  }
  // The log has every text and every question.
  std::ifstream file(log);
  int n_asked = 0;
  while (std::getline(file, line)) n_asked += Parse(line).contains("ask");
  EXPECT_EQ(n_asked, 8);
  // A suite that does not say where its answers are.
  ExpectError(
      {"eval", "longbench", "-m", ModelPath("llama"), "-f",
       dir_.Write("one.jsonl",
                  R"({"dataset":"qasper","metric":"qa_f1","max_new_tokens":4,"prompt":"the man","answers":["sea"]})"
                  "\n"),
       "--pot", "128", "--recall", "oracle"},
      {"oracle"}, true);
}

// While nobody asks, likelihoods and the trace are the same bytes.
TEST_F(RecallTest, RecallChangesNoLikelihood) {
  const std::string text = dir_.Write("book.txt", fact_ + Pages(200)), folder = dir_.File("archive");
  const auto rows = [&](const Arguments& more, const std::string& trace) {
    std::istringstream out(Ok(Join({"eval", "ppl", "-m", ModelPath("llama"), "-f", text, "--policy", "weir", "--pot",
                                    "96", "--segment", "200", "--trace", trace},
                                   more))
                               .out);
    std::vector<json> all;
    for (std::string line; std::getline(out, line);) {
      const json row = Parse(line);
      all.push_back({row["task"], row["value"], row["stderr"], row["n"]});
      EXPECT_EQ(row.contains("archive_bytes"), !more.empty()) << line;
    }
    return all;
  };
  const std::string off = dir_.File("off.trace"), on = dir_.File("on.trace");
  const std::vector<json> without = rows({}, off), with = rows({"--recall", "words", "--recall-dir", folder}, on);
  EXPECT_GT(without.size(), 3u);
  EXPECT_EQ(without, with);
  // The first line says how many slots there are.
  const auto bytes = [](const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string first;
    std::getline(file, first);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_GT(bytes(off).size(), 100u);
  EXPECT_TRUE(bytes(off) == bytes(on));
  // Its archive is not another measurement's.
  ExpectError({"eval", "ppl", "-m", ModelPath("llama"), "-f", text, "--recall", "words", "--recall-dir", folder},
              {folder, "archive"});
  ExpectError({"eval", "ppl", "-m", ModelPath("llama"), "-f", text, "--recall", "words", "--window", "64"},
              {"--window"});
  ExpectError({"bench", "-m", ModelPath("llama"), "--recall", "words"}, {"--stream"});
  const json row = Parse(Ok({"bench", "-m", ModelPath("llama"), "--policy", "weir", "--pot", "96", "--stream", "1000",
                             "--every", "1000", "--stream-gen", "0", "-o", "jsonl", "--recall", "words"})
                             .out);
  EXPECT_GT(row["archive_bytes"], 1000);
}

// --session with --recall-dir: a new process finds what an earlier one read.
TEST_F(RecallTest, AnArchiveGoesOnWithItsSession) {
  const std::string story = dir_.Write("story.txt", fact_ + "\n" + Pages(60));
  const std::string folder = dir_.File("archive"), file = dir_.File("a.weir"),
                    question = "Where in the attic is the harpoon?\n";
  const std::string whole = Ok(Kept(folder), "/file " + story + "\nwho?\n" + question).out;
  std::filesystem::remove_all(folder);
  std::string pieces = Ok(Kept(folder, {"--session", file}), "/file " + story + "\nwho?\n").out;
  const RunResult asked = Ok(Kept(folder, {"--session", file}), question);
  pieces += asked.out;
  EXPECT_EQ(pieces, whole);
  EXPECT_NE(asked.err.find("recall   token"), std::string::npos) << asked.err;
  EXPECT_NE(asked.err.find("harpoon"), std::string::npos) << asked.err;
  // Without the folder it goes on and says so; not without recall.
  const std::string copy = dir_.File("b.weir");
  std::filesystem::copy_file(file, copy);
  ExpectError(Chat({"--session", copy, "--recall", "off"}), {copy, "recall"}, true);
  EXPECT_NE(Ok(Chat({"--session", copy}), "who?\n").err.find("archive is gone"), std::string::npos);
  // The folder is refused to a session that begins, and to one that was saved with another archive.
  ExpectError(Kept(folder), {folder, "another session"}, true);
  const std::string other = dir_.File("other"), third = dir_.File("c.weir");
  Ok(Kept(other, {"--session", third}), "the man\n");
  const std::string before = Ok({"recall", folder, "harpoon", "-o", "json"}).out;
  ExpectError(Kept(folder, {"--session", third}), {folder, "not the archive"}, true);
  EXPECT_EQ(Ok({"recall", folder, "harpoon", "-o", "json"}).out, before);
}

TEST_F(RecallTest, LoadAndResetTakeTheArchiveBack) {
  const std::string story = dir_.Write("story.txt", Pages(20)), later = dir_.Write("later.txt", fact_ + Pages(40));
  const std::string folder = dir_.File("archive"), file = dir_.File("a.weir");
  Ok(Kept(folder),
     "/file " + story + "\nwho?\n/save " + file + "\n/file " + later + "\nwho?\n/load " + file + "\nwho?\n");
  EXPECT_EQ(Parse(Ok({"recall", folder, "harpoon", "-o", "json"}).out)["passages"].size(), 0u);
  const std::string reset = dir_.File("reset");
  Ok(Kept(reset), "/file " + later + "\nwho?\n/reset\nthe boat\n");
  EXPECT_EQ(Parse(Ok({"recall", reset, "harpoon", "-o", "json"}).out)["passages"].size(), 0u);
  EXPECT_GT(Parse(Ok({"recall", reset, "-o", "json"}).out)["archive"]["end"], 0);
}

// Three states: held, on disk, gone.
TEST_F(RecallTest, ATraceSaysWhereItsTokensAre) {
  const std::string story = dir_.Write("story.txt", Pages(2) + fact_ + "\n" + Pages(60));
  const std::string folder = dir_.File("archive"), trace = dir_.File("t.jsonl");
  Ok(Kept(folder, {"--trace", trace}),
     "/file " + story + "\nWhere in the attic is the harpoon?\nAnd where is the zeppelin now?\n");
  const auto find = [&](const std::string& text, const Arguments& more = {}) {
    return Parse(Ok(Join({"remembers", trace, "--find", text, "-o", "json"}, more)).out)["found"];
  };
  const Arguments disk = {"--recall-dir", folder};
  const json told = find("the harpoon  lay\nIN the attic", disk);
  ASSERT_GE(told.size(), 2u) << "the passage, and its copy for the answer";
  const int64_t n = told[0]["end"].get<int64_t>() - told[0]["begin"].get<int64_t>();
  EXPECT_EQ(told[0]["on_disk"], n);
  EXPECT_EQ(told[0]["held"], 0);
  EXPECT_EQ(told[1]["taken_back"].get<int64_t>(), told[1]["end"].get<int64_t>() - told[1]["begin"].get<int64_t>());
  EXPECT_EQ(find("the harpoon lay in the attic")[0]["gone"], n);
  const json newest = find("zeppelin", disk);
  ASSERT_EQ(newest.size(), 1u);
  EXPECT_GT(newest[0]["held"], 0);
  EXPECT_EQ(newest[0]["on_disk"], 0);
  EXPECT_NE(
      Ok({"remembers", trace, "--find", "harpoon lay in the attic", "--recall-dir", folder}).out.find(": on disk"),
      std::string::npos);
  ExpectError({"remembers", trace, "--find", "lighthouse"}, {"lighthouse"});
  ExpectError({"remembers", trace}, {"--at", "--find"});
  ExpectError({"remembers", trace, "--at", "5", "--recall-dir", dir_.File("none")}, {"none"});

  const json part = Parse(Ok(Join({"remembers", trace, "--at", "0:", "-o", "json"}, disk)).out);
  const int64_t held = part["held"], on_disk = part["on_disk"], gone = part["gone"], taken = part["taken_back"];
  EXPECT_EQ(held + on_disk + gone + taken, part["seen"].get<int64_t>());
  EXPECT_GT(on_disk, 200);
  EXPECT_GT(taken, 5);
  EXPECT_NE(part["text"].get<std::string>().find("on disk ...]"), std::string::npos);
  const std::string table = Ok(Join({"trace", trace}, disk)).out;
  EXPECT_NE(table.find("on disk"), std::string::npos) << table;
  EXPECT_EQ(Ok({"trace", trace}).out.find("on disk"), std::string::npos);
}

}  // namespace
}  // namespace weir::testing
