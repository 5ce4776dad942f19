// SPDX-License-Identifier: Apache-2.0
#include "serve/mqtt_address.h"

#include <algorithm>
#include <charconv>

namespace weir {

Result<MqttAddress> MqttAddress::Parse(std::string_view text) {
  const auto wrong = [&](std::string_view what) {
    return InvalidArgument(
        "'{}' is no address of an MQTT broker ({}): expected mqtt://[USER@]HOST[:PORT][/TOPIC] or mqtts://",
        text.substr(0, 200), what);
  };
  MqttAddress out;
  std::string_view rest = text;
  if (rest.starts_with("mqtts://")) {
    out.tls = true;
    out.port = 8883;
    rest.remove_prefix(8);
  } else if (rest.starts_with("mqtt://")) {
    rest.remove_prefix(7);
  } else {
    return wrong("its scheme");
  }
  if (!std::ranges::all_of(rest, [](unsigned char c) { return c > 0x20 && c < 0x7F; })) return wrong("its characters");
  if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    out.topic = rest.substr(slash + 1);
    rest = rest.substr(0, slash);
    // A level that is empty, a wildcard or one of the broker's own cannot be published to.
    const bool empty_level = out.topic.empty() || out.topic.starts_with('/') || out.topic.ends_with('/') ||
                             out.topic.find("//") != std::string::npos;
    if (empty_level || out.topic.find_first_of("+#$") != std::string::npos || out.topic.size() > 200) {
      return wrong("its topic");
    }
  }
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    out.user = rest.substr(0, at);
    rest = rest.substr(at + 1);
    if (out.user.empty()) return wrong("its user");
    if (out.user.find(':') != std::string::npos) return wrong("a password belongs into a file");
  }
  // An IPv6 address stands in brackets.
  const size_t bracket = rest.starts_with('[') ? rest.find(']') : 0;
  if (bracket == std::string_view::npos) return wrong("its host");
  if (const size_t colon = rest.find(':', bracket); colon != std::string_view::npos) {
    const std::string_view port = rest.substr(colon + 1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
    if (error != std::errc() || end != port.data() + port.size() || out.port < 1 || out.port > 65535) {
      return wrong("its port");
    }
    rest = rest.substr(0, colon);
  }
  if (rest.starts_with('[')) {
    if (!rest.ends_with(']')) return wrong("its host");
    rest = rest.substr(1, rest.size() - 2);
  }
  if (rest.empty()) return wrong("its host");
  out.host = rest;
  return out;
}

}  // namespace weir
