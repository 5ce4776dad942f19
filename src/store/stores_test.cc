// SPDX-License-Identifier: Apache-2.0
// What every store promises, leases and ownership included: the same tests for a folder, S3 and Redis.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "store/lease.h"
#include "store/ownership.h"
#include "store/spool.h"
#include "support/fault_proxy.h"
#include "support/store_places.h"

namespace weir {
namespace {

using std::chrono::milliseconds;
using testing::FaultProxy;
using testing::StorePlace;
using Fault = FaultProxy::Fault;

std::string ContentOf(const LocalFile& file) {
  std::ifstream in(file.path(), std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

Status Put(Store& store, const std::string& key, const std::string& bytes) {
  WEIR_ASSIGN_OR_RETURN(const LocalFile file, store.NewFile(key));
  std::ofstream(file.path(), std::ios::binary) << bytes;
  return store.Send(key, file);
}

std::string Long(size_t n) {
  std::string out;
  for (size_t i = 0; out.size() < n; ++i) out += std::to_string(i * 7919) + "\n";
  return out;
}

class Stores : public ::testing::TestWithParam<const char*> {
 protected:
  static StorePlace& Place() { return StorePlace::Of(GetParam()); }
  void SetUp() override {
    if (!Place().skip().empty()) GTEST_SKIP() << Place().skip();
    store_ = Place().Open();
    ASSERT_NE(store_, nullptr);
    name_ = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    name_ = name_.substr(0, name_.find('/'));
  }
  bool remote() const { return Place().port() != 0; }
  bool http() const { return std::string(GetParam()) == "s3"; }

  std::unique_ptr<Store> store_;
  std::string name_;
};

INSTANTIATE_TEST_SUITE_P(All, Stores, ::testing::Values("folder", "s3", "redis"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Stores, ANoteIsReplacedByWhoKnowsItsVersion) {
  const std::string key = "notes/" + name_;
  auto none = store_->Read(key);
  ASSERT_TRUE(none.ok()) << none.status().message();
  EXPECT_EQ(none->version, "");
  const auto one = store_->Write(key, "one", "");
  ASSERT_TRUE(one.ok()) << one.status().message();
  ASSERT_TRUE(one->has_value());
  EXPECT_FALSE((*store_->Write(key, "another", "")).has_value());
  EXPECT_EQ(store_->Read(key)->text, "one");
  EXPECT_EQ(store_->Read(key)->version, **one);
  const auto two = *store_->Write(key, "two", **one);
  ASSERT_TRUE(two.has_value());
  EXPECT_FALSE((*store_->Write(key, "three", **one)).has_value());
  EXPECT_EQ(store_->Read(key)->text, "two");
  // One that is gone has no version.
  EXPECT_TRUE(store_->Remove(key, *two).ok());
  EXPECT_EQ(store_->Read(key)->version, "");
  EXPECT_FALSE((*store_->Write(key, "four", *two)).has_value());
  EXPECT_TRUE((*store_->Write(key, "five", "")).has_value());
  EXPECT_TRUE(store_->Remove(key).ok());
  EXPECT_TRUE(store_->Remove(key).ok());
}

TEST_P(Stores, FilesOfAnySizeComeBack) {
  for (const size_t n : {size_t{1}, size_t{1000}, (size_t{1} << 18) + 1, size_t{3} << 20}) {
    const std::string key = "files/" + name_, bytes = Long(n);
    ASSERT_TRUE(Put(*store_, key, bytes).ok());
    const auto file = store_->Fetch(key, 4 << 20);
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(ContentOf(*file), bytes);
    if (remote() && n > 1000) {
      EXPECT_EQ(store_->Fetch(key, 1000).status().code(), StatusCode::kOverBudget);
    }
    EXPECT_TRUE(store_->Remove(key).ok());
    EXPECT_EQ(store_->Fetch(key, 4 << 20).status().code(), StatusCode::kNotFound);
  }
}

TEST_P(Stores, FilesOnTheirWayAreGoneAfterwards) {
  if (!remote()) GTEST_SKIP() << "a folder has its files in their place";
  std::string path;
  ASSERT_TRUE(Put(*store_, "way/one", "1").ok());
  {
    const auto file = store_->Fetch("way/one", 100);
    ASSERT_TRUE(file.ok());
    path = file->path();
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  const std::filesystem::path spool = std::filesystem::path(path).parent_path();
  EXPECT_TRUE(std::filesystem::exists(spool));
  store_.reset();
  EXPECT_FALSE(std::filesystem::exists(spool));
}

TEST_P(Stores, KeysAreListedByTheirBeginning) {
  std::vector<std::string> want;
  for (int i = 0; i < 20; ++i) {
    want.push_back("list/s-" + std::to_string(10 + i) + ".weir");
    ASSERT_TRUE(store_->Write(want.back(), std::to_string(i), "").ok());
  }
  ASSERT_TRUE(store_->Write("listed", "no", "").ok());
  auto found = store_->List("list/");
  ASSERT_TRUE(found.ok()) << found.status().message();
  std::sort(found->begin(), found->end());
  EXPECT_EQ(*found, want);
  EXPECT_EQ(store_->List("list/s-1")->size(), 10u);
  EXPECT_TRUE(store_->List("nothing/")->empty());
}

// Each sweeps what the others have just made.
TEST(Spool, ManyAreMadeAtOnce) {
  std::string folder = ::testing::TempDir() + "weir-spools-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::atomic<int> n_failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        const auto spool = Spool::Make(folder);
        if (!spool.ok() || !(*spool)->NewFile().ok()) ++n_failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_failed, 0);
  std::filesystem::remove_all(folder);
}

TEST_P(Stores, OneOfManyWritersWins) {
  const std::string key = "race/" + name_;
  std::string version;
  for (int round = 0; round < 6; ++round) {
    std::atomic<int> n_won{0};
    std::string won;
    std::mutex mutex;
    std::vector<std::thread> writers;
    for (int w = 0; w < 6; ++w) {
      writers.emplace_back([&, w] {
        const auto store = Place().Open();
        ASSERT_NE(store, nullptr);
        const auto written = store->Write(key, fmt::format("{} {}", round, w), version);
        ASSERT_TRUE(written.ok()) << written.status().message();
        if (!*written) return;
        ++n_won;
        const std::lock_guard<std::mutex> lock(mutex);
        won = **written;
      });
    }
    for (std::thread& writer : writers) writer.join();
    EXPECT_EQ(n_won, 1);
    EXPECT_EQ(store_->Read(key)->version, won);
    version = won;
  }
}

TEST_P(Stores, ALeaseHoldsUntilItIsGivenBack) {
  auto lease = Lease::Make(*store_, "a", milliseconds(3000), nullptr);
  ASSERT_TRUE(lease.ok()) << lease.status().message();
  LeaseWatch watch(*store_);
  const auto end = BootTime() + milliseconds(4500);
  while (BootTime() < end) {
    EXPECT_FALSE(*watch.Ended((*lease)->id()));
    std::this_thread::sleep_for(milliseconds(50));
  }
  EXPECT_TRUE((*lease)->Valid());
  EXPECT_TRUE((*lease)->id().starts_with("a-"));
  const std::string id = (*lease)->id();
  (*lease)->End();
  EXPECT_FALSE((*lease)->Valid());
  EXPECT_TRUE(*watch.Ended(id));
}

// An owner that was stopped: its lease is revoked, it notices, and what it had hangs on nothing.
TEST_P(Stores, AStaleLeaseIsRevokedAndItsOwnerIsTold) {
  if (!remote()) GTEST_SKIP() << "a folder cannot be cut off from one server alone";
  FaultProxy cut(Place().port(), http());
  StoreOptions options = Place().options();
  options.timeout = milliseconds(200);
  options.tries = 1;
  const auto there = Place().Open(cut.port(), &options);
  ASSERT_NE(there, nullptr);
  std::atomic<int> n_lost{0};
  auto lease = Lease::Make(*there, "a", milliseconds(800), [&] { ++n_lost; });
  ASSERT_TRUE(lease.ok()) << lease.status().message();
  const std::string id = (*lease)->id();
  cut.Do(Fault::kReset);
  LeaseWatch watch(*store_);
  EXPECT_FALSE(*watch.Ended(id));
  bool was_valid_at_the_end = true;
  for (int i = 0; i < 200; ++i) {
    const bool valid = (*lease)->Valid();  // before: what it says is true until the answer below
    if (*watch.Ended(id)) {
      was_valid_at_the_end = (*lease)->Valid();
      break;
    }
    (void)valid;
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_FALSE(was_valid_at_the_end);
  EXPECT_EQ(n_lost, 0);
  cut.Do(Fault::kNone);
  for (int i = 0; i < 500 && !(n_lost > 0 && (*lease)->Valid()); ++i) std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(n_lost, 1);
  EXPECT_TRUE((*lease)->Valid());
  EXPECT_NE((*lease)->id(), id);
}

// Two servers of one store.
struct Server {
  Server(Store& at, const std::string& node, milliseconds time = milliseconds(10000))
      : store(at), lease(*Lease::Make(at, node, time, [this] { ++n_lost; })), owns(at, *lease) {}
  Status Keep(const std::string& id, const std::string& bytes, bool keep, bool* mine) {
    const std::string key = owns.NewState(id);
    WEIR_RETURN_IF_ERROR(Put(store, key, bytes));
    WEIR_ASSIGN_OR_RETURN(*mine, owns.Commit(id, key, keep));
    return Status();
  }
  bool Kept(const std::string& id, const std::string& bytes, bool keep = true) {
    bool mine = false;
    const Status status = Keep(id, bytes, keep, &mine);
    EXPECT_TRUE(status.ok()) << status.message();
    return mine;
  }
  std::string Content(const Ownership::Taken& taken) { return ContentOf(*store.Fetch(taken.state, 1 << 20)); }

  std::atomic<int> n_lost{0};
  Store& store;
  std::unique_ptr<Lease> lease;
  Ownership owns;
};

TEST_P(Stores, ASessionMovesWithItsNewestState) {
  using Found = Ownership::Found;
  const std::string id = "s-moves-01";
  const auto other_store = Place().Open();
  Server a(*store_, "a"), b(*other_store, "b");
  EXPECT_EQ(b.owns.Take(id)->found, Found::kNothing);
  EXPECT_TRUE(a.Kept(id, "one"));
  EXPECT_EQ(a.owns.token(id), 1);
  EXPECT_TRUE(a.Kept(id, "two"));
  EXPECT_EQ(b.owns.Take(id)->found, Found::kElsewhere);
  EXPECT_TRUE(a.owns.Mine(id));
  EXPECT_TRUE(a.Kept(id, "three", /*keep=*/false));
  EXPECT_FALSE(a.owns.Mine(id));
  const auto taken = b.owns.Take(id);
  ASSERT_TRUE(taken.ok()) << taken.status().message();
  ASSERT_EQ(taken->found, Found::kTaken);
  EXPECT_EQ(b.Content(*taken), "three");
  EXPECT_EQ(b.owns.token(id), 2);
  EXPECT_EQ(a.owns.Take(id)->found, Found::kElsewhere);
  // It lives on there alone; nothing is left.
  EXPECT_TRUE(*b.owns.Forget(id));
  EXPECT_FALSE(*a.owns.Holds(id));
  EXPECT_EQ(a.owns.Take(id)->found, Found::kNothing);
  EXPECT_TRUE(store_->List("handover/" + id)->empty());
  EXPECT_TRUE(b.Kept(id, "four", /*keep=*/false));
  EXPECT_TRUE(*a.owns.IsLeft(id));
  ASSERT_EQ(a.owns.Take(id)->found, Found::kTaken);
  EXPECT_EQ(a.owns.token(id), 4);
  EXPECT_TRUE(*a.owns.GiveBack(id));
  EXPECT_EQ(b.owns.Take(id)->found, Found::kTaken);
  EXPECT_TRUE(*b.owns.Forget(id));
}

// The fencing token: whoever was owner once cannot write, take back or remove what the next owner has.
TEST_P(Stores, AnOwnerThatWasReplacedIsRefused) {
  using Found = Ownership::Found;
  const std::string id = "s-fenced-01";
  const auto other_store = Place().Open();
  Server b(*other_store, "b");
  Server a(*store_, "a", milliseconds(3600000));  // sure of its lease, like a server that was stopped
  ASSERT_TRUE(a.Kept(id, "of a"));
  // Its lease is revoked behind its back.
  const std::string lease_key = "leases/" + a.lease->id();
  const auto note = store_->Read(lease_key);
  ASSERT_TRUE((*store_->Write(lease_key, R"({"revoked": true})", note->version)).has_value());
  ASSERT_EQ(b.owns.Take(id)->found, Found::kTaken);
  EXPECT_EQ(b.owns.token(id), 2);
  EXPECT_TRUE(b.Kept(id, "of b"));
  EXPECT_TRUE(a.owns.Mine(id));  // it cannot know yet
  EXPECT_FALSE(a.Kept(id, "of a again"));
  EXPECT_FALSE(a.owns.Mine(id));
  // Nor can it with what it still knows of the head.
  ASSERT_TRUE(b.Kept(id, "of b again"));
  EXPECT_FALSE(a.Kept(id, "as if it were new"));
  EXPECT_TRUE(*a.owns.Forget(id));  // it knows of nothing to forget
  EXPECT_TRUE(*b.owns.Holds(id));
  EXPECT_TRUE(b.Kept(id, "last", /*keep=*/false));
  const auto taken = b.owns.Take(id);
  ASSERT_EQ(taken->found, Found::kTaken);
  EXPECT_EQ(b.Content(*taken), "last");
  EXPECT_TRUE(*b.owns.Forget(id));
  // No file of the one that was refused is left.
  EXPECT_TRUE(store_->List("handover/" + id)->empty());
}

TEST_P(Stores, ADeadOwnersSessionIsTakenWhenItsLeaseHasEnded) {
  using Found = Ownership::Found;
  const std::string id = "s-dead-01";
  const auto other_store = Place().Open();
  Server b(*other_store, "b");
  {
    const Server alive(*store_, "a", milliseconds(700));
    ASSERT_TRUE(const_cast<Server&>(alive).Kept(id, "state"));
    // As if it were killed: its note stays as it is.
    const std::string key = "leases/" + alive.lease->id();
    const auto note = store_->Read(key);
    alive.lease->End();
    ASSERT_TRUE((*store_->Write(key, note->text, "")).has_value());
  }
  const auto start = BootTime();
  auto found = Found::kNothing;
  for (int i = 0; i < 300 && found != Found::kTaken; ++i) {
    const auto taken = b.owns.Take(id);
    ASSERT_TRUE(taken.ok()) << taken.status().message();
    found = taken->found;
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(found, Found::kTaken);
  EXPECT_GE(BootTime() - start, milliseconds(700));
  EXPECT_TRUE(*b.owns.Forget(id));
}

TEST_P(Stores, ManyServersWantOneSession) {
  const std::string id = "s-wanted-01";
  Server first(*store_, "first");
  ASSERT_TRUE(first.Kept(id, "it", /*keep=*/false));
  std::atomic<int> n_taken{0};
  std::vector<std::unique_ptr<Store>> stores;
  std::vector<std::unique_ptr<Server>> servers;
  for (int i = 0; i < 6; ++i) {
    stores.push_back(Place().Open());
    servers.push_back(std::make_unique<Server>(*stores.back(), "n" + std::to_string(i)));
  }
  std::vector<std::thread> takers;
  for (const auto& server : servers) {
    takers.emplace_back([&, s = server.get()] { n_taken += s->owns.Take(id)->found == Ownership::Found::kTaken; });
  }
  for (std::thread& taker : takers) taker.join();
  EXPECT_EQ(n_taken, 1);
}

// ---- faults of the way to the store

class StoreFaults : public Stores {
 protected:
  void SetUp() override {
    Stores::SetUp();
    if (IsSkipped()) return;
    proxy_ = std::make_unique<FaultProxy>(Place().port(), http());
    through_ = Place().Open(proxy_->port());
    ASSERT_NE(through_, nullptr);
  }
  std::unique_ptr<FaultProxy> proxy_;
  std::unique_ptr<Store> through_;
};

INSTANTIATE_TEST_SUITE_P(All, StoreFaults, ::testing::Values("s3", "redis"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(StoreFaults, AreTriedAgain) {
  const std::string bytes = Long(200000);
  int n = 0;
  for (const Fault fault : {Fault::kError, Fault::kReset, Fault::kResetLate, Fault::kTruncated}) {
    SCOPED_TRACE(static_cast<int>(fault));
    const std::string key = "faults/" + std::to_string(n++);
    ASSERT_TRUE(Put(*store_, key + ".state", bytes).ok());
    const auto one = *store_->Write(key, "one " + key, "");
    proxy_->Do(fault, 2);
    EXPECT_EQ(through_->Read(key)->text, "one " + key);
    proxy_->Do(fault, 2);
    const auto file = through_->Fetch(key + ".state", 1 << 20);
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(ContentOf(*file), bytes);
    proxy_->Do(fault, 2);
    ASSERT_TRUE(Put(*through_, key + ".state", bytes + "!").ok());
    EXPECT_EQ(ContentOf(*store_->Fetch(key + ".state", 1 << 20)), bytes + "!");
    // Written, though its answer was lost: this writer's all the same.
    proxy_->Do(fault, 2);
    const auto two = through_->Write(key, "two " + key, *one);
    ASSERT_TRUE(two.ok()) << two.status().message();
    ASSERT_TRUE(two->has_value());
    EXPECT_EQ(store_->Read(key)->version, **two);
    proxy_->Do(fault, 2);
    EXPECT_TRUE(through_->Remove(key, **two).ok());
    EXPECT_EQ(store_->Read(key)->version, "");
  }
  EXPECT_GE(proxy_->n_faults(), 30);
}

// Its own write was lost on the way back, and another one came after it: that is no success.
TEST_P(StoreFaults, AnothersWriteIsNotTakenForOnesOwn) {
  const std::string key = "faults/" + name_;
  const auto one = *store_->Write(key, "one", "");
  ASSERT_TRUE((*store_->Write(key, "of another", *one)).has_value());
  proxy_->Do(Fault::kResetLate, 2);
  const auto written = through_->Write(key, "two", *one);
  ASSERT_TRUE(written.ok()) << written.status().message();
  EXPECT_FALSE(written->has_value());
}

TEST_P(StoreFaults, EndInOneLine) {
  StoreOptions options = Place().options();
  options.tries = 2;
  options.timeout = milliseconds(300);
  const auto through = Place().Open(proxy_->port(), &options);
  for (const Fault fault : {Fault::kError, Fault::kReset, Fault::kResetLate, Fault::kTruncated, Fault::kSlow}) {
    proxy_->Do(fault, -1, 3000);
    const auto start = BootTime();
    const auto read = through->Read("faults/nothing");
    EXPECT_EQ(read.status().code(), StatusCode::kIo) << static_cast<int>(fault);
    EXPECT_EQ(read.status().message().find('\n'), std::string::npos);
    EXPECT_NE(read.status().message().find("127.0.0.1"), std::string::npos) << read.status().message();
    EXPECT_LT(BootTime() - start, milliseconds(2500)) << static_cast<int>(fault);
  }
}

TEST_P(StoreFaults, ASlowStoreHoldsUpNobodyElse) {
  proxy_->Do(Fault::kSlow, 1, 1500);
  std::thread slow([&] { EXPECT_TRUE(through_->Write("faults/slow", "slow", "").ok()); });
  std::this_thread::sleep_for(milliseconds(300));
  const auto start = BootTime();
  EXPECT_TRUE(through_->Read("faults/other").ok());
  EXPECT_LT(BootTime() - start, milliseconds(1000));
  slow.join();
}

TEST(Spools, OfAProcessThatWasKilledAreDeletedByTheNext) {
  std::string dir = (std::filesystem::temp_directory_path() / "weir-spools-XXXXXX").string();
  ASSERT_NE(mkdtemp(dir.data()), nullptr);
  const auto count = [&] { return std::distance(std::filesystem::directory_iterator(dir), {}); };
  const pid_t child = fork();
  if (child == 0) {
    const auto spool = Spool::Make(dir);
    const auto file = (*spool)->NewFile();
    _exit(0);  // nothing is cleaned up
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(count(), 1);
  {
    const auto spool = Spool::Make(dir);
    ASSERT_TRUE(spool.ok());
    EXPECT_EQ(count(), 1);
    const auto other = Spool::Make(dir);
    EXPECT_EQ(count(), 2) << "the first one is in use";
  }
  EXPECT_EQ(count(), 0);
  std::filesystem::remove_all(dir);
  EXPECT_EQ(Spool::Make(dir).status().code(), StatusCode::kIo);
}

TEST(StoreAddresses, AreCheckedBeforeAnybodyIsAsked) {
  StoreOptions options;
  options.s3_key = "a";
  options.s3_secret = "b";
  options.tries = 1;
  for (const char* const wrong : {"s3://", "s3:///x", "s3://a?b/c", "redis://", "redis://:6379/0", "redis://h:99999/0",
                                  "redis://h:6379/x", "redis://user@h:1/0", "rediss://h:6379/0", "gs://bucket/x"}) {
    const auto store = OpenStore(wrong, options);
    EXPECT_EQ(store.status().code(), StatusCode::kInvalidArgument) << wrong << ": " << store.status().message();
  }
  EXPECT_EQ(OpenStore("/no/such/folder", options).status().code(), StatusCode::kNotFound);
  options.s3_secret.clear();
  EXPECT_NE(OpenStore("s3://bucket", options).status().message().find("AWS_SECRET_ACCESS_KEY"), std::string::npos);
}

}  // namespace
}  // namespace weir
