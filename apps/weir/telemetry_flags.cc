// SPDX-License-Identifier: Apache-2.0
#include "telemetry_flags.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "common.h"

namespace weir::app {
namespace {

constexpr const char* kHeaders = "OTEL_EXPORTER_OTLP_HEADERS";

using NameValues = std::vector<std::pair<std::string, std::string>>;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string_view WithoutBlanks(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  return begin == text.npos ? std::string_view() : text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// "%20" is a space.
std::string PercentDecoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    int value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr == text.data() + i + 3) {
      out += static_cast<char>(value);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// "a=1,b=2", as OpenTelemetry writes lists in the environment; in a file also one a line.
Result<NameValues> ParseNameValues(std::string_view text, const std::string& where) {
  NameValues out;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(",\n"), text.size());
    const std::string_view part = WithoutBlanks(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (part.empty()) continue;
    const size_t equals = part.find('=');
    const std::string_view name = WithoutBlanks(part.substr(0, equals));
    if (equals == part.npos || name.empty()) return InvalidArgument("{} is not a list of NAME=VALUE", where);
    out.emplace_back(PercentDecoded(name), PercentDecoded(WithoutBlanks(part.substr(equals + 1))));
  }
  return out;
}

// A whole number of milliseconds; unchanged if the variable is not set.
Status TakeMilliseconds(const char* name, std::chrono::milliseconds* out) {
  const std::string text = Variable(name);
  if (text.empty()) return Status();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > 86400000) {
    return InvalidArgument("{} must be a number of milliseconds from 1 to 86400000", name);
  }
  *out = std::chrono::milliseconds(value);
  return Status();
}

Result<OtlpResource> ToResource(const std::string& node) {
  char host[256] = "";
  (void)gethostname(host, sizeof(host) - 1);
  OtlpResource out = {{"service.name", "weir"},
                      {"service.version", WEIR_VERSION},
                      {"service.instance.id", node.empty() ? std::string(host) : node}};
  const auto set = [&](const std::string& name, const std::string& value) {
    const auto same = std::find_if(out.begin(), out.end(), [&](const auto& one) { return one.first == name; });
    if (same != out.end()) {
      same->second = value;
    } else {
      out.emplace_back(name, value);
    }
  };
  constexpr const char* kAttributes = "OTEL_RESOURCE_ATTRIBUTES";
  WEIR_ASSIGN_OR_RETURN(const NameValues given, ParseNameValues(Variable(kAttributes), kAttributes));
  for (const auto& [name, value] : given) set(name, value);
  if (const std::string name = Variable("OTEL_SERVICE_NAME"); !name.empty()) set("service.name", name);
  return out;
}

}  // namespace

void AddTelemetryFlags(CLI::App& app, TelemetryFlags* flags) {
  app.add_option("--otlp", flags->otlp,
                 "OpenTelemetry collector that gets traces and metrics, over HTTP as JSON: http://HOST:4318; default: "
                 "OTEL_EXPORTER_OTLP_ENDPOINT")
      ->check(NotEmpty())
      ->type_name("URL");
  app.add_option("--otlp-headers-file", flags->headers_file,
                 "file of headers for the collector, NAME=VALUE a line; default: OTEL_EXPORTER_OTLP_HEADERS")
      ->check(NotEmpty())
      ->type_name("FILE");
  app.add_option("--trace-sample", flags->sample,
                 "share of the requests that are traced, from 0 to 1, where who asked has not decided; default: "
                 "OTEL_TRACES_SAMPLER_ARG, or 1")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("SHARE");
  app.add_option("--log-format", flags->log_format, "what stderr gets: text, or json with a line for every request")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

Result<TelemetryOptions> ToTelemetry(const TelemetryFlags& flags, const std::string& node) {
  TelemetryOptions out;
  out.otlp.endpoint = flags.otlp.empty() ? Variable("OTEL_EXPORTER_OTLP_ENDPOINT") : flags.otlp;
  if (flags.otlp.empty() && Variable("OTEL_SDK_DISABLED") == "true") out.otlp.endpoint.clear();
  if (out.otlp.endpoint.empty()) {
    if (!flags.headers_file.empty() || flags.sample >= 0) {
      return InvalidArgument("--otlp-headers-file and --trace-sample need --otlp URL, or OTEL_EXPORTER_OTLP_ENDPOINT");
    }
    return out;
  }
  if (!flags.headers_file.empty()) {
    WEIR_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.headers_file, 1 << 16));
    WEIR_ASSIGN_OR_RETURN(out.otlp.headers, ParseNameValues(text, flags.headers_file));
  } else {
    WEIR_ASSIGN_OR_RETURN(out.otlp.headers, ParseNameValues(Variable(kHeaders), kHeaders));
  }
  WEIR_ASSIGN_OR_RETURN(out.otlp.resource, ToResource(node));
  WEIR_RETURN_IF_ERROR(TakeMilliseconds("OTEL_EXPORTER_OTLP_TIMEOUT", &out.otlp.timeout));
  WEIR_RETURN_IF_ERROR(TakeMilliseconds("OTEL_METRIC_EXPORT_INTERVAL", &out.otlp.metrics_interval));
  if (Variable("OTEL_METRICS_EXPORTER") == "none") out.otlp.metrics_interval = std::chrono::milliseconds(0);
  if (flags.sample >= 0) {
    out.sample_ratio = flags.sample;
  } else if (const std::string text = Variable("OTEL_TRACES_SAMPLER_ARG"); !text.empty()) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out.sample_ratio);
    if (error != std::errc() || end != text.data() + text.size() || !(out.sample_ratio >= 0 && out.sample_ratio <= 1)) {
      return InvalidArgument("OTEL_TRACES_SAMPLER_ARG must be a share from 0 to 1");
    }
  }
  return out;
}

}  // namespace weir::app
