// SPDX-License-Identifier: Apache-2.0
// Rules and their events at a real MQTT broker (Debian's mosquitto): what Home Assistant would see; a broker that comes
// late, goes away, wants a password, speaks TLS.
#include <gtest/gtest.h>

#ifdef WEIR_MQTT

#include <arpa/inet.h>
#include <fcntl.h>
#include <mosquitto.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "cli/process.h"
#include "rules/rule_room.h"
#include "serve/mqtt_address.h"
#include "serve/mqtt_publisher.h"
#include "serve/picture_client.h"
#include "serve/server_process.h"
#include "serve/session_client.h"
#include "support/golden.h"
#include "support/heap.h"

namespace weir::testing {
namespace {

constexpr const char* kBroker = "/usr/sbin/mosquitto";

bool Within(std::chrono::seconds time, const std::function<bool()>& true_now) {
  const auto end = Clock::now() + time;
  while (!true_now()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

int FreePort() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(socket, reinterpret_cast<const sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(socket);
  return ntohs(address.sin_port);
}

// A broker on a port that stays its own while it is down.
class Broker {
 public:
  explicit Broker(std::string config = "allow_anonymous true\n") : config_(std::move(config)) {}
  ~Broker() { Down(); }
  int port() const { return port_; }
  void Up() {
    const std::string conf = folder_.Write("conf", "listener " + std::to_string(port_) + " 127.0.0.1\n" + config_);
    std::string program = kBroker, flag = "-c", file = conf;
    char* const arguments[] = {program.data(), flag.data(), file.data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const std::string log = folder_.File("log");
    posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    ASSERT_EQ(posix_spawn(&pid_, kBroker, &actions, nullptr, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  void Down() {
    if (pid_ <= 0) return;
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  std::string Address(const std::string& user = "", const std::string& topic = "") const {
    return "mqtt://" + (user.empty() ? "" : user + "@") + "127.0.0.1:" + std::to_string(port_) +
           (topic.empty() ? "" : "/" + topic);
  }

 private:
  const TempDir folder_;
  const std::string config_;
  const int port_ = FreePort();
  pid_t pid_ = -1;
};

// Sees everything that is published.
class Subscriber {
 public:
  struct Seen {
    std::string topic, payload;
    bool retained = false;  // published before this subscriber came
  };
  // With a name the broker keeps what comes while the subscriber is away.
  explicit Subscriber(const Broker& broker, const std::string& user = "", const std::string& password = "",
                      const char* name = nullptr) {
    mosquitto_lib_init();
    client_ = mosquitto_new(name, name == nullptr, this);
    if (!user.empty()) mosquitto_username_pw_set(client_, user.c_str(), password.c_str());
    mosquitto_connect_callback_set(client_,
                                   [](mosquitto* client, void*, int) { mosquitto_subscribe(client, nullptr, "#", 1); });
    mosquitto_subscribe_callback_set(
        client_, [](mosquitto*, void* self, int, int, const int*) { static_cast<Subscriber*>(self)->ready_ = true; });
    mosquitto_message_callback_set(client_, [](mosquitto*, void* self, const mosquitto_message* message) {
      auto& me = *static_cast<Subscriber*>(self);
      const std::lock_guard<std::mutex> lock(me.mutex_);
      me.seen_.push_back({message->topic, std::string(static_cast<const char*>(message->payload), message->payloadlen),
                          message->retain});
    });
    mosquitto_reconnect_delay_set(client_, 1, 1, false);
    EXPECT_TRUE(Within(std::chrono::seconds(20),
                       [&] { return mosquitto_connect(client_, "127.0.0.1", broker.port(), 30) == MOSQ_ERR_SUCCESS; }));
    mosquitto_loop_start(client_);
    EXPECT_TRUE(Within(std::chrono::seconds(20), [&] { return ready_.load(); }));
  }
  ~Subscriber() {
    mosquitto_disconnect(client_);
    mosquitto_loop_stop(client_, false);
    mosquitto_destroy(client_);
  }
  std::vector<Seen> Of(const std::string& topic) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Seen> out;
    for (const Seen& one : seen_) {
      if (one.topic == topic) out.push_back(one);
    }
    return out;
  }
  // The last of this topic, once it is this.
  bool Sees(const std::string& topic, const std::string& payload) const {
    return Within(std::chrono::seconds(20), [&] {
      const std::vector<Seen> all = Of(topic);
      return !all.empty() && all.back().payload == payload;
    });
  }

 private:
  mosquitto* client_ = nullptr;
  std::atomic<bool> ready_{false};
  mutable std::mutex mutex_;
  std::vector<Seen> seen_;
};

class MqttTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (access(kBroker, X_OK) != 0) GTEST_SKIP() << kBroker << " is missing (the package mosquitto)";
  }

  Ledger ledger_;
};

TEST(MqttAddress, ParsesWhatUsersWrite) {
  const auto full = MqttAddress::Parse("mqtts://me@broker.example:8884/home/weir");
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(full->user, "me");
  EXPECT_EQ(full->host, "broker.example");
  EXPECT_EQ(full->port, 8884);
  EXPECT_EQ(full->topic, "home/weir");
  EXPECT_TRUE(full->tls);
  const auto small = MqttAddress::Parse("mqtt://localhost");
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(small->port, 1883);
  EXPECT_EQ(small->topic, "weir");
  EXPECT_EQ(MqttAddress::Parse("mqtts://h")->port, 8883);
  const auto six = MqttAddress::Parse("mqtt://[::1]:1884");
  ASSERT_TRUE(six.ok());
  EXPECT_EQ(six->host, "::1");
  EXPECT_EQ(six->port, 1884);
  EXPECT_EQ(MqttAddress::Parse("mqtt://[::1]")->host, "::1");
  for (const char* bad : {"",
                          "broker",
                          "http://broker",
                          "mqtt://",
                          "mqtt://@h",
                          "mqtt://h:0",
                          "mqtt://h:65536",
                          "mqtt://h:12x",
                          "mqtt://h/",
                          "mqtt://h/a//b",
                          "mqtt://h/a/",
                          "mqtt://h/+",
                          "mqtt://h/a#",
                          "mqtt://h/$SYS",
                          "mqtt://me:secret@h",
                          "mqtt://h h",
                          "mqtt://[::1",
                          "mqtt://[]",
                          "mqtt://[::1]x",
                          "mqtt://[::1]x:1883",
                          "mqtt://:1883"}) {
    const auto address = MqttAddress::Parse(bad);
    EXPECT_EQ(address.status().code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_NE(address.status().message().find("mqtt://[USER@]HOST"), std::string::npos) << bad;
  }
}

TEST_F(MqttTest, HomeAssistantSeesARule) {
  Broker broker;
  broker.Up();
  const Subscriber subscriber(broker);
  {
    auto publisher = MqttPublisher::Make({.address = broker.Address("", "home/weir")}, ledger_);
    ASSERT_TRUE(publisher.ok()) << publisher.status().message();
    (*publisher)->Watch("s-1", "door", "a parcel lies at the door", false);
    EXPECT_TRUE(subscriber.Sees("home/weir/status", "online"));
    EXPECT_TRUE(subscriber.Sees("home/weir/s-1/door/state", "OFF"));
    const std::string sensor = "homeassistant/binary_sensor/home_weir_s-1_door/config";
    ASSERT_TRUE(Within(std::chrono::seconds(20), [&] { return !subscriber.Of(sensor).empty(); }));
    const Json config = Json::parse(subscriber.Of(sensor).back().payload);
    EXPECT_EQ(config["name"], "a parcel lies at the door");
    EXPECT_EQ(config["unique_id"], "home_weir_s-1_door");
    EXPECT_EQ(config["state_topic"], "home/weir/s-1/door/state");
    EXPECT_EQ(config["availability_topic"], "home/weir/status");
    EXPECT_EQ(config["json_attributes_topic"], "home/weir/s-1/door/event");
    (*publisher)->Post("s-1", "door", true, R"({"id":1})");
    EXPECT_TRUE(subscriber.Sees("home/weir/s-1/door/event", R"({"id":1})"));
    EXPECT_TRUE(subscriber.Sees("home/weir/s-1/door/state", "ON"));
    {
      // What is retained is there for those who come later; events are not.
      const Subscriber late(broker);
      EXPECT_TRUE(late.Sees("home/weir/s-1/door/state", "ON"));
      EXPECT_TRUE(late.Of("home/weir/s-1/door/state").back().retained);
      EXPECT_TRUE(late.Of("home/weir/s-1/door/event").empty());
    }
    (*publisher)->Watch("s-1", "gate", "the gate is open", false);
    (*publisher)->Watch("s-2", "gate", "the gate is open", false);
    (*publisher)->Forget("s-1", "");
    EXPECT_TRUE(subscriber.Sees(sensor, ""));
    EXPECT_TRUE(subscriber.Sees("home/weir/s-1/gate/state", ""));
    EXPECT_TRUE(subscriber.Sees("home/weir/s-2/gate/state", "OFF")) << "another session's";
    EXPECT_GE((*publisher)->counters().published, 6);
    EXPECT_EQ((*publisher)->counters().dropped, 0);
  }
  EXPECT_TRUE(subscriber.Sees("home/weir/status", "offline"));
}

TEST_F(MqttTest, EventsWaitForABrokerThatIsAway) {
  const TempDir folder;
  Broker broker("allow_anonymous true\nuser root\npersistence true\npersistence_location " + folder.path() + "/\n");
  broker.Up();
  const Subscriber keeper(broker, "", "", "keeper");
  broker.Down();
  auto publisher = MqttPublisher::Make({.address = broker.Address(), .discovery = ""}, ledger_);
  ASSERT_TRUE(publisher.ok()) << publisher.status().message();
  (*publisher)->Watch("s-1", "door", "a parcel", false);
  for (int i = 0; i < 5; ++i) (*publisher)->Post("s-1", "door", i % 2 == 0, std::to_string(i));
  EXPECT_TRUE(Within(std::chrono::seconds(20), [&] { return !(*publisher)->trouble().empty(); }));
  EXPECT_FALSE((*publisher)->counters().connected);
  broker.Up();
  // In order, and none is missing; the broker, which was cut off from the keeper, too, may repeat them.
  const auto events = [&](int n) {
    return Within(std::chrono::seconds(40), [&] {
      std::vector<std::string> seen;
      for (const auto& one : keeper.Of("weir/s-1/door/event")) {
        if (std::ranges::find(seen, one.payload) == seen.end()) seen.push_back(one.payload);
      }
      std::vector<std::string> expected;
      for (int i = 0; i < n; ++i) expected.push_back(std::to_string(i));
      return seen == expected;
    });
  };
  EXPECT_TRUE(events(5));
  EXPECT_TRUE(keeper.Sees("weir/s-1/door/state", "ON"));
  EXPECT_EQ((*publisher)->trouble(), "");
  broker.Down();
  ASSERT_TRUE(Within(std::chrono::seconds(20), [&] { return !(*publisher)->counters().connected; }));
  for (int i = 5; i < 10; ++i) (*publisher)->Post("s-1", "door", i % 2 == 0, std::to_string(i));
  broker.Up();
  EXPECT_TRUE(events(10));
  EXPECT_TRUE(keeper.Sees("weir/s-1/door/state", "OFF"));
  EXPECT_TRUE(keeper.Sees("weir/status", "online"));
  EXPECT_EQ((*publisher)->counters().dropped, 0);
  EXPECT_TRUE(Within(std::chrono::seconds(20), [&] { return (*publisher)->counters().waiting == 0; }));
}

TEST_F(MqttTest, WhatWaitsIsBounded) {
  const Broker broker;  // never there
  auto publisher = MqttPublisher::Make({.address = broker.Address()}, ledger_);
  ASSERT_TRUE(publisher.ok());
  for (size_t i = 0; i < MqttPublisher::kMostEvents + 10; ++i) (*publisher)->Post("s-1", "door", i % 2 == 0, "{}");
  EXPECT_EQ((*publisher)->counters().dropped, 10);
  (*publisher)->Post("s-1", "door", true, std::string(MqttPublisher::kMostBytes, 'x'));
  EXPECT_EQ((*publisher)->counters().dropped, 11) << "one that is too large is the one to go";
  const std::string large(kMaxEventBytes, 'x');
  for (int i = 0; i < 200; ++i) (*publisher)->Post("s-1", "door", true, large);
  EXPECT_GT((*publisher)->counters().dropped, MqttPublisher::kMostEvents);
  EXPECT_GT((*publisher)->counters().waiting, 50);
  const auto start = Clock::now();
  publisher->reset();
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10)) << "the end waits for no broker";
}

// Sensors, ends of sensors and events, more than there is room for.
TEST_F(MqttTest, MemoryStaysWithinWhatIsReserved) {
  const Broker broker;  // never there
  const MqttOptions options = {.address = broker.Address(), .retained_bytes = 1 << 20};
  const int64_t before = testing::HeapInUse();
  auto publisher = MqttPublisher::Make(options, ledger_);
  ASSERT_TRUE(publisher.ok());
  EXPECT_EQ(ledger_.used_bytes(), MqttPublisher::MemoryBytes(options));
  const std::string when(kMaxRuleBytes, 'w'), event(kMaxEventBytes, 'x');
  for (int i = 0; i < 3000; ++i) {
    const std::string rule = "a-rule-of-some-name-" + std::to_string(i);
    (*publisher)->Watch("s-1", rule, when, false);
    (*publisher)->Post("s-1", rule, true, i % 2 == 0 ? event : "{}");
    if (i % 3 == 0) (*publisher)->Forget("s-1", rule);
    if (i % 500 == 0) EXPECT_LE(testing::HeapInUse() - before, MqttPublisher::MemoryBytes(options)) << i;
  }
  EXPECT_LE(testing::HeapInUse() - before, MqttPublisher::MemoryBytes(options));
  EXPECT_TRUE(Within(std::chrono::seconds(20), [&] { return !(*publisher)->trouble().empty(); }));
  publisher->reset();
  EXPECT_EQ(ledger_.used_bytes(), 0);
}

// The newest picture of a rule is enough; a picture that is too large is none.
TEST_F(MqttTest, PicturesAreRetainedAndBounded) {
  Broker broker;
  const MqttOptions options = {.address = broker.Address(), .picture_bytes = 200 << 10};
  const int64_t before = testing::HeapInUse();
  auto publisher = MqttPublisher::Make(options, ledger_);
  ASSERT_TRUE(publisher.ok());
  EXPECT_EQ(ledger_.used_bytes(), MqttPublisher::MemoryBytes(options));
  const auto picture = [](size_t size, int i) { return std::string(size, static_cast<char>('a' + i)); };
  for (int i = 0; i < 26; ++i) (*publisher)->Show("s-1", "door", picture(200 << 10, i));
  EXPECT_EQ((*publisher)->counters().dropped, 0) << "a newer one of the same rule takes the place";
  (*publisher)->Show("s-1", "door", picture((200 << 10) + 1, 0));
  EXPECT_EQ((*publisher)->counters().dropped, 1);
  for (size_t i = 0; i < MqttPublisher::kMostPictures + 2; ++i) {
    const std::string rule = "rule-" + std::to_string(i);
    (*publisher)->Watch("s-1", rule, "it is there", false);
    (*publisher)->Show("s-1", rule, picture(200 << 10, static_cast<int>(i)));
  }
  EXPECT_EQ((*publisher)->counters().dropped, 4) << "those of the door and of the first two";
  EXPECT_LE(testing::HeapInUse() - before, MqttPublisher::MemoryBytes(options));

  broker.Up();
  const Subscriber first(broker);
  for (size_t i = 2; i < MqttPublisher::kMostPictures + 2; ++i) {
    const std::string topic = "weir/s-1/rule-" + std::to_string(i) + "/picture";
    EXPECT_TRUE(first.Sees(topic, picture(200 << 10, static_cast<int>(i)))) << topic;
  }
  EXPECT_TRUE(first.Of("weir/s-1/rule-0/picture").empty());
  ASSERT_TRUE(Within(std::chrono::seconds(20), [&] { return (*publisher)->counters().waiting == 0; }));
  const Subscriber later(broker);
  ASSERT_TRUE(Within(std::chrono::seconds(20), [&] { return !later.Of("weir/s-1/rule-5/picture").empty(); }));
  EXPECT_TRUE(later.Of("weir/s-1/rule-5/picture")[0].retained);
  const std::string sensor = "homeassistant/image/weir_s-1_rule-5/config";
  ASSERT_TRUE(Within(std::chrono::seconds(20), [&] { return !later.Of(sensor).empty(); }));
  const Json image = Json::parse(later.Of(sensor)[0].payload);
  EXPECT_EQ(image["image_topic"], "weir/s-1/rule-5/picture");
  EXPECT_EQ(image["content_type"], "image/png");
  EXPECT_NE(image["unique_id"],
            Json::parse(first.Of("homeassistant/binary_sensor/weir_s-1_rule-5/config")[0].payload)["unique_id"]);

  // Between other messages; and what goes takes its picture along.
  for (int i = 0; i < 50; ++i) {
    (*publisher)->Post("s-1", "rule-3", i % 2 == 0, "{}");
    (*publisher)->Show("s-1", "rule-3", picture(1000, i % 26));
  }
  EXPECT_TRUE(later.Sees("weir/s-1/rule-3/picture", picture(1000, 49 % 26)));
  (*publisher)->Forget("s-1", "rule-3");
  EXPECT_TRUE(later.Sees("weir/s-1/rule-3/picture", ""));
  EXPECT_TRUE(later.Sees("homeassistant/image/weir_s-1_rule-3/config", ""));
  (*publisher)->Forget("s-1", "");
  EXPECT_TRUE(later.Sees("weir/s-1/rule-5/picture", ""));
  EXPECT_TRUE(later.Sees(sensor, ""));
  EXPECT_EQ(std::ssize(later.Of("weir/s-1/rule-3/event")), 50);
}

TEST_F(MqttTest, APasswordIsAskedFor) {
  const TempDir folder;
  const std::string passwords = folder.File("passwords");
  if (std::system(("mosquitto_passwd -c -b " + passwords + " me secret 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << "mosquitto_passwd is missing";
  }
  Broker broker("allow_anonymous false\npassword_file " + passwords + "\nuser root\n");
  broker.Up();
  const Subscriber subscriber(broker, "me", "secret");
  auto wrong = MqttPublisher::Make({.address = broker.Address("me"), .password = "guess"}, ledger_);
  ASSERT_TRUE(wrong.ok());
  EXPECT_TRUE(Within(std::chrono::seconds(20), [&] {
    return (*wrong)->trouble().find("not authorised") != std::string::npos;
  })) << (*wrong)->trouble();
  auto right = MqttPublisher::Make({.address = broker.Address("me"), .password = "secret"}, ledger_);
  ASSERT_TRUE(right.ok());
  EXPECT_TRUE(subscriber.Sees("weir/status", "online"));
}

TEST_F(MqttTest, TlsTrustsTheGivenCertificateOnly) {
  const TempDir folder;
  const std::string key = folder.File("key"), certificate = folder.File("certificate");
  if (std::system(("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext "
                   "subjectAltName=IP:127.0.0.1 -keyout " +
                   key + " -out " + certificate + " 2>/dev/null")
                      .c_str()) != 0) {
    GTEST_SKIP() << "openssl is missing";
  }
  Broker broker("allow_anonymous true\nuser root\ncertfile " + certificate + "\nkeyfile " + key + "\n");
  broker.Up();
  const std::string address = "mqtts://127.0.0.1:" + std::to_string(broker.port());
  auto trusts = MqttPublisher::Make({.address = address, .ca_file = certificate}, ledger_);
  ASSERT_TRUE(trusts.ok()) << trusts.status().message();
  EXPECT_TRUE(Within(std::chrono::seconds(20), [&] { return (*trusts)->counters().connected; }))
      << (*trusts)->trouble();
  auto does_not = MqttPublisher::Make({.address = address}, ledger_);
  ASSERT_TRUE(does_not.ok()) << does_not.status().message();
  EXPECT_TRUE(Within(std::chrono::seconds(20), [&] {
    return (*does_not)->trouble().find("certificate verify failed") != std::string::npos;
  })) << (*does_not)->trouble();
  EXPECT_FALSE((*does_not)->counters().connected);
}

TEST(MqttPublisher, RefusesWhatCannotBe) {
  for (const MqttOptions& options :
       {MqttOptions{.address = "localhost"}, MqttOptions{.address = "mqtt://h", .password = "p"},
        MqttOptions{.address = "mqtt://h", .ca_file = "x"}, MqttOptions{.address = "mqtts://h", .ca_file = "/nowhere"},
        MqttOptions{.address = "mqtt://h", .discovery = "a/#"}}) {
    Ledger ledger;
    const auto publisher = MqttPublisher::Make(options, ledger);
    EXPECT_EQ(ledger.used_bytes(), 0);
    EXPECT_EQ(publisher.status().code(), StatusCode::kInvalidArgument) << options.address;
  }
}

// The tiny model says nothing sensible: every rise of its odds is an event here.
Json Eager(const std::string& when) {
  return {{"id", "man"},  {"when", when}, {"on", 0.01}, {"off", 0},
          {"least", -30}, {"begin", 1},   {"end", 1},   {"calibrate", 4}};
}

// The real server: a rule comes, its events come, it goes with its session.
TEST_F(MqttTest, TheServerPublishesEventsOfRules) {
  Broker broker;
  broker.Up();
  const Subscriber subscriber(broker);
  const ServerProcess server({"--pot", "96", "--mqtt", broker.Address()});
  Client client(server);
  const std::string id = client.Create({{"rule_tokens", 96}});
  const HttpAnswer made = server.Post(kSessions + "/" + id + "/rules", Eager("who came? => the man"));
  ASSERT_EQ(made.status, 201) << made.body;
  EXPECT_TRUE(subscriber.Sees("weir/" + id + "/man/state", "OFF"));
  for (int i = 0; i < 12; ++i) client.Append(id, i % 3 == 0 ? "the man came " : "the sea and the sea ");
  const int64_t newest = client.State(id)["rules"]["last_event_id"];
  ASSERT_GT(newest, 0);
  const std::string topic = "weir/" + id + "/man/event";
  ASSERT_TRUE(Within(std::chrono::seconds(20), [&] { return std::ssize(subscriber.Of(topic)) == newest; }));
  for (int64_t i = 0; i < newest; ++i) {
    const Json event = Json::parse(subscriber.Of(topic)[static_cast<size_t>(i)].payload);
    EXPECT_EQ(event["id"], i + 1);
    EXPECT_EQ(event["session"], id);
  }
  const std::string metrics = server.Get("/metrics").body;
  EXPECT_NE(metrics.find("\nweir_mqtt_connected 1\n"), std::string::npos);
  EXPECT_EQ(server.Delete(kSessions + "/" + id).status, 200);
  EXPECT_TRUE(subscriber.Sees("weir/" + id + "/man/state", ""));
}

TEST_F(MqttTest, TheServerPublishesPicturesOfEvents) {
  if (!HasFfmpeg()) GTEST_SKIP() << "ffmpeg and ffprobe are not installed";
  Broker broker;
  broker.Up();
  const Subscriber subscriber(broker);
  const ServerProcess server(SeeingFlags({"--pot", "128", "--mqtt", broker.Address(), "--mqtt-pictures"}),
                             VisionFile("llava.gguf"));
  Client client(server);
  const std::string id = client.Create({{"rule_tokens", 96}});
  const HttpAnswer made = server.Post(kSessions + "/" + id + "/rules", Eager("what is it => the man"));
  ASSERT_EQ(made.status, 201) << made.body;
  for (int i = 0; i < 24; ++i) {
    const HttpAnswer read = client.Do(id, "append", {{"image", DataUrl(PpmBytes(20, 12, 10 * i))}});
    ASSERT_EQ(read.status, 200) << read.body;
  }
  const int64_t newest = client.State(id)["rules"]["last_event_id"];
  ASSERT_GT(newest, 0);
  const HttpAnswer kept = server.Get(kSessions + "/" + id + "/events/" + std::to_string(newest) + "/picture");
  ASSERT_EQ(kept.status, 200) << kept.body;
  EXPECT_TRUE(subscriber.Sees("weir/" + id + "/man/picture", kept.body));
}

}  // namespace
}  // namespace weir::testing

#endif
