// SPDX-License-Identifier: Apache-2.0
// Publishes rules and their events to an MQTT broker, and tells Home Assistant of them. Below the address's topic T:
//
//   T/status                 "online", or "offline" once the program has ended or is lost; retained
//   T/SESSION/RULE/state     "ON" while the rule holds, else "OFF"; retained
//   T/SESSION/RULE/event     every event, as JSON
//   T/SESSION/RULE/picture   what the stream showed at its newest event, as PNG, where there are pictures; retained
//   homeassistant/binary_sensor/T_SESSION_RULE/config     the rule as a binary sensor; retained
//   homeassistant/image/T_SESSION_RULE/config             its picture; retained
//
// Everything has quality of service 1. While the broker is away, up to kMostEvents events wait; then the oldest go and
// are counted; of pictures up to kMostPictures wait. States and sensors are published anew after every connection. All
// of it is bounded in memory, and reserved. All methods: any thread; none waits for the broker but Make(), which looks
// its name up, and the destructor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/ledger.h"
#include "base/status.h"

namespace weir {

struct MqttOptions {
  std::string address;                      // as MqttAddress::Parse() reads it; empty: no broker
  std::string password;                     // of the address's user
  std::string ca_file;                      // certificates that sign a broker's; empty: those of the system
  std::string discovery = "homeassistant";  // the topic that Home Assistant looks for sensors below; empty: none
  // Bytes of the rules' states and sensors together; rules beyond them have none. A rule takes one to two KiB.
  int64_t retained_bytes = 4 << 20;
  int64_t picture_bytes = 0;  // of the largest picture, and of making it; 0: none are published
};

class MqttPublisher {
 public:
  static constexpr size_t kMostEvents = 1000;
  static constexpr size_t kMostBytes = 1 << 20;  // of them together
  static constexpr size_t kMostPictures = 4;     // that wait

  // What Make() reserves in the ledger; 0 without an address.
  static int64_t MemoryBytes(const MqttOptions& options);
  // kInvalidArgument for an address that is none, a password without a user, a topic that is none or a file without
  // certificates; kUnsupported in a build without the library; kOverBudget. A broker that does not answer is no error:
  // the program goes on trying, every second at first and every minute at last. `ledger` must outlive it.
  static Result<std::unique_ptr<MqttPublisher>> Make(const MqttOptions& options, Ledger& ledger);
  // Waits for up to two seconds for what is not published yet, and says "offline".
  virtual ~MqttPublisher() = default;

  // A rule is watched; `when` is its text, `holds` its state. Again for a rule that is known: its state.
  virtual void Watch(const std::string& session, const std::string& rule, const std::string& when, bool holds) = 0;
  // It is watched no longer: its sensor goes. An empty rule: all those of the session.
  virtual void Forget(const std::string& session, const std::string& rule) = 0;
  virtual void Post(const std::string& session, const std::string& rule, bool began, std::string json) = 0;
  // What the stream shows at the rule's event: a PNG file. Nothing happens without picture_bytes or beyond them.
  virtual void Show(const std::string& session, const std::string& rule, std::string png) = 0;
  virtual bool shows() const = 0;  // there are picture_bytes

  struct Counters {
    bool connected = false;
    int64_t waiting = 0, published = 0;  // messages
    int64_t dropped = 0;                 // events, pictures, and ends of sensors, that did not fit
  };
  virtual Counters counters() const = 0;
  // Why there is no connection; empty: there is one, or none was tried yet.
  virtual std::string trouble() const = 0;
};

}  // namespace weir
