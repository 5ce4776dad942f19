// SPDX-License-Identifier: Apache-2.0
// The address of an MQTT broker: mqtt://[USER@]HOST[:PORT][/TOPIC], or mqtts:// for TLS.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace weir {

struct MqttAddress {
  std::string user;  // empty: none
  std::string host;
  int port = 1883;
  bool tls = false;
  std::string topic = "weir";  // what all topics begin with

  // kInvalidArgument for anything else; a port of TLS is 8883 unless it is given.
  static Result<MqttAddress> Parse(std::string_view text);
};

}  // namespace weir
