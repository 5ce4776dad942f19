// SPDX-License-Identifier: Apache-2.0
// A server with recall on a disk that fails at every n-th call of one kind: it answers, says in one line what it cannot
// keep, and recalls what was said; when the disk is well again, what it acknowledged is there, or was said to be lost.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "cli/process.h"
#include "serve/server_process.h"
#include "serve/session_client.h"
#ifdef WEIR_DISK_FAULTS
#include "support/failing_disk.h"
#endif

namespace weir::testing {
namespace {

#ifdef WEIR_DISK_FAULTS

namespace fs = std::filesystem;

const std::string kKeeper = "The lighthouse keeper of Varnholm was called Ottoline Quistgaard.";
const std::string kWhoKept = "Who was the lighthouse keeper of Varnholm?";
const std::string kBell = "The bell of Skarholt weighs nine tonnes.";
const std::string kWhatBell = "What of the bell of Skarholt?";

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

class RecallFaultsTest : public ::testing::Test {
 protected:
  std::vector<std::string> Flags(const TempDir& temp, const std::string& recall) const {
    return {"--pot",           "96",
            "--policy",        "streaming_llm",
            "--recall",        recall,
            "--recall-dir",    temp.File("archives"),
            "--recall-disk",   "16MiB",
            "--recall-tokens", "240",
            "--snapshots",     temp.File("saved")};
  }
  // One line, of which clients need no folder.
  static void CheckError(const HttpAnswer& answer, const TempDir& temp) {
    ASSERT_GE(answer.status, 400) << answer.body;
    const std::string message = answer.json()["error"]["message"];
    EXPECT_FALSE(message.empty());
    EXPECT_EQ(message.find('\n'), message.npos) << message;
    EXPECT_EQ(message.find(temp.path()), message.npos) << message;
  }
  static void CheckNote(const Json& session, const TempDir& temp) {
    if (!session.contains("recall") || !session["recall"].contains("note")) return;
    const std::string note = session["recall"]["note"];
    EXPECT_EQ(note.find('\n'), note.npos) << note;
    EXPECT_EQ(note.find(temp.path()), note.npos) << note;
  }
  static std::string NoteOf(const Json& session) {
    return session.contains("recall") ? session["recall"].value("note", "") : "";
  }
  void Tell(Client& client, const std::string& id, const std::string& fact) {
    const std::string text = fact + " " + Words(160, "sea");
    said_ += Packed(text);
    const HttpAnswer answer = client.Do(id, "append", {{"text", text}});
    EXPECT_EQ(answer.status, 200) << answer.body;
  }
  // The answer comes, and what is recalled for it was said. Whether `want` is among it.
  bool Ask(Client& client, const std::string& id, const std::string& question, const std::string& want) {
    const HttpAnswer answer = client.Do(id, "ask", Question(question, {{"max_tokens", 3}, {"temperature", 0}}));
    EXPECT_EQ(answer.status, 200) << answer.body;
    if (answer.status != 200) return false;
    bool found = false;
    const Json weir = answer.json()["weir"];
    for (const Json& passage : weir["recalled"]) {
      const std::string text = passage["text"];
      EXPECT_TRUE(WasSaid(said_, text)) << text;
      found |= text.find(want) != text.npos;
    }
    return found;
  }
  // Returns how many calls failed.
  uintmax_t Play(const std::string& recall, const DiskFault& fault) {
    const TempDir temp;
    fs::create_directories(temp.File("saved"));
    said_.clear();
    bool saved = false, kept = false;
    {
      const FailingDisk disk(temp.File("archives"), temp.File("log"), fault, temp.File("on"));
      ServerProcess server(Flags(temp, recall));
      Client client(server);
      const std::string id = client.Create();
      Tell(client, id, kKeeper);
      EXPECT_EQ(client.Do(id, "save", {{"name", "early"}}).status, 200);
      temp.Write("on", "");
      for (int i = 0; i < 3; ++i) {
        Tell(client, id, i == 0 ? kBell : "");
        Ask(client, id, kWhoKept, "Ottoline");
      }
      const HttpAnswer forked = client.Do(id, "fork", Json::object());
      if (forked.status == 201) {
        const std::string fork = forked.json()["id"];
        Ask(client, fork, kWhatBell, "nine tonnes");
        server.Delete(kSessions + "/" + fork);
      } else {
        CheckError(forked, temp);
      }
      const HttpAnswer restored = server.Post(kSessions + "/restore", {{"name", "early"}});
      if (restored.status == 201) {
        CheckNote(restored.json(), temp);
        const bool found = Ask(client, restored.json()["id"], kWhoKept, "Ottoline");
        if (fault.call != "pread" && NoteOf(restored.json()).empty()) EXPECT_TRUE(found);
      } else {
        CheckError(restored, temp);
      }
      const HttpAnswer made = server.Post(kSessions, Json::object());
      if (made.status != 201) CheckError(made, temp);
      const HttpAnswer late = client.Do(id, "save", {{"name", "late"}});
      saved = late.status == 200;
      if (!saved) CheckError(late, temp);
      const Json state = client.State(id);
      CheckNote(state, temp);
      // What the session says it does not keep is not promised.
      kept = NoteOf(state).empty();
      EXPECT_EQ(server.Terminate(), 0);
    }
    ServerProcess server(Flags(temp, recall));
    Client client(server);
    const HttpAnswer early = server.Post(kSessions + "/restore", {{"name", "early"}});
    EXPECT_EQ(early.status, 201) << early.body;
    if (early.status == 201) {
      EXPECT_EQ(NoteOf(early.json()), "");
      EXPECT_TRUE(Ask(client, early.json()["id"], kWhoKept, "Ottoline"));
      EXPECT_FALSE(Ask(client, early.json()["id"], kWhatBell, "nine tonnes"));  // that was later
    }
    if (saved) {
      const HttpAnswer late = server.Post(kSessions + "/restore", {{"name", "late"}});
      EXPECT_EQ(late.status, 201) << late.body;
      if (late.status == 201) {
        CheckNote(late.json(), temp);
        const bool promised = kept && NoteOf(late.json()).empty();
        const std::string to = late.json()["id"];
        EXPECT_TRUE(Ask(client, to, kWhoKept, "Ottoline") || !promised);
        EXPECT_TRUE(Ask(client, to, kWhatBell, "nine tonnes") || !promised);
        Tell(client, to, "The mill of Aastrup burned down in May.");
        EXPECT_TRUE(Ask(client, to, "When did the mill of Aastrup burn?", "burned down"));
      }
    }
    std::error_code none;
    const uintmax_t n_failed = fs::file_size(temp.File("log"), none);
    // A session whose writes failed says so.
    if (!none && fault.call == "pwrite" && fault.number != 0 && fault.nth == 1) {
      EXPECT_FALSE(kept && saved);
    }
    return none ? 0 : n_failed;
  }

