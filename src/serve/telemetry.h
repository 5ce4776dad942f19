// SPDX-License-Identifier: Apache-2.0
// What a server tells of its requests: traces for a collector, and one record each for a log.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/ledger.h"
#include "base/status.h"
#include "serve/otlp_exporter.h"

namespace weir {

// One request. No keys, no texts, and of a session's id not enough to use the session.
struct RequestRecord {
  std::string name;  // "POST /v1/chat/completions"; "other" without a route
  int status = 0;    // of HTTP; 0: none was sent
  double seconds = 0;
  std::string session;            // SessionLabel(); may be empty
  std::string trace_id, span_id;  // in hexadecimal digits
  bool sampled = false;
  int64_t n_prompt = 0, n_answer = 0;  // tokens
};

struct TelemetryOptions {
  OtlpOptions otlp;
  double sample_ratio = 1;  // share of the traces that begin here; others keep to the decision of who asked
  std::function<void(const RequestRecord&)> log;  // any thread; nullptr: none
};

class Telemetry {
 public:
  static int64_t MemoryBytes(const TelemetryOptions& options) { return OtlpExporter::MemoryBytes(options.otlp); }
  // Errors of OtlpExporter::Make(); kInvalidArgument for a ratio that is none.
  static Result<std::unique_ptr<Telemetry>> Make(const TelemetryOptions& options, Ledger& ledger);

  // Whether anybody wants to know of requests.
  bool on() const { return exporter_ != nullptr || options_.log != nullptr; }
  OtlpExporter* exporter() const { return exporter_.get(); }
  const TelemetryOptions& options() const { return options_; }

 private:
  explicit Telemetry(const TelemetryOptions& options) : options_(options) {}
  const TelemetryOptions options_;
  std::unique_ptr<OtlpExporter> exporter_;
};

// What may be told of a session's id: its node, and too little of the rest to guess it by.
std::string SessionLabel(std::string_view id);

}  // namespace weir
