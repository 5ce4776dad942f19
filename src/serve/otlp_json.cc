// SPDX-License-Identifier: Apache-2.0
#include "serve/otlp_json.h"

#include <algorithm>

#include "io/json.h"

namespace weir {
namespace {

constexpr int kStatusError = 2, kCumulative = 2;  // of the protocol's enumerations

// The protocol's 64-bit numbers are texts.
std::string NumberText(int64_t value) { return std::to_string(value); }

Json TextValue(const std::string& text) { return {{"stringValue", text}}; }

Json ValueJson(const SpanValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return {{"intValue", NumberText(*number)}};
  if (const auto* number = std::get_if<double>(&value)) return {{"doubleValue", *number}};
  if (const auto* text = std::get_if<std::string>(&value)) return TextValue(*text);
  Json values = Json::array();
  for (const std::string& text : std::get<std::vector<std::string>>(value)) values.push_back(TextValue(text));
  return {{"arrayValue", {{"values", std::move(values)}}}};
}

Json LabelsJson(const std::vector<std::pair<std::string, std::string>>& labels) {
  Json out = Json::array();
  for (const auto& [key, value] : labels) out.push_back({{"key", key}, {"value", TextValue(value)}});
  return out;
}

Json SpanJson(const Span& span) {
  Json attributes = Json::array();
  for (const auto& [key, value] : span.attributes) attributes.push_back({{"key", key}, {"value", ValueJson(value)}});
  Json out = {{"traceId", IdText(span.trace_id)}, {"spanId", IdText(span.span_id)}};
  if (span.parent_id != SpanId()) out["parentSpanId"] = IdText(span.parent_id);
  if (!span.state.empty()) out["traceState"] = span.state;
  out["name"] = span.name;
  out["kind"] = static_cast<int>(span.kind);
  out["startTimeUnixNano"] = NumberText(span.begin_ns);
  out["endTimeUnixNano"] = NumberText(std::max(span.begin_ns, span.end_ns));
  out["attributes"] = std::move(attributes);
  if (!span.error.empty()) out["status"] = {{"code", kStatusError}, {"message", span.error}};
  return out;
}

Json DataPoint(const MetricLabels& labels, int64_t since_ns, int64_t now_ns) {
  return {{"attributes", LabelsJson(labels)},
          {"startTimeUnixNano", NumberText(since_ns)},
          {"timeUnixNano", NumberText(now_ns)}};
}

Json HistogramPoint(const MetricHistogram& histogram, int64_t since_ns, int64_t now_ns) {
  Json out = DataPoint(histogram.labels, since_ns, now_ns);
  Json counts = Json::array(), bounds = Json::array(), exemplars = Json::array();
  int64_t n = 0;
  for (const int64_t count : histogram.counts) {
    n += count;
    counts.push_back(NumberText(count));
  }
  for (const double bound : histogram.bounds) bounds.push_back(bound);
  for (const auto& one : histogram.exemplars) {
    if (!one) continue;
    exemplars.push_back({{"timeUnixNano", NumberText(one->unix_ns)},
                         {"asDouble", one->value},
                         {"traceId", one->trace_id},
                         {"spanId", one->span_id}});
  }
  out["count"] = NumberText(n);
  out["sum"] = histogram.sum;
  out["bucketCounts"] = std::move(counts);
  out["explicitBounds"] = std::move(bounds);
  if (!exemplars.empty()) out["exemplars"] = std::move(exemplars);
  return out;
}

Json MetricJson(const MetricFamily& family, int64_t since_ns, int64_t now_ns) {
  Json points = Json::array();
  for (const MetricSample& sample : family.samples) {
    Json point = DataPoint(sample.labels, since_ns, now_ns);
    if (sample.ratio) {
      point["asDouble"] = *sample.ratio;
    } else {
      point["asInt"] = NumberText(sample.count);
    }
    points.push_back(std::move(point));
  }
  Json out = {{"name", family.name}, {"description", family.help}};
  switch (family.type) {
    case MetricFamily::Type::kGauge:
      out["gauge"] = {{"dataPoints", std::move(points)}};
      break;
    case MetricFamily::Type::kCounter:
      out["sum"] = {{"dataPoints", std::move(points)}, {"aggregationTemporality", kCumulative}, {"isMonotonic", true}};
      break;
    case MetricFamily::Type::kHistogram:
      if (family.histogram) points.push_back(HistogramPoint(*family.histogram, since_ns, now_ns));
      out["unit"] = "s";
      out["histogram"] = {{"dataPoints", std::move(points)}, {"aggregationTemporality", kCumulative}};
      break;
  }
  return out;
}

Json ScopeJson() { return {{"name", "weir"}}; }

}  // namespace

std::string SpansBody(const OtlpResource& resource, std::span<const Span> spans) {
  Json list = Json::array();
  for (const Span& span : spans) list.push_back(SpanJson(span));
  Json scope = {{"scope", ScopeJson()}, {"spans", std::move(list)}};
  Json one = {{"resource", {{"attributes", LabelsJson(resource)}}}, {"scopeSpans", Json::array({std::move(scope)})}};
  return JsonText({{"resourceSpans", Json::array({std::move(one)})}});
}

std::string MetricsBody(const OtlpResource& resource, std::span<const MetricFamily> families, int64_t since_ns,
                        int64_t now_ns) {
  Json list = Json::array();
  for (const MetricFamily& family : families) list.push_back(MetricJson(family, since_ns, now_ns));
  Json scope = {{"scope", ScopeJson()}, {"metrics", std::move(list)}};
  Json one = {{"resource", {{"attributes", LabelsJson(resource)}}}, {"scopeMetrics", Json::array({std::move(scope)})}};
  return JsonText({{"resourceMetrics", Json::array({std::move(one)})}});
}

}  // namespace weir
