// SPDX-License-Identifier: Apache-2.0
// --mqtt and what belongs to it, for programs with rules.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "serve/mqtt_publisher.h"

namespace weir::app {

struct MqttFlags {
  std::string address, password_file, ca_file, discovery = MqttOptions().discovery;
  bool pictures = false;
  int64_t retained_bytes = MqttOptions().retained_bytes;  // both set by the command
  int64_t picture_bytes = 0;
};
CLI::Option* AddMqttFlags(CLI::App& app, MqttFlags* flags);

// With an empty address if there is no --mqtt. Errors of reading the password's file.
Result<MqttOptions> ToMqtt(const MqttFlags& flags);

}  // namespace weir::app
