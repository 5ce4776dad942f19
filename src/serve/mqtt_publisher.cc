// SPDX-License-Identifier: Apache-2.0
#include "serve/mqtt_publisher.h"

#include "serve/mqtt_address.h"

#ifdef WEIR_MQTT

#include <mosquitto.h>

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/caught.h"
#include "base/clock.h"
#include "base/heap_bytes.h"
#include "io/json.h"

namespace weir {
namespace {

constexpr int kQos = 1;
constexpr int kKeepAliveSeconds = 30;
constexpr std::chrono::seconds kFirstDelay{1}, kLongestDelay{60};  // between attempts to connect
constexpr std::chrono::seconds kAnswerWithin{5};
constexpr int kLoopMs = 250;                     // how soon the end is noticed
constexpr int kMostUnderWay = 20;                // messages that the broker has not confirmed
constexpr int64_t kMostMessageBytes = 20 << 10;  // an event, and its topic
constexpr std::chrono::seconds kFarewell{2};     // at the end

struct Message {
  std::string topic, payload;
  bool retain = false;
  // Of events and pictures the oldest are dropped where there are too many.
  enum class Kind { kState, kEvent, kPicture } kind = Kind::kState;
  size_t bytes() const { return BytesOf(topic, payload); }
  // Of memory, here or as what is retained.
  static size_t BytesOf(const std::string& topic, const std::string& payload) {
    constexpr size_t kNode = 160;  // this object in a list, or a node of a map
    return kNode + static_cast<size_t>(HeapBytes(std::ssize(topic) + 1) + HeapBytes(std::ssize(payload) + 1));
  }
};

void InitLibrary() {
  static const int kOnce = mosquitto_lib_init();
  (void)kOnce;
}

class Mosquitto : public MqttPublisher {
 public:
  Mosquitto(MqttAddress address, const MqttOptions& options, Reservation room)
      : room_(std::move(room)),
        most_retained_(static_cast<size_t>(options.retained_bytes)),
        address_(std::move(address)),
        discovery_(options.discovery),
        picture_bytes_(options.picture_bytes) {
    InitLibrary();
    std::random_device random;
    client_ = mosquitto_new(fmt::format("weir-{:08x}", random()).c_str(), true, this);
  }

  ~Mosquitto() override {
    if (thread_.joinable()) {
      Enqueue({StatusTopic(), "offline", true});
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait_for(lock, kFarewell, [&] { return !connected_ || (queue_.empty() && n_under_way_ == 0); });
        stop_ = true;
      }
      changed_.notify_all();
      mosquitto_disconnect(client_);
      thread_.join();
    }
    mosquitto_destroy(client_);
  }

  Status Start(const MqttOptions& options) {
    if (client_ == nullptr) return IoError("no memory for an MQTT client");
    // Nothing may be thrown through the library. Without memory for what is published first, the next connection does.
    mosquitto_connect_callback_set(client_, [](mosquitto* client, void* self, int code) {
      if (!Tried([&] { Of(self).Connected(code); })) mosquitto_disconnect(client);
    });
    mosquitto_publish_callback_set(client_, [](mosquitto*, void* self, int) { Of(self).Published(); });
    mosquitto_log_callback_set(client_, [](mosquitto*, void* self, int level, const char* text) {
      if (level == MOSQ_LOG_ERR) (void)Tried([&] { Of(self).Tell(text); });
    });
    mosquitto_threaded_set(client_, true);
    mosquitto_max_inflight_messages_set(client_, kMostUnderWay);
    const std::string status = StatusTopic(), gone = "offline";
    mosquitto_will_set(client_, status.c_str(), static_cast<int>(gone.size()), gone.data(), kQos, true);
    if (!address_.user.empty()) {
      mosquitto_username_pw_set(client_, address_.user.c_str(),
                                options.password.empty() ? nullptr : options.password.c_str());
    }
    if (address_.tls) {
      int code = MOSQ_ERR_SUCCESS;
      if (options.ca_file.empty()) {
        code = mosquitto_int_option(client_, MOSQ_OPT_TLS_USE_OS_CERTS, 1);
      } else {
        code = mosquitto_tls_set(client_, options.ca_file.c_str(), nullptr, nullptr, nullptr, nullptr);
      }
      if (code != MOSQ_ERR_SUCCESS) {
        return InvalidArgument("the certificates of '{}' cannot be used: {}", options.ca_file,
                               mosquitto_strerror(code));
      }
    }
    thread_ = std::thread([this] { TryUntilDone([this] { Run(); }); });
    return Status();
  }

