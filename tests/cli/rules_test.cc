// SPDX-License-Identifier: Apache-2.0
// weir watch --when: events over videos and texts, the command that they start, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "cli/refusal.h"
#include "support/pictures.h"

namespace weir::testing {
namespace {

using nlohmann::json;

class RulesTest : public RefusalTest {
 protected:
  // The tiny models say nothing sensible, so that every rise of the odds is an event here.
  const Arguments eager_ = {"--score", "0.01", "--odds", "-30", "--hold", "1", "-o", "json"};

  Arguments Video(const std::string& source, const Arguments& more) {
    return Join({"watch", source, "-m", VisionPath("llava.gguf"), "--mmproj", VisionPath("clip.gguf"), "--temp", "0",
                 "-n", "6", "--ignore-eos", "--fps", "2", "--fast", "--pot", "128", "--policy", "streaming_llm"},
                more);
  }
  Arguments Text(const std::string& source, const Arguments& more) {
    return Join({"watch", "--follow", source, "-m", ModelPath("llama"), "--pot", "96", "--policy", "streaming_llm",
                 "--check", "8"},
                more);
  }
  static std::string Log(int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += i % 7 == 3 ? "the man came\n" : "the sea and the sea\n";
    return out;
  }
  RunResult Ok(const Arguments& arguments, const RunOptions& options = {}) {
    RunResult run = Run(arguments, options);
    EXPECT_EQ(run.code, 0) << ::testing::PrintToString(arguments) << "\n" << run.err;
    return run;
  }
  // The events of a run; *report receives its last line.
  static std::vector<json> Events(const RunResult& run, json* report) {
    std::vector<json> out;
    for (const std::string& line : Lines(run.out)) {
      const json row = json::parse(line, nullptr, false);
      EXPECT_TRUE(row.is_object()) << line;
      if (row.value("type", "") == "event") out.push_back(row);
      if (row.value("type", "") == "report") *report = row;
    }
    return out;
  }
  // Ids are 1, 2, ...; every rule's events begin and end in turn.
  static void ExpectInTurn(const std::vector<json>& events) {
    std::map<std::string, int64_t> begun;
    int64_t id = 0;
    for (const json& event : events) {
      EXPECT_EQ(event["id"], ++id);
      const std::string rule = event["rule"];
      EXPECT_EQ(event["state"], begun.contains(rule) ? "ended" : "began") << event;
      EXPECT_LE(event["since_ms"], event["t_ms"]);
      if (event["state"] == "began") {
        begun[rule] = id;
      } else {
        EXPECT_EQ(event["began_id"], begun[rule]);
        begun.erase(rule);
      }
    }
  }
  std::string Read(const std::string& name) {
    std::stringstream out;
    out << std::ifstream(dir_.File(name)).rdbuf();
    return out.str();
  }
};

TEST_F(RulesTest, AVideosEventsAndNoTraceOfThem) {
  if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
  const std::string video = dir_.Write("v.y4m", Y4mBytes(150, 5));
  const Arguments ask = {"--ask", "what is it", "--every", "5s"};
  const Arguments rules = {"--when", "what is it => the man", "--when", "who => sea"};
  json report, plain_report;
  const RunResult watched = Ok(Video(video, Join(Join(rules, ask), eager_)));
  const std::vector<json> events = Events(watched, &report);
  ASSERT_GE(events.size(), 2u) << watched.out;
  ExpectInTurn(events);
  for (const json& event : events) {
    EXPECT_GE(event["t_ms"], 8 * 500) << "eight frames only teach it";
    EXPECT_FALSE(event["evidence"]["frames_ms"].empty());
    EXPECT_LE(event["evidence"]["frames_ms"].back(), event["t_ms"]);
  }
  EXPECT_EQ(report["rules"]["checks"], 60);
  EXPECT_EQ(report["rules"]["events"], events.size());
  EXPECT_EQ(Ok(Video(video, Join(Join(rules, ask), eager_))).err.find("warning"), std::string::npos);
  // Without rules the stream and its answers are the same.
  const RunResult plain = Ok(Video(video, Join(ask, {"-o", "json"})));
  Events(plain, &plain_report);
  EXPECT_EQ(report["tokens_seen"], plain_report["tokens_seen"]);
  const auto answers = [](const RunResult& run) {
    std::vector<std::string> out;
    for (const std::string& line : Lines(run.out)) {
      const json row = json::parse(line, nullptr, false);
      if (row["type"] == "answer") out.push_back(row["text"]);
    }
    return out;
  };
  EXPECT_EQ(answers(watched), answers(plain));
  EXPECT_EQ(answers(plain).size(), 5u);
}

TEST_F(RulesTest, ScoresOfEveryCheck) {
  const std::string log = dir_.Write("app.log", Log(60));
  const Arguments rules = Join({"--fast", "--when", "who came? => the man", "--when", "where => sea"}, eager_);
  const RunResult plain = Ok(Text(log, rules)), told = Ok(Text(log, Join(rules, {"--scores"})));
  json report;
  const std::vector<json> events = Events(told, &report);
  std::map<int64_t, json> at;  // by line
  for (const std::string& line : Lines(told.out)) {
    const json row = json::parse(line, nullptr, false);
    if (row["type"] != "scores") continue;
    ASSERT_EQ(row["rules"].size(), 2u);
    at[row["line"]] = row["rules"];
  }
  EXPECT_EQ(report["rules"]["checks"], at.size());
  ASSERT_FALSE(events.empty());
  for (const json& event : events) {
    const json& rule = at[event["line"]][event["rule"] == "r1" ? 0 : 1];
    EXPECT_EQ(rule["rule"], event["rule"]);
    EXPECT_EQ(rule["score"], event["score"]);
    EXPECT_EQ(rule["log_odds"], event["log_odds"]);
  }
  json plain_report;
  EXPECT_EQ(Events(plain, &plain_report), events);
  const RunResult text =
      Ok(Text(log, {"--fast", "--when", "who came? => the man", "--when", "where => sea", "--scores"}));
  EXPECT_NE(text.out.find("[0:00:00.0] r1 "), std::string::npos) << text.out;
}

TEST_F(RulesTest, StillFramesAreLeftOutButCount) {
  if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
  std::string still = Y4mBytes(1, 5);
  const size_t head = still.find("FRAME");
  const std::string frame = still.substr(head);
  for (int i = 1; i < 150; ++i) still += frame;
  const std::string video = dir_.Write("still.y4m", still);
  json report;
  Events(Ok(Video(video, Join({"--when", "what => sea", "--skip-still", "10s"}, eager_))), &report);
  EXPECT_EQ(report["frames_arrived"], 60);
  EXPECT_EQ(report["frames_looked_at"], 3);
  EXPECT_EQ(report["frames_still"], 57);
  EXPECT_EQ(report["rules"]["checks"], 3);
}

// A frame that was not checked, with frames behind it that look like it: one of these is.
TEST_F(RulesTest, EveryNthFrameIsCheckedAlsoAmongStillOnes) {
  if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
  // Twelve frames that differ enough, each five times.
  const std::string once = Y4mBytes(48, 2);
  const size_t head = once.find("FRAME"), n_frame = (once.size() - head) / 48;
  std::string bytes = once.substr(0, head);
  for (size_t i = 0; i < 60; ++i) bytes += once.substr(head + i / 5 * 4 * n_frame, n_frame);
  const std::string video = dir_.Write("still.y4m", bytes);
  for (const auto& [every, n_checks] : std::map<std::string, int>{{"1", 12}, {"4", 12}, {"20", 3}}) {
    json report;
    Events(Ok(Video(video, Join({"--when", "what => sea", "--skip-still", "100s", "--check", every}, eager_))),
           &report);
    EXPECT_EQ(report["frames_looked_at"], 12) << every;
    EXPECT_EQ(report["rules"]["checks"], n_checks) << every;
  }
}

TEST_F(RulesTest, ATextsEventsAreThoseOfItsTokens) {
  const std::string log = dir_.Write("app.log", Log(120));
  const Arguments rules = Join({"--when", "who came? => the man"}, eager_);
  json report, piped_report;
  const std::vector<json> events = Events(Ok(Text(log, Join({"--fast"}, rules))), &report);
  ASSERT_GE(events.size(), 1u);
  ExpectInTurn(events);
  EXPECT_EQ(report["line"], 120);
  for (const json& event : events) {
    EXPECT_GT(event["line"], 0);
    EXPECT_NE(event["evidence"]["text"].get<std::string>().find("the"), std::string::npos) << event;
  }
  RunOptions options;
  options.input = Log(120);
  const std::vector<json> piped = Events(Ok(Text("-", Join({"--fast"}, rules)), options), &piped_report);
  EXPECT_EQ(events, piped);
}

// Two lines are the same but for words with digits; what goes on is read again every so many lines.
TEST_F(RulesTest, LinesThatSayTheSameAreLeftOutButCount) {
  std::string text;
  constexpr int kLines = 3000, kWindow = 100;
  int64_t n_new = 0, last_sea = -kWindow, last_man = -kWindow;
  for (int i = 0; i < kLines; ++i) {
    const bool man = i % 40 == 7;
    int64_t& last = man ? last_man : last_sea;
    if (i - last >= kWindow) {
      last = i;
      ++n_new;
    }
    const std::string number = std::to_string(i * 7919 % 10007);
    text += man ? "the man came at 10.0." + number + "\n" : "the sea" + number + " and the sea a" + number + "f\r\n";
  }
  const std::string log = dir_.Write("app.log", text);
  const Arguments rules = Join({"--fast", "--when", "who => the man"}, eager_);
  json report, again;
  const RunResult run = Ok(Text(log, Join(rules, {"--skip-same", std::to_string(kWindow)})));
  const std::vector<json> events = Events(run, &report);
  EXPECT_EQ(report["line"], kLines);
  EXPECT_EQ(report["lines_same"], kLines - n_new);
  EXPECT_LT(report["tokens_seen"], 40 * n_new);
  EXPECT_GE(report["rules"]["checks"], n_new / 3) << "what was read is checked";
  ExpectInTurn(events);
  int64_t line = 0;
  for (const json& event : events) {
    EXPECT_GE(event["line"], line);
    EXPECT_LE(event["line"], kLines);
    line = event["line"];
  }
  EXPECT_EQ(Ok(Text(log, Join(rules, {"--skip-same", std::to_string(kWindow)}))).out.substr(0, 200),
            run.out.substr(0, 200));
  // Where nothing is said twice, nothing is left out; a line without an end, and one that is longer than any, are read.
  std::string other;
  for (int i = 0; i < 60; ++i) other += "the sea " + std::string(static_cast<size_t>(i + 1), 'x') + "\n";
  other += std::string(40000, 'y') + "\nthe man";
  const std::string distinct = dir_.Write("other.log", other);
  Events(Ok(Text(distinct, Join(rules, {"--skip-same", "5000"}))), &report);
  Events(Ok(Text(distinct, rules)), &again);
  EXPECT_EQ(report["lines_same"], 0);
  EXPECT_NEAR(report["tokens_seen"].get<double>(), again["tokens_seen"].get<double>(), 80);
  ExpectError({"watch", "v.mp4", "-m", ModelPath("llama"), "--skip-same", "5", "--when", "a => b"},
              {"--skip-same", "--follow"});
}

TEST_F(RulesTest, AFileIsFollowedAsItGrowsAndAcrossRotation) {
  const std::string log = dir_.Write("app.log", Log(500));  // what is there already is not read
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    std::ofstream(log, std::ios::app) << Log(30) << std::flush;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    // Whoever had it open writes on for a moment.
    std::ofstream old(log, std::ios::app);
    rename(log.c_str(), (log + ".1").c_str());
    std::ofstream(log) << Log(25);
    old << Log(5) << std::flush;
  });
  RunOptions options;
  options.interrupt_after_ms = 5000;
  const RunResult run = Run(Text(log, Join({"--when", "who came? => the man"}, eager_)), options);
  writer.join();
  EXPECT_EQ(run.code, 130) << run.err;
  json report;
  ExpectInTurn(Events(run, &report));
  EXPECT_EQ(report["line"], 60) << run.out;
  EXPECT_EQ(report["bytes_skipped"], 0);
}

