// SPDX-License-Identifier: Apache-2.0
// Kills a server while its session reads, asks, and saves, with words, keys, and keys and values in the archive. Every
// restart restores the newest snapshot that was acknowledged, or the one that was being written; the session answers
// about what it was told by then, and knows nothing of what was lost.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "cli/process.h"
#include "serve/server_process.h"
#include "serve/session_client.h"

namespace weir::testing {
namespace {

namespace fs = std::filesystem;

// A name that no other number has.
std::string Name(const std::string& begin, int i) {
  static constexpr const char* kSyllables[] = {"ba", "ce", "di", "fo", "gu", "ha", "ke", "li", "mo", "nu"};
  std::string out = begin;
  for (int n = i + 1000; n > 0; n /= 10) out += kSyllables[n % 10];
  return out;
}
std::string Fact(int i) { return "The keeper of " + Name("Varn", i) + " was called " + Name("Otto", i) + "."; }

std::string Packed(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) out += c;
  }
  return out;
}

// Whether a passage was said. One from keys and values may begin with the frame of the chat: the name of a role.
bool WasSaid(const std::string& said, const std::string& text) {
  const std::string packed = Packed(text);
  const size_t frame = packed.rfind("user", 0) == 0 ? 4 : 0;
  return said.find(packed) != said.npos || said.find(packed.substr(frame)) != said.npos;
}

// Whether the fact is among what was brought back; all of that was said.
bool Remembers(Client& client, const std::string& id, int fact, const std::string& said) {
  const std::string question = "Who was the keeper of " + Name("Varn", fact) + "?";
  const HttpAnswer answer = client.Do(id, "ask", Question(question, {{"max_tokens", 2}, {"temperature", 0}}));
  EXPECT_EQ(answer.status, 200) << answer.body;
  bool found = false;
  if (answer.status != 200) return found;
  const Json weir = answer.json()["weir"];
  for (const Json& passage : weir["recalled"]) {
    const std::string text = passage["text"];
    EXPECT_TRUE(WasSaid(said, text)) << text;
    found |= text.find(Name("Otto", fact)) != text.npos;
  }
  return found;
}

