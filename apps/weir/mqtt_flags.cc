// SPDX-License-Identifier: Apache-2.0
#include "mqtt_flags.h"

#include "common.h"

namespace weir::app {

CLI::Option* AddMqttFlags(CLI::App& app, MqttFlags* flags) {
  CLI::Option* const mqtt =
      app.add_option(
             "--mqtt", flags->address,
             "MQTT broker that events of rules are published to: mqtt://[USER@]HOST[:PORT][/TOPIC], or mqtts:// "
             "for TLS; Home Assistant finds every rule there as a sensor")
          ->check(NotEmpty())
          ->type_name("ADDRESS");
  app.add_option("--mqtt-password-file", flags->password_file, "file with the password of USER")
      ->check(NotEmpty())
      ->needs(mqtt)
      ->type_name("FILE");
  app.add_option("--mqtt-ca", flags->ca_file, "certificates that sign the broker's, instead of the system's")
      ->check(NotEmpty())
      ->needs(mqtt)
      ->type_name("FILE");
  app.add_option("--mqtt-discovery", flags->discovery,
                 "topic below which Home Assistant looks for sensors; empty: none are made")
      ->needs(mqtt)
      ->capture_default_str()
      ->type_name("TOPIC");
  app.add_flag("--mqtt-pictures", flags->pictures,
               "publish what the video showed at an event as well, as PNG; Home Assistant finds it as an image")
      ->needs(mqtt);
  return mqtt;
}

Result<MqttOptions> ToMqtt(const MqttFlags& flags) {
  MqttOptions out = {.address = flags.address, .ca_file = flags.ca_file, .discovery = flags.discovery};
  out.retained_bytes = flags.retained_bytes;
  out.picture_bytes = flags.pictures ? flags.picture_bytes : 0;
  if (!flags.password_file.empty()) {
    WEIR_ASSIGN_OR_RETURN(out.password, ReadTextFile(flags.password_file, 1 << 12));
    while (!out.password.empty() && (out.password.back() == '\n' || out.password.back() == '\r'))
      out.password.pop_back();
  }
  return out;
}

}  // namespace weir::app