// By the clock, though the events of a text that is read whole have none.
TEST_F(RulesTest, ReportsOfATextComeAtTheirTime) {
  const std::string log = dir_.Write("app.log", Log(120));
  const auto n_reports = [&](const std::string& every) {
    const RunResult run = Ok(Text(log, Join({"--fast", "--when", "who came? => the man", "--report", every}, eager_)));
    return std::ranges::count_if(Lines(run.out), [](const std::string& line) {
      return json::parse(line, nullptr, false).value("type", "") == "report";
    });
  };
  EXPECT_EQ(n_reports("1h"), 1) << "the last";
  EXPECT_GE(n_reports("1ms"), 4);
}

TEST_F(RulesTest, TheCommandGetsTheEventAndNothingOfItIsShell) {
  const std::string log = dir_.Write("app.log", Log(120));
  const std::string when = "who; touch a$(touch b)`touch c`' \" > d => the man";
  json report;
  const std::vector<json> events =
      Events(Ok(Text(log, Join({"--fast", "--when", when, "--then",
                                "cat >> lines; printf '%s %s %s\\n' \"$WEIR_EVENT_ID\" \"$WEIR_EVENT_STATE\" "
                                "\"$WEIR_EVENT_WHEN\" >> named; echo said"},
                               eager_))),
             &report);
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(report["rules"]["commands"]["run"], events.size());
  EXPECT_EQ(report["rules"]["commands"]["failed"], 0);
  const std::vector<std::string> lines = Lines(Read("lines")), named = Lines(Read("named"));
  ASSERT_EQ(lines.size(), events.size());
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(json::parse(lines[i], nullptr, false), events[i]);
    EXPECT_EQ(named[i], std::to_string(i + 1) + " " + events[i]["state"].get<std::string>() + " " + when);
  }
  EXPECT_EQ(dir_.Names(), (std::vector<std::string>{"app.log", "lines", "named"}));
}