// `sure`: a question with a name finds the sentence that has it, if it is there.
void KillAgainAndAgain(const std::string& recall, bool sure, int n_kills) {
  const TempDir temp;
  fs::create_directories(temp.File("saved"));
  const std::vector<std::string> flags = {"--pot",
                                          "96",
                                          "--policy",
                                          "streaming_llm",
                                          "--recall",
                                          recall,
                                          "--recall-dir",
                                          temp.File("archives"),
                                          "--recall-disk",
                                          "256MiB",
                                          "--recall-disk-total",
                                          "2GiB",
                                          "--recall-tokens",
                                          "240",
                                          "--snapshots",
                                          temp.File("saved")};
  struct State {
    std::vector<int> facts;  // that the session was told, in order
    std::string said;
  };
  std::map<int64_t, State> states;  // by how much the session had seen: what a snapshot may hold
  int64_t acknowledged = -1;        // of these, the newest save that was answered
  int64_t round_us = 0;             // that a fact and its save take
  int n_facts = 0, n_later = 0, n_asked = 0;
  std::set<int> lost;
  Rng rng(11);
  for (int kill = 0; kill < n_kills; ++kill) {
    SCOPED_TRACE(kill);
    ServerProcess server(flags);
    Client client(server);
    State now;
    std::string id;
    if (fs::exists(temp.File("saved/notes.weir"))) {
      const HttpAnswer restored = server.Post(kSessions + "/restore", {{"name", "notes"}});
      ASSERT_EQ(restored.status, 201) << restored.body;
      EXPECT_FALSE(restored.json()["recall"].contains("note")) << restored.body;
      EXPECT_EQ(restored.json()["states"]["gone"], 0) << restored.body;
      const int64_t seen = restored.json()["seen"];
      ASSERT_TRUE(states.contains(seen)) << seen;
      ASSERT_GE(seen, acknowledged);
      n_later += seen > acknowledged;
      now = states[seen];
      for (const auto& [n, state] : states) {
        for (const int fact : state.facts) {
          if (std::ranges::find(now.facts, fact) == now.facts.end()) lost.insert(fact);
        }
      }
      states = {{seen, now}};
      acknowledged = seen;
      id = restored.json()["id"];
      // The oldest fact, one of the others, the newest; and one that was lost.
      const size_t n = now.facts.size();
      for (const size_t i : {size_t{0}, static_cast<size_t>(rng.Below(n)), n - 1}) {
        EXPECT_TRUE(Remembers(client, id, now.facts[i], now.said) || !sure) << now.facts[i];
        ++n_asked;
      }
      if (!lost.empty()) {
        const auto one = std::next(lost.begin(), static_cast<ptrdiff_t>(rng.Below(lost.size())));
        EXPECT_FALSE(Remembers(client, id, *one, now.said)) << *one;
      }
    } else {
      ASSERT_EQ(acknowledged, -1);
      for (int i = 0; i < n_facts; ++i) lost.insert(i);
      states.clear();
      id = client.Create();
    }
    if (::testing::Test::HasFailure()) return;
    // Sessions that died with their server: another one deletes them when ten minutes are over.
    if (fs::exists(temp.File("archives"))) {
      for (const auto& entry : fs::directory_iterator(temp.File("archives"))) {
        const std::string name = entry.path().filename();
        if (name.rfind("s-", 0) == 0 && name != id) fs::remove_all(entry.path());
      }
    }
    std::atomic<int64_t> done = acknowledged;
    std::map<int64_t, State> begun;
    // Tells a fact, and enough to push it out of the pot; now and then a question; a save. False once the server is
    // gone.
    const auto go_on = [&](Client& its, int round) {
      const int fact = n_facts++;
      const std::string text = Fact(fact) + " " + Words(150, "sea");
      now.facts.push_back(fact);
      now.said += Packed(text);
      if (its.Do(id, "append", {{"text", text}}).status != 200) return false;
      if (round % 2 == 1) its.Do(id, "ask", Question("What of the sea?", {{"max_tokens", 2}}));
      const HttpAnswer state = server.Get(kSessions + "/" + id);
      if (state.status != 200) return false;
      const int64_t seen = state.json()["seen"];
      begun[seen] = now;
      if (its.Do(id, "save", {{"name", "notes"}}).status != 200) return false;
      done = seen;
      return true;
    };
    if (round_us == 0) {
      const auto start = Clock::now();
      EXPECT_TRUE(go_on(client, 1));
      round_us = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
    }
    std::thread talk([&] {
      Client its(server);
      for (int round = 0; go_on(its, round); ++round) {
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(rng.Below(static_cast<uint64_t>(3 * round_us))));
    server.Kill();
    talk.join();
    acknowledged = done;
    for (auto& [seen, state] : begun) states[seen] = state;
    std::erase_if(states, [&](const auto& one) { return one.first < acknowledged; });
    // What was told and not saved is lost.
    for (int i = 0; i < n_facts; ++i) {
      const bool may_be = std::ranges::any_of(
          states, [&](const auto& one) { return std::ranges::find(one.second.facts, i) != one.second.facts.end(); });
      if (!may_be) lost.insert(i);
    }
  }
  std::printf(
      "%d kills, %d facts told, %d of them lost with a server, %d asked; %d times a save was not yet answered\n",
      n_kills, n_facts, static_cast<int>(lost.size()), n_asked, n_later);
  EXPECT_GE(n_asked, 3 * (n_kills - 1));
}

// WEIR_KILLS: how often, 100 unless set.
int NumberOfKills() {
  const char* const kills = std::getenv("WEIR_KILLS");
  return kills == nullptr ? 100 : std::atoi(kills);
}

TEST(RecallKillsTest, EveryRestartKnowsWhatWasAcknowledged) {
  KillAgainAndAgain("words:gate=0,passages=2,near=0,restore=kv", true, NumberOfKills() / 2);
}

TEST(RecallKillsTest, AndWithKeys) {
  KillAgainAndAgain("both:gate=0,margin=0,passages=2,near=0,restore=kv", false, NumberOfKills() / 2);
}

}  // namespace
}  // namespace weir::testing