  void Watch(const std::string& session, const std::string& rule, const std::string& when, bool holds) override {
    if (!discovery_.empty()) {
      Retain(SensorTopic("binary_sensor", session, rule), Sensor(session, rule, when));
      if (shows()) Retain(SensorTopic("image", session, rule), Image(session, rule, when));
    }
    Retain(RuleTopic(session, rule, "state"), holds ? "ON" : "OFF");
  }

  void Forget(const std::string& session, const std::string& rule) override {
    const std::string sensor = SensorTopic("binary_sensor", session, rule), image = SensorTopic("image", session, rule),
                      state = RuleTopic(session, rule, rule.empty() ? "" : "state");
    std::vector<std::string> gone;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (auto it = retained_.begin(); it != retained_.end();) {
        const std::string& topic = it->first;
        const bool match = rule.empty()
                               ? topic.starts_with(sensor) || topic.starts_with(image) || topic.starts_with(state)
                               : topic == sensor || topic == image || topic == state;
        if (!match) {
          ++it;
          continue;
        }
        n_retained_bytes_ -= Message::BytesOf(it->first, it->second);
        gone.push_back(topic);
        if (shows() && topic.starts_with(state)) {
          gone.push_back(topic.substr(0, topic.rfind('/')) + "/picture");
        }
        it = retained_.erase(it);
      }
    }
    for (std::string& topic : gone) Enqueue({std::move(topic), "", true});  // an empty one ends what is retained
  }

  void Post(const std::string& session, const std::string& rule, bool began, std::string json) override {
    Enqueue({RuleTopic(session, rule, "event"), std::move(json), false, Message::Kind::kEvent});
    Retain(RuleTopic(session, rule, "state"), began ? "ON" : "OFF");
  }

  bool shows() const override { return picture_bytes_ > 0; }

  void Show(const std::string& session, const std::string& rule, std::string png) override {
    if (!shows()) return;
    Enqueue({RuleTopic(session, rule, "picture"), std::move(png), true, Message::Kind::kPicture});
  }