  std::string said_;  // without white space
};

TEST_F(RecallFaultsTest, EveryNthCall) {
  struct Kind {
    const char* call;
    std::vector<int> numbers;
    bool must = true;  // some call of this kind concerns the archives
  };
  const Kind kinds[] = {
      {"create", {ENOSPC}}, {"pwrite", {ENOSPC, EIO, 0}}, {"pread", {EIO, 0}},    {"sync", {EIO}},
      {"unlink", {EIO}},    {"ftruncate", {EIO}, false},  {"link", {EIO}, false}, {"rename", {EIO}, false}};
  for (const char* const recall :
       {"words:gate=0,passages=2,near=0", "both:gate=0,margin=0,passages=2,near=0,restore=kv"}) {
    for (const Kind& kind : kinds) {
      uintmax_t n_failed = 0;
      for (const int number : kind.numbers) {
        for (const int nth : {1, 2, 3, 5, 9, 17, 31}) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", recall, kind.call, nth, number));
          n_failed += Play(recall, {kind.call, nth, number});
          if (HasFatalFailure()) return;
        }
      }
      if (kind.must) {
        EXPECT_GT(n_failed, 0u) << kind.call;
      }
    }
  }
}

#else

TEST(RecallFaultsTest, EveryNthCall) { GTEST_SKIP() << "a sanitizer's runtime has to be loaded first"; }

#endif

}  // namespace
}  // namespace weir::testing