TEST_F(RulesTest, APictureOfEveryEvent) {
  if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
  const std::string video = dir_.Write("v.y4m", Y4mBytes(150, 5));
  const Arguments rules = Join({"--when", "what is it => the man", "--when", "who => sea"}, eager_);
  const Arguments named = {"--then", "cat > /dev/null; echo \"$WEIR_EVENT_PICTURE\" >> named"};
  const std::string folder = dir_.File("of/events");
  json report, plain_report;
  const std::vector<json> events = Events(Ok(Video(video, Join(Join(rules, named), {"--pictures", folder}))), &report);
  ASSERT_GE(events.size(), 2u);
  const std::vector<std::string> paths = Lines(Read("named"));
  ASSERT_EQ(paths.size(), events.size());
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["picture"], paths[i]);
    EXPECT_TRUE(paths[i].starts_with(folder + "/")) << paths[i];
    std::stringstream png;
    png << std::ifstream(paths[i]).rdbuf();
    EXPECT_TRUE(png.str().starts_with("\x89PNG\r\n\x1a\n")) << paths[i];
  }
  // Nothing else of the stream is other than without; the memory is planned.
  const std::vector<json> plain = Events(Ok(Video(video, rules)), &plain_report);
  ASSERT_EQ(plain.size(), events.size());
  for (size_t i = 0; i < events.size(); ++i) {
    json without = events[i];
    without.erase("picture");
    EXPECT_EQ(without, plain[i]);
  }
  EXPECT_EQ(report["tokens_seen"], plain_report["tokens_seen"]);
  EXPECT_GT(report["session_bytes"].get<int64_t>() - plain_report["session_bytes"].get<int64_t>(), 2 << 20);

  ExpectError(Video(video, Join(rules, {"--pictures", dir_.Write("file", "")})), {"--pictures", "file"});
  ExpectError(Video(video, {"--pictures", folder}), {"--pictures", "--when"});
  ExpectError(Video(video, Join(rules, {"--pictures", std::string(2000, 'x')})), {"--pictures", "1024"});
  ExpectError(Text(dir_.Write("a.log", Log(3)), Join({"--fast", "--pictures", folder}, rules)),
              {"--pictures", "video"});
}