  Counters counters() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    Counters out = counters_;
    out.connected = connected_;
    out.waiting = std::ssize(queue_) + n_under_way_;
    return out;
  }

  std::string trouble() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return trouble_.empty() && too_many_ ? "too many rules: some have no state and no sensor" : trouble_;
  }

 private:
  static Mosquitto& Of(void* self) { return *static_cast<Mosquitto*>(self); }

  std::string StatusTopic() const { return address_.topic + "/status"; }
  std::string RuleTopic(const std::string& session, const std::string& rule, const std::string& what) const {
    return address_.topic + "/" + session + "/" + (rule.empty() ? "" : rule + "/" + what);
  }
  // A sensor's own name is one level.
  std::string SensorName(const std::string& session, const std::string& rule) const {
    std::string out = address_.topic + "_" + session + "_" + rule;
    for (char& c : out) {
      const bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
      if (!fine) c = '_';
    }
    return out;
  }
  // Without a rule: what all sensors of the session begin with.
  std::string SensorTopic(const char* component, const std::string& session, const std::string& rule) const {
    return discovery_ + "/" + component + "/" + SensorName(session, rule) + (rule.empty() ? "" : "/config");
  }
  std::string Sensor(const std::string& session, const std::string& rule, const std::string& when) const {
    Json out = Entity(session, rule, when, "");
    out["state_topic"] = RuleTopic(session, rule, "state");
    out["json_attributes_topic"] = RuleTopic(session, rule, "event");
    return JsonText(out);
  }
  std::string Image(const std::string& session, const std::string& rule, const std::string& when) const {
    Json out = Entity(session, rule, when, "_picture");
    out["image_topic"] = RuleTopic(session, rule, "picture");
    out["content_type"] = "image/png";
    return JsonText(out);
  }
  Json Entity(const std::string& session, const std::string& rule, const std::string& when, const char* end) const {
    return {{"name", when},
            {"unique_id", SensorName(session, rule) + end},
            {"availability_topic", StatusTopic()},
            {"device",
             {{"identifiers", Json::array({SensorName(session, "")})},
              {"name", "Weir " + session},
              {"manufacturer", "Weir"}}}};
  }

  void Retain(std::string topic, std::string payload) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto known = retained_.find(topic);
      if (known != retained_.end() && known->second == payload) return;
      const size_t before = known == retained_.end() ? 0 : Message::BytesOf(topic, known->second);
      const size_t now = n_retained_bytes_ - before + Message::BytesOf(topic, payload);
      if (now > most_retained_) {
        too_many_ = true;
        return;
      }
      n_retained_bytes_ = now;
      retained_[topic] = payload;
      // It is published with everything that is retained once there is a connection.
      if (!connected_) return;
    }
    Enqueue({std::move(topic), std::move(payload), true});
  }

  void Enqueue(Message message) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      message.payload.shrink_to_fit();
      using enum Message::Kind;
      if ((message.kind == kEvent && std::ssize(message.payload) > kMostMessageBytes) ||
          (message.kind == kPicture && std::ssize(message.payload) > picture_bytes_)) {
        ++counters_.dropped;
        return;
      }
      // Of what is retained the newest is enough.
      if (message.retain) {
        EraseIf([&](const Message& m) { return m.retain && m.topic == message.topic; });
      }
      Count(message);
      queue_.push_back(std::move(message));
      while (n_events_ > kMostEvents || (n_event_bytes_ > kMostBytes && n_events_ > 1)) DropOldest(kEvent);
      while (n_pictures_ > kMostPictures) DropOldest(kPicture);
      // Ends of sensors that nobody takes.
      while (n_state_bytes_ > most_retained_) DropOldest(kState);
    }
    Pump();
  }
  // REQUIRES for all these: mutex_.
  void Count(const Message& message) {
    if (message.kind == Message::Kind::kState) n_state_bytes_ += message.bytes();
    if (message.kind == Message::Kind::kPicture) ++n_pictures_;
    if (message.kind != Message::Kind::kEvent) return;
    n_event_bytes_ += message.bytes();
    ++n_events_;
  }
  void Removed(const Message& message) {
    if (message.kind == Message::Kind::kState) n_state_bytes_ -= message.bytes();
    if (message.kind == Message::Kind::kPicture) --n_pictures_;
    if (message.kind != Message::Kind::kEvent) return;
    n_event_bytes_ -= message.bytes();
    --n_events_;
  }
  void PushFront(Message message) {
    Count(message);
    queue_.push_front(std::move(message));
  }
  // One of that kind waits.
  void DropOldest(Message::Kind kind) {
    const auto oldest = std::ranges::find_if(queue_, [&](const Message& m) { return m.kind == kind; });
    Removed(*oldest);
    queue_.erase(oldest);
    ++counters_.dropped;
  }
  template <typename Which>
  void EraseIf(const Which& which) {
    std::erase_if(queue_, [&](const Message& m) {
      if (!which(m)) return false;
      Removed(m);
      return true;
    });
  }

  // Hands messages to the library while the broker confirms them. One thread at a time does it, so that their order
  // stays; the lock is not held while the library has its own. A picture goes alone, so that one at most is in the
  // library's memory.
  void Pump() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (pumping_) return;
    pumping_ = true;
    while (connected_ && !queue_.empty() && n_under_way_ < kMostUnderWay) {
      const bool picture = queue_.front().kind == Message::Kind::kPicture;
      if (picture && n_under_way_ > 0) break;
      Message message = std::move(queue_.front());
      queue_.pop_front();
      Removed(message);
      const int places = picture ? kMostUnderWay : 1;
      picture_under_way_ = picture;
      n_under_way_ += places;
      lock.unlock();
      const int code =
          mosquitto_publish(client_, nullptr, message.topic.c_str(), static_cast<int>(message.payload.size()),
                            message.payload.data(), kQos, message.retain);
      lock.lock();
      if (code == MOSQ_ERR_SUCCESS) continue;
      n_under_way_ -= places;
      picture_under_way_ = false;
      if (message.kind != Message::Kind::kState) ++counters_.dropped;
      (void)Tried([&] { trouble_ = mosquitto_strerror(code); });
    }
    pumping_ = false;
    changed_.notify_all();
  }

  // The library's own loop ends for good at the first failure of TLS, which may be that of a broker that restarts; and
  // its connections with TLS do not notice that nobody listens.
  void Run() {
    std::chrono::seconds delay = kFirstDelay;
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stop_) {
      lock.unlock();
      error_.clear();
      int code = mosquitto_connect_async(client_, address_.host.c_str(), address_.port, kKeepAliveSeconds);
      const auto give_up = Clock::now() + kAnswerWithin;
      while (code == MOSQ_ERR_SUCCESS && (IsConnected() || Clock::now() < give_up)) {
        code = mosquitto_loop(client_, kLoopMs, 1);
      }
      const std::string why = !error_.empty()            ? error_
                              : code == MOSQ_ERR_SUCCESS ? "the broker does not answer"
                                                         : mosquitto_strerror(code);
      lock.lock();
      if (connected_) delay = kFirstDelay;
      if (connected_ || trouble_.empty() || !refused_) trouble_ = why;
      connected_ = refused_ = false;
      changed_.notify_all();
      changed_.wait_for(lock, delay, [&] { return stop_; });
      delay = std::min(2 * delay, kLongestDelay);
    }
  }

  void Tell(const char* text) { error_ = text; }

  bool IsConnected() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return connected_;
  }

  void Connected(int code) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      connected_ = code == 0;
      refused_ = !connected_;
      trouble_ = connected_ ? "" : mosquitto_connack_string(code);
      if (!connected_) return;
      EraseIf([&](const Message& m) { return m.retain && retained_.contains(m.topic); });
      for (const auto& [topic, payload] : retained_) PushFront({topic, payload, true});
      PushFront({StatusTopic(), "online", true});
    }
    Pump();
  }

  void Published() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      n_under_way_ -= std::exchange(picture_under_way_, false) ? kMostUnderWay : 1;
      ++counters_.published;
    }
    Pump();
  }

  const Reservation room_;
  const size_t most_retained_;
  const MqttAddress address_;
  const std::string discovery_;
  const int64_t picture_bytes_;
  mosquitto* client_ = nullptr;
  std::string error_;  // the library's last one; of the thread alone
  std::thread thread_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> retained_;  // by topic
  std::list<Message> queue_;  // a deque moves messages, and short ones would keep the memory of long ones
  size_t n_events_ = 0, n_event_bytes_ = 0, n_state_bytes_ = 0, n_pictures_ = 0;  // in the queue
  size_t n_retained_bytes_ = 0;
  bool too_many_ = false;           // rules: some have no state
  int n_under_way_ = 0;             // messages, or kMostUnderWay for a picture
  bool picture_under_way_ = false;  // and nothing else
  bool connected_ = false, pumping_ = false, stop_ = false;
  bool refused_ = false;  // by the broker, which is the reason to tell
  Counters counters_;
  std::string trouble_;
};