TEST_F(RulesTest, ACommandThatFailsOrHangsHoldsUpNothing) {
  const std::string log = dir_.Write("app.log", Log(120));
  const Arguments rules = Join({"--fast", "--when", "who came? => the man"}, eager_);
  json report;
  const RunResult failed = Ok(Text(log, Join(rules, {"--then", "exit 3"})));
  std::vector<json> events = Events(failed, &report);
  EXPECT_EQ(report["rules"]["commands"]["failed"], events.size());
  EXPECT_NE(failed.err.find("weir: warning: --then, event 1: "), std::string::npos) << failed.err;
  // The first event's command hangs, and so does what it started; it is ended after its limit.
  const auto start = std::chrono::steady_clock::now();
  const RunResult hung =
      Ok(Text(log, Join(rules, {"--then", "[ $WEIR_EVENT_ID != 1 ] || sleep 100 & wait", "--then-limit", "1s"})));
  events = Events(hung, &report);
  EXPECT_EQ(report["rules"]["commands"]["run"], events.size());
  EXPECT_EQ(report["rules"]["commands"]["failed"], 1) << hung.err;
  EXPECT_NE(hung.err.find("1000 ms"), std::string::npos) << hung.err;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST_F(RulesTest, ACommandMayWorkOnWithoutOutputAndItsErrorsAreShown) {
  const std::string log = dir_.Write("app.log", Log(120));
  const Arguments rules = Join({"--fast", "--when", "who came? => the man"}, eager_);
  json report;
  const RunResult run = Ok(Text(log, Join(rules, {"--then",
                                                  "echo on the other channel >&2; exec >>alarm 2>&1; "
                                                  "[ $WEIR_EVENT_ID != 1 ] || sleep 6; echo done"})));
  const std::vector<json> events = Events(run, &report);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(report["rules"]["commands"]["failed"], 0) << run.err;
  EXPECT_EQ(Lines(Read("alarm")).size(), events.size());
  EXPECT_NE(run.err.find("on the other channel"), std::string::npos) << run.err;
}

TEST_F(RulesTest, BadRulesAreOneLine) {
  const std::string log = dir_.Write("app.log", "the sea\n");
  const auto refuse = [&](const Arguments& more, const Arguments& words, bool before = false) {
    ExpectError(Text(log, Join({"--fast"}, more)), words, before);
  };
  refuse({"--when", ""}, {"--when", "without words"});
  refuse({"--when", "=> red"}, {"--when", "question before it"});
  refuse({"--when", std::string(1001, 'x')}, {"--when", "1001 bytes", "1000"});
  refuse({"--when", "\xff"}, {"--when", "UTF-8"});
  refuse({"--when", "a => b", "--cooldown", "soon"}, {"--cooldown", "soon"});
  refuse({"--when", "a => b", "--cooldown", "5s"}, {"--cooldown", "--fast"});
  refuse({"--when", "a => b", "--hold", "0"}, {"--hold"});
  refuse({"--when", "a => b", "--then", ""}, {"--then"});
  refuse({"--when", "the man came"}, {"\"the man came\"", "no words for yes and no", "=>"}, true);
  std::string words;
  for (int i = 0; i < 199; ++i) words += "sea ";
  refuse({"--when", words + "=> man"}, {"tokens to ask", "fewer words"}, true);
  Arguments many;
  for (int i = 0; i < 65; ++i) many = Join(many, {"--when", "a => b"});
  refuse(many, {"--when", "65", "64"});
  ExpectError({"watch", "--follow", log, "-m", ModelPath("llama")}, {"--when"});
  ExpectError({"watch", "-m", ModelPath("llama"), "--when", "a => b"}, {"--follow"});
  ExpectError(Text(dir_.File("none.log"), {"--when", "a => b"}), {"none.log", "no such file"});
  ExpectError(Text(dir_.path(), {"--when", "a => b"}), {"folder"});
}

TEST_F(RulesTest, AddressesOfOtherKindsNameTheSupportedOnes) {
  for (const std::string source : {"srt://me:secret@camera/1", "udp://camera:5000", "file:///etc/passwd"}) {
    ExpectError(Video(source, {"--when", "a => b"}),
                {source.substr(0, source.find(':')) + "://", "not supported", "rtsp://", "/dev/video0"}, true);
  }
  // Of a kind that is not, and of one that is: nobody listens there.
  for (const char* address : {"srt://me:secret@camera/1", "rtsp://me:secret@127.0.0.1:1/1"}) {
    const RunResult run = Run(Video(address, {}));
    EXPECT_NE(run.code, 0);
    EXPECT_EQ(run.err.find("secret"), std::string::npos) << run.err;
    EXPECT_EQ(run.err.find("0x"), std::string::npos) << "addresses of a decoder's memory: " << run.err;
  }
}

TEST_F(RulesTest, ThePlanHasTheirRoomAndTheirTokens) {
  const Arguments plan = {"plan", "-m", ModelPath("llama"), "--pot", "96", "-o", "json"};
  const auto planned = [&](const Arguments& rules) { return json::parse(Ok(Join(plan, rules)).out, nullptr, false); };
  const json none = planned({}), one = planned({"--when", "who came? => the man"}),
             two = planned({"--when", "who came? => the man", "--when", "what? => sea"});
  EXPECT_GT(one["session_bytes"], none["session_bytes"]);
  // A rule more takes memory of its own, and no slots.
  const int64_t more = two["session_bytes"].get<int64_t>() - one["session_bytes"].get<int64_t>();
  EXPECT_GT(more, 0);
  EXPECT_LT(more, 20000);
  const json then = planned({"--when", "who came? => the man", "--then", "true", "--mqtt", "mqtt://127.0.0.1:1"});
  EXPECT_GT(then["session_bytes"].get<int64_t>() - one["session_bytes"].get<int64_t>(), 3 << 20);
  EXPECT_NE(then["items"].dump().find("what waits for the MQTT broker"), std::string::npos) << then;
  EXPECT_NE(one["items"].dump().find("questions aside, 192 slots"), std::string::npos) << one;
  EXPECT_GT(one["rules"]["tokens_per_check"], 0);
  EXPECT_GT(two["rules"]["tokens_per_check"], one["rules"]["tokens_per_check"]);
  EXPECT_FALSE(none.contains("rules"));
  ExpectError(Join(plan, {"--when", "the man came"}), {"--when", "yes and no"});
}

TEST_F(RulesTest, TheHelpTeaches) {
  const std::string help = Ok({"watch", "--help"}).out;
  for (const char* word : {"--when", "--then", "--follow", "--skip-still", "a parcel lies at the door", "journalctl"}) {
    EXPECT_NE(help.find(word), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace weir::testing