// Those that wait, one that is under way, with its packet, and one that is being made.
int64_t PictureBytes(const MqttOptions& options) {
  return options.picture_bytes * (static_cast<int64_t>(MqttPublisher::kMostPictures) + 3);
}

}  // namespace

int64_t MqttPublisher::MemoryBytes(const MqttOptions& options) {
  if (options.address.empty()) return 0;
  // What is retained is there, and once more in the queue; a message that is under way, in the library and as a packet.
  constexpr int64_t kLibrary = 256 << 10;
  return static_cast<int64_t>(kMostBytes) + 2 * options.retained_bytes + 2 * kMostUnderWay * kMostMessageBytes +
         kLibrary + PictureBytes(options);
}

Result<std::unique_ptr<MqttPublisher>> MqttPublisher::Make(const MqttOptions& options, Ledger& ledger) {
  WEIR_ASSIGN_OR_RETURN(MqttAddress address, MqttAddress::Parse(options.address));
  if (!options.password.empty() && address.user.empty()) {
    return InvalidArgument("a password for MQTT needs a user: mqtt://USER@{}", address.host);
  }
  if (!options.ca_file.empty() && !address.tls) {
    return InvalidArgument("certificates for MQTT need TLS: mqtts://{}", address.host);
  }
  if (options.discovery.find_first_of("+#$ ") != std::string::npos || options.discovery.size() > 200) {
    return InvalidArgument("'{}' is no topic of Home Assistant's discovery", options.discovery.substr(0, 200));
  }
  WEIR_ASSIGN_OR_RETURN(Reservation room, ledger.Reserve(MemTag::kOther, MemoryBytes(options)));
  auto out = std::make_unique<Mosquitto>(std::move(address), options, std::move(room));
  WEIR_RETURN_IF_ERROR(out->Start(options));
  return std::unique_ptr<MqttPublisher>(std::move(out));
}

}  // namespace weir

#else

namespace weir {

int64_t MqttPublisher::MemoryBytes(const MqttOptions&) { return 0; }

Result<std::unique_ptr<MqttPublisher>> MqttPublisher::Make(const MqttOptions& options, Ledger&) {
  WEIR_RETURN_IF_ERROR(MqttAddress::Parse(options.address).status());
  return Unsupported("this build has no MQTT: libmosquitto was not there when it was made");
}

}  // namespace weir

#endif
